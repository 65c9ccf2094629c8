"""Joint training for several tasks together.

They share the encoder and the head that predicts tokens; each has its own classification head. The internal batches
take the tasks in turn. So n·S steps give each task exactly the internal batches that a run of S steps for it alone
would give, and no task is weighted by its size.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import torch
from torch import nn

from tlm.artifacts.artifact import Artifact
from tlm.artifacts.produce import Draft
from tlm.settings.sections import Preset
from tlm.training.checkpoint import Curve
from tlm.training.input import batches
from tlm.training.input.batches import Batch, Stream, number
from tlm.training.input.texts import Examples
from tlm.training.joint import Joint, Sources
from tlm.training.loop import Plan
from tlm.training.model import build
from tlm.training.model.encoder import Encoder, Inputs, write_tensors
from tlm.training.model.losses import Losses


class Together(Joint):
    """The work of stage 1 for several tasks, as the works for each of them; the first one's is this itself.

    Attributes:
        works: The work of each task, in the order of the tasks, as a `Joint` without external texts.
    """

    works: Sequence[Joint]

    @classmethod
    def of(cls, inputs: dict[str, Artifact], preset: Preset, seed: int, device: torch.device) -> Self:
        """The work that these inputs are for: also ``task-1`` and ``task_tokens-1``, and so on, of further tasks."""
        first = super().of(inputs, preset, seed, device)
        names = [name.removeprefix("task_tokens") for name in inputs if name.startswith("task_tokens-")]
        given = [(inputs[f"task{name}"], inputs[f"task_tokens{name}"]) for name in names]
        others = [Examples.open(*one, preset.model.max_length, preset.model.cut) for one in given]
        configs = [
            build.with_task(first.encoder.body.config, examples.classes, str(task.details["name"]), examples.marks)
            for (task, _), examples in zip(given, others, strict=True)
        ]
        encoders = sharing(first.encoder, configs, seed, device)
        rest = [Joint(encoder, one, None, preset, seed) for encoder, one in zip(encoders, others, strict=True)]
        for place, work in enumerate(rest):
            own = batches.SECOND_TASK + place
            work.stream = Stream(work.stream.texts, work.stream.rows, work.stream.size, seed, own)
            first.stepped_outside += work.stepped_outside
        first.works = [first, *rest]
        return first

    def model(self) -> nn.Module:
        """The encoder and all heads, with each parameter named once."""
        return Heads([work.encoder for work in self.works]) if len(self.works) > 1 else self.encoder

    def sources(self) -> Sources:
        """The texts that are trained on: those of all tasks, then the passages."""
        own, *passages = super().sources()
        return [own, *(source for work in self.works[1:] for source in work.sources()), *passages]

    def turn(self, index: int) -> Joint:
        """The work whose batch internal step `index` takes."""
        return self.works[index % len(self.works)]

    def internal(self, index: int) -> Batch:
        """The batch of internal step `index` (from 0)."""
        work = self.turn(index)
        return work.stream.batch(index // len(self.works), work.examples.labels)

    def _other(self, step: int) -> Joint | None:
        """The work of another task than the first, if the step is its turn."""
        work = self.turn(self.mixture.index(step)) if self.mixture.is_internal(step) else self
        return None if work is self else work

    def losses(self, step: int, inputs: Inputs) -> Losses:
        """The losses of a part of the batch of `step`."""
        other = self._other(step)
        return super().losses(step, inputs) if other is None else other.losses(step, inputs)

    def costs(self, step: int, batch: Batch) -> tuple[int, int, int]:
        """Tokens, padded tokens as the paper counts them, and FLOPs of `step`."""
        other = self._other(step)
        return super().costs(step, batch) if other is None else other.costs(step, batch)

    def shares(self) -> list[dict[str, Any]]:
        """Name, classes and number of internal steps of each task."""
        count, internal = len(self.works), self.mixture.internal_before(self.settings.steps)
        steps = [(internal + count - 1 - place) // count for place in range(count)]
        return [
            {"name": _name(work), "labels": work.examples.classes, "internal_steps": own}
            for work, own in zip(self.works, steps, strict=True)
        ]

    def parameters(self) -> int:
        """Parameters of the encoder with all classification heads."""
        return sum({id(one): one.numel() for work in self.works for one in work.encoder.body.parameters()}.values())

    def columns(self, curve: Curve, plan: Plan) -> dict[str, pa.Array]:
        """The columns of curve.parquet, with the task whose batch each internal step had."""
        internal = [self.mixture.index(step) if self.mixture.is_internal(step) else None for step in range(plan.steps)]
        names = [None if index is None else _name(self.turn(index)) for index in internal]
        return {**super().columns(curve, plan), "task": pa.array(names, pa.string())}

    def save(self, draft: Draft, tokenizer: Path) -> None:
        """Write the first task's model and the heads of all tasks (``heads.safetensors``)."""
        super().save(draft, tokenizer)
        heads: dict[str, torch.Tensor] = {}
        for place, work in enumerate(self.works):
            if place:
                build.to_units(work.encoder, work.examples.scale)
            heads |= {f"{place}.{name}": value for name, value in work.encoder.body.head_state().items()}
        write_tensors(heads, draft.folder / build.HEADS)
        draft.details["tasks"] = self.shares()


def _name(work: Joint) -> str:
    return str(work.encoder.body.config["finetuning_task"])


def sharing(first: Encoder, configs: Sequence[dict[str, Any]], seed: int, device: torch.device) -> list[Encoder]:
    """An encoder for each config, which shares all parameters with `first` except those of its classification head."""
    others = [
        build.build(config, number(seed, batches.HEADS, place)).to(device)
        for place, config in enumerate(configs, start=1)
    ]
    for other in others:
        for name, parameter in first.named_parameters():
            if not name.removeprefix("body.").startswith(first.body.head_names):
                owner, _, leaf = name.rpartition(".")
                other.get_submodule(owner).register_parameter(leaf, parameter)
    return others


class Heads(nn.Module):
    """Encoders that share all but their heads, with each parameter named once: what is optimized and saved."""

    def __init__(self, encoders: Sequence[Encoder]) -> None:
        super().__init__()
        self.first = encoders[0]
        self.heads = nn.ModuleList(encoder.body.classification_head() for encoder in encoders[1:])
