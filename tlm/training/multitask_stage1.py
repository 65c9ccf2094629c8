"""Stage 1 for several tasks at work: one encoder, a head for each task (the step is in multitask.py)."""

from typing import Any

import pyarrow as pa
import torch
from torch import nn

from tlm.artifacts.artifact import Artifact
from tlm.artifacts.produce import Draft
from tlm.settings import Preset
from tlm.training.checkpoint import Snapshots, State
from tlm.training.curve import Curve
from tlm.training.device import resolve_device, run_facts
from tlm.training.distributed.group import World
from tlm.training.input.batches import Batch, Order, collate
from tlm.training.input.examples import Examples
from tlm.training.input.rng import HEADS, MASK, STAGE2, generator, number
from tlm.training.input.texts import Texts
from tlm.training.loop import Plan, fit
from tlm.training.model import build
from tlm.training.model.encoder import Encoder, Inputs
from tlm.training.model.losses import Losses
from tlm.training.optimizer import AdamW
from tlm.training.stage1 import Joint, publish


def write(
    draft: Draft,
    inputs: dict[str, Artifact],
    names: list[str],
    preset: Preset,
    facts: dict[str, Any],
    device: str,
    snapshots: Snapshots,
) -> None:
    """Train and write a `checkpoint`; of several processes (`World.here`) the first writes it.

    Its model folder has the first task's head; ``heads.safetensors`` has them all, as ``<number of the task>.<name>``.

    Args:
        draft: Where to.
        inputs: ``task`` and ``task_tokens`` of the first task, ``task-1`` … of the others; perhaps ``subset_tokens``.
        names: Of the tasks.
        preset: All settings.
        facts: Arm and seed, for the details.
        device: As the step was given it.
        snapshots: Where unfinished work is kept.
    """
    place, seed, world, passages = torch.device(resolve_device(device)), facts["seed"], World.here(), None
    ends = ["", *(f"-{number}" for number in range(1, len(names)))]
    with world.in_turn():
        tasks = [
            Examples.open(inputs[f"task{end}"], inputs[f"task_tokens{end}"], preset.model.max_length) for end in ends
        ]
        if "subset_tokens" in inputs:
            passages = Texts.open(inputs["subset_tokens"], preset.train.external_length)
    vocab_size, special = inputs["task_tokens"].details["vocab_size"], tasks[0].texts.special
    configs = [
        build.make_config(preset.model, vocab_size, special, task.classes, name)
        for task, name in zip(tasks, names, strict=True)
    ]
    encoders = build_together(configs, seed, place)
    work = InTurn(encoders, dict(zip(names, tasks, strict=True)), passages, preset, seed)
    work.label = f"stage 1, {len(names)} tasks, seed {seed}"
    plan = Plan(preset.train, preset.train.steps, preset.train.warmup_steps, preset.model.dropout, seed)
    model = Together(encoders)
    state = State(model, AdamW(model, preset.train.weight_decay, preset.train.betas), Curve(plan.steps, place))
    fit(state, work, plan, snapshots, place)
    if world.first:
        publish(draft, work, state, plan, facts, inputs["task_tokens"].input("tokenizer").path("tokenizer"))
        build.save_heads(encoders, draft.folder / build.HEADS)
        draft.details["tasks"] = work.shares()
        draft.run |= run_facts(place, preset.train.precision)


def build_together(configs: list[dict[str, Any]], seed: int, device: torch.device) -> list[Encoder]:
    """An encoder for each config, all with the same parameters but for their classification heads.

    The first is what a task alone would get by this seed.
    """
    first, *others = (
        build.build(config, number(seed, HEADS, place) if place else seed).to(device)
        for place, config in enumerate(configs)
    )
    for other in others:
        for name, parameter in first.named_parameters():
            if not name.removeprefix("body.").startswith(first.body.head_names):
                owner, _, leaf = name.rpartition(".")
                other.get_submodule(owner).register_parameter(leaf, parameter)
    return [first, *others]


class Together(nn.Module):
    """Encoders that share all but their heads, with each parameter named once: what is optimized and saved."""

    def __init__(self, encoders: list[Encoder]) -> None:
        super().__init__()
        self.first = encoders[0]
        self.heads = nn.ModuleList(
            nn.ModuleList(encoder.body.get_submodule(name.removesuffix(".")) for name in encoder.body.head_names)
            for encoder in encoders[1:]
        )


class InTurn(Joint):
    """The work of stage 1 for several tasks: external steps as for one, internal ones by each task in turn."""

    def __init__(
        self, encoders: list[Encoder], tasks: dict[str, Examples], passages: Texts | None, preset: Preset, seed: int
    ) -> None:
        examples = list(tasks.values())
        super().__init__(encoders[0], examples[0], passages, preset, seed)
        self.names = list(tasks)
        self.works = [Joint(one, its, passages, preset, seed) for one, its in zip(encoders, examples, strict=True)]
        for place, work in enumerate(self.works[1:], start=1):  # each task's batches have an order of their own
            work.internal = Order(work.internal.lengths, work.internal.batch, seed, STAGE2 + place)

    def whose(self, step: int) -> int | None:
        """The task of an internal step; None for an external one."""
        return self.mixture.place(step) % len(self.works) if self.mixture.is_internal(step) else None

    def batch(self, step: int) -> Batch:
        """See `loop.Work`."""
        task = self.whose(step)
        if task is None:
            return super().batch(step)
        work, place = self.works[task], self.mixture.place(step) // len(self.works)
        plain = collate(work.examples.texts, work.train_rows[work.internal.rows(place)], work.examples.labels)
        return work.masking(plain, generator(self.seed, MASK, step))

    def losses(self, step: int, inputs: Inputs) -> Losses:
        """See `loop.Work`."""
        return self.works[self.whose(step) or 0].losses(step, inputs)

    def costs(self, step: int, batch: Batch) -> tuple[int, int, int]:
        """See `loop.Work`."""
        return self.works[self.whose(step) or 0].costs(step, batch)

    def parameters(self) -> int:
        """Of the encoder with all classification heads, each counted once."""
        return sum({id(one): one.numel() for work in self.works for one in work.model.body.parameters()}.values())

    def shares(self) -> list[dict[str, Any]]:
        """Name, classes and number of internal steps of each task."""
        count, internal = len(self.works), self.mixture.internal_before(self.settings.steps)
        return [
            {
                "name": name,
                "labels": work.examples.classes,
                "internal_steps": (internal + count - 1 - place) // count,
            }
            for place, (name, work) in enumerate(zip(self.names, self.works, strict=True))
        ]

    def columns(self, curve: Curve, plan: Plan) -> dict[str, pa.Array]:
        """See `Joint.columns`; `task` is whose batch an internal step had."""
        turns = (self.whose(step) for step in range(plan.steps))
        names = [None if turn is None else self.names[turn] for turn in turns]
        return {**super().columns(curve, plan), "task": pa.array(names, pa.string())}
