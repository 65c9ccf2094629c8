"""What each lever of the training step gives: our own step beside the same one without it."""

from collections.abc import Callable
from dataclasses import replace
from types import MethodType
from typing import Any

import numpy as np

from benchmarks.measure import compare, per_cpu_second
from benchmarks.row import Result, Row, against
from benchmarks.training_cpu import EXTERNAL, INTERNAL, SHAPES, Bench
from benchmarks.training_data import prepare

STEPS = {EXTERNAL: 24, INTERNAL: 48}
Change = Callable[[Any], None]  # of a `tlm.training.stage1.Joint`, in place


def run(quick: bool) -> list[Result]:
    """Tokens, padding left out, per CPU second, on the pocket model."""
    return [result for kind in STEPS for result in measure(kind, quick)]


def measure(kind: str, quick: bool) -> list[Result]:
    """Ours beside ours without each lever, on one kind of step."""
    from tlm import presets

    shape = SHAPES[0]
    presets_of = [presets.resolve(shape.preset, [*shape.overrides, f"model.dropout={share}"]) for share in (0, 0.1)]
    material = prepare(quick, presets_of[0].tokenizer.vocab_size)
    plain, dropped = (Bench(material, preset, kind) for preset in presets_of)
    steps = STEPS[kind] // (6 if quick else 1)
    sides = {"ours": plain.ours(steps), "with a dropout of 0.1": dropped.ours(steps)}
    sides |= {name: plain.ours(steps, change) for name, change in WITHOUT.items()}
    measured = compare(sides, repeats=1 if quick else 5, warm_up=1)
    others = [name for name in sides if name != "ours"]
    return [against(kind, measured, name, per_cpu_second("tokens"), note=plain.told) for name in others]


def unsorted(work: Any) -> None:
    """Texts go into batches as they are shuffled."""
    for order in (work.external, work.internal):
        order.lengths = np.zeros_like(order.lengths)


def full_length(work: Any) -> None:
    """Texts are padded to what the model takes at most, not to the longest of their batch."""
    made = work.batch

    def batch(step: int) -> Any:
        found = made(step)
        texts = work.examples.texts if work.mixture.is_internal(step) else work.passages
        width = found.ids.shape[1]

        def padded(values: Any, filler: int) -> Any:
            more = ((0, 0), (0, texts.max_length - width))
            return None if values is None else np.pad(values, more, constant_values=filler)

        row, column = np.divmod(found.predicted, width)
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

    work.model.body.read = MethodType(read, work.model.body)


WITHOUT: dict[str, Change] = {
    "batches of any lengths": unsorted,
    "padded to the full length": full_length,
    "logits at every position": every_logit,
    "the whole last layer": whole_last_layer,
}

ROW = Row(
    name="levers",
    stage="levers of the training step",
    against="the same step without each",
    target="for information",
    what="Our own optimizer steps at pocket scale, in one thread, beside the same steps with one lever taken away: "
    "texts of similar length share a batch; a batch is padded to its longest text; logits only where a token was "
    "masked; the last layer only where a head reads (a classifier that reads the mean of all positions needs them "
    "all); no dropout, as the preset has it. Padding and the last layer leave each loss as it is "
    "(`tests/benchmarks/test_levers.py`); texts come in random order either way.",
    run=run,
    packages=("torch", "numpy"),
)
