"""Stage 1 at work: joint training on external and internal data (paper, section 3.2; the step is in joint.py)."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from tlm.artifacts.artifact import Artifact
from tlm.artifacts.produce import Draft
from tlm.settings import Preset
from tlm.training.checkpoint import Snapshots, State
from tlm.training.curve import Curve
from tlm.training.device import resolve_device, run_facts
from tlm.training.distributed.group import World
from tlm.training.flops import Cost, paper_flops
from tlm.training.input.batches import Batch, Masking, Order, collate
from tlm.training.input.examples import Examples
from tlm.training.input.mixture import Mixture
from tlm.training.input.rng import EXTERNAL, INTERNAL, MASK, generator
from tlm.training.input.texts import Texts
from tlm.training.loop import Plan, fit
from tlm.training.model import build
from tlm.training.model.encoder import Encoder, Inputs
from tlm.training.model.losses import Losses, external_loss, internal_loss
from tlm.training.optimizer import AdamW


def write(
    draft: Draft, inputs: dict[str, Artifact], preset: Preset, facts: dict[str, Any], device: str, snapshots: Snapshots
) -> None:
    """Train and write a `checkpoint`; of several processes (`World.here`) the first writes it.

    Args:
        draft: Where to.
        inputs: The artifacts ``task``, ``task_tokens``, but for the task-only arm ``subset_tokens``, perhaps ``start``.
        preset: All settings.
        facts: Arm and seed, for the details.
        device: As the step was given it.
        snapshots: Where unfinished work is kept.
    """
    place, seed = torch.device(resolve_device(device)), facts["seed"]
    world, passages = World.here(), None
    with world.in_turn():
        examples = Examples.open(inputs["task"], inputs["task_tokens"], preset.model.max_length)
        if "subset_tokens" in inputs:
            passages = Texts.open(inputs["subset_tokens"], preset.train.external_length)
        model = _begin(inputs, preset, examples, seed).to(place)
    work = Joint(model, examples, passages, preset, seed)
    work.label = f"stage 1, {facts['arm']}, seed {seed}"
    plan = Plan(preset.train, preset.train.steps, preset.train.warmup_steps, preset.model.dropout, seed)
    optimizer = AdamW(model, preset.train.weight_decay, preset.train.betas)
    state = State(model, optimizer, Curve(plan.steps, place))
    fit(state, work, plan, snapshots, place)
    if world.first:
        publish(draft, work, state, plan, facts, inputs["task_tokens"].input("tokenizer").path("tokenizer"))
        draft.run |= run_facts(place, preset.train.precision)


def _begin(inputs: dict[str, Artifact], preset: Preset, examples: Examples, seed: int) -> Encoder:
    """A fresh model; or the encoder of the checkpoint ``start`` and its head for tokens, with a fresh classifier."""
    name = inputs["task"].details["name"]
    if "start" not in inputs:
        vocab_size = inputs["task_tokens"].details["vocab_size"]
        config = build.make_config(preset.model, vocab_size, examples.texts.special, examples.classes, name)
        return build.build(config, seed)
    start = inputs["start"]
    config = build.with_dropout(build.load_config(start.path("model")), preset.model.dropout)
    model = build.build(build.with_task(config, examples.classes, name), seed)
    build.load_encoder(model, start.path("model"))
    if start.entries(build.MLM_HEAD):
        build.load_mlm_head(model, start.path(build.MLM_HEAD))
    return model


def publish(draft: Draft, work: "Joint", state: State, plan: Plan, facts: dict[str, Any], tokenizer: Path) -> None:
    """Write what stage 1 made: the model folder with `tokenizer`, the head that predicts tokens, curve and cost."""
    build.save(work.model, draft.folder / "model", tokenizer)
    build.save_mlm_head(work.model, draft.folder / build.MLM_HEAD)
    work.write_curve(state.curve, plan, draft)
    parameters, cost = work.parameters(), {**work.counts(), **state.curve.totals()}
    cost["paper_flops"] = paper_flops(parameters, cost["padded_tokens"])
    draft.details = {**facts, "parameters": parameters, "cost": cost}
    draft.counts = dict(cost)


class Joint:
    """The work of stage 1: which batch each step takes, and its loss. Without passages every step is internal."""

    label = "stage 1"
    advice = (
        "lower train.external_batch and train.internal_batch, or compute them in parts (train.accumulation=2, 4, …)"
    )

    def __init__(self, model: Encoder, examples: Examples, passages: Texts | None, preset: Preset, seed: int) -> None:
        self.model, self.examples, self.passages = model, examples, passages
        self.settings, self.seed = preset.train, seed
        self.mixture = Mixture(preset.train.rho1 if passages is not None else 0)
        special, config = examples.texts.special, model.body.config
        self.masking = Masking(preset.train.mask_share, config["vocab_size"], special.mask, special.ids)
        self.cost = Cost(preset.model, config["vocab_size"], len(config["id2label"]))
        self.train_rows = examples.rows("train")
        self.internal = Order(examples.texts.lengths[self.train_rows], preset.train.internal_batch, seed, INTERNAL)
        lengths = passages.lengths if passages is not None else np.zeros(0, dtype=np.int32)
        self.external = Order(lengths, preset.train.external_batch, seed, EXTERNAL)

    @property
    def words_alone(self) -> bool:
        """Whether internal batches have no loss but that of the language model."""
        return self.settings.rho2 == "inf"

    def batch(self, step: int) -> Batch:
        """See `loop.Work`."""
        place = self.mixture.place(step)
        if self.mixture.is_internal(step):
            plain = collate(self.examples.texts, self.train_rows[self.internal.rows(place)], self.examples.labels)
        else:
            assert self.passages is not None
            plain = collate(self.passages, self.external.rows(place))
        return self.masking(plain, generator(self.seed, MASK, step))

    def losses(self, step: int, inputs: Inputs) -> Losses:
        """See `loop.Work`."""
        if self.words_alone or not self.mixture.is_internal(step):
            return external_loss(self.model, inputs)
        normalised = self.settings.internal_loss == "normalised"
        return internal_loss(self.model, inputs, float(self.settings.rho2), normalised, self.settings.mask_internal)

    def costs(self, step: int, batch: Batch) -> tuple[int, int, int]:
        """See `loop.Work`."""
        rows, internal = len(batch.lengths), self.mixture.is_internal(step)
        if not internal:
            return batch.tokens, rows * self.settings.external_length, self.cost.of(batch, tokens=True, classes=False)
        full = rows * self.examples.texts.max_length
        if self.settings.mask_internal or self.words_alone:
            return batch.tokens, full, self.cost.of(batch, tokens=True, classes=not self.words_alone)
        passes = (self.cost.of(batch, tokens=kind, classes=not kind) for kind in (True, False))
        return 2 * batch.tokens, 2 * full, sum(passes)

    def after(self, state: State) -> None:
        """Nothing: stage 1 is not scored on dev."""

    def counts(self) -> dict[str, int]:
        """How many steps of each kind there are."""
        internal = self.mixture.internal_before(self.settings.steps)
        steps = self.settings.steps
        return {"steps": steps, "external_steps": steps - internal, "internal_steps": internal}

    def parameters(self) -> int:
        """Of the encoder with its classification head."""
        return build.parameter_count(self.model)

    def write_curve(self, curve: Curve, plan: Plan, draft: Draft) -> None:
        """Write curve.parquet."""
        curve.write(draft.folder / "curve.parquet", self.columns(curve, plan))
        draft.rows["curve.parquet"] = plan.steps

    def columns(self, curve: Curve, plan: Plan) -> dict[str, pa.Array]:
        """Of curve.parquet, a row for each step; `ce` is null where nothing was classified."""
        steps = range(self.settings.steps)
        internal = np.array([self.mixture.is_internal(step) for step in steps], dtype=bool)
        losses = curve.losses.cpu().numpy()
        return {
            "step": pa.array(steps, pa.int64()),
            "kind": pa.array(np.where(internal, "internal", "external").tolist(), pa.string()),
            "mlm": pa.array(losses[:, 1]),
            "ce": pa.array(losses[:, 2], mask=~internal | self.words_alone),
            "lr": pa.array([plan.lr(step) for step in steps], pa.float64()),
            "tokens": pa.array(curve.costs[:, 0]),
            "flops": pa.array(curve.costs[:, 2]),
        }
