"""Our training step made to do what it leaves out: changes of a `tlm.training.joint.Joint`, in place."""

from collections.abc import Callable
from dataclasses import replace
from types import MethodType
from typing import Any

import numpy as np

Change = Callable[[Any], None]


def unsorted(work: Any) -> None:
    """Texts go into batches as they are shuffled."""
    for stream in (*work.external.sources, work.stream):
        stream.lengths = np.zeros_like(stream.lengths)


def full_length(work: Any) -> None:
    """Texts are padded to what the model takes at most, not to the longest of their batch."""
    made = work.batch

    def batch(step: int) -> Any:
        found = made(step)
        texts = work.examples.texts if work.mixture.is_internal(step) else work.external.sources[0].texts
        width = found.ids.shape[1]

        def padded(values: Any, filler: int) -> Any:
            more = ((0, 0), (0, texts.max_length - width))
            return None if values is None else np.pad(values, more, constant_values=filler)

        row, column = np.divmod(found.positions, width)
        return replace(
            found, ids=padded(found.ids, texts.special.pad), corrupted=padded(found.corrupted, texts.special.pad),
            types=padded(found.types, 0), positions=row * texts.max_length + column,
        )  # fmt: skip

    work.batch = batch


def every_logit(work: Any) -> None:
    """All tokens are predicted, padding too, as where a loss ignores what was not masked."""
    made = work.batch

    def batch(step: int) -> Any:
        found = made(step)
        tokens = found.ids.ravel()
        return replace(found, positions=np.arange(len(tokens)), targets=tokens, of_masked=len(tokens))

    work.batch = batch


def whole_last_layer(work: Any) -> None:
    """The last layer is computed at all positions, whichever the heads read."""

    def read(body: Any, inputs: Any, ids: Any, tokens: bool, classes: bool) -> Any:
        hidden = body.embed(ids, inputs.types)
        for layer in body.layers():
            hidden = layer.finish(hidden, layer.attend(hidden, ids.shape, inputs.mask))
        states = body.final(hidden)
        class_logits = None
        if classes:
            class_logits = body.classify(states if body.pools_all else states[:: ids.shape[1]], inputs)
        return states.index_select(0, inputs.positions) if tokens else None, class_logits

    body = work.encoder.body
    body.read = MethodType(read, body)


WITHOUT: dict[str, Change] = {
    "batches of any lengths": unsorted,
    "padded to the full length": full_length,
    "logits at every position": every_logit,
    "the whole last layer": whole_last_layer,
}
