"""Joint training on external and internal data (paper, section 3.2), for one task or for several together.

Several tasks share the encoder and the head that predicts tokens; each has its own classification head. The internal
batches take the tasks in turn. So n·S steps give each task exactly the internal batches that a run of S steps for it
alone would give, and no task is weighted by its size.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import nn

from tlm.artifacts.artifact import Artifact
from tlm.artifacts.produce import Draft, Recipe
from tlm.data.ranges import Ints
from tlm.progress import say
from tlm.settings.options import Compute
from tlm.settings.sections import Model, Preset
from tlm.shallow.folder import config_of
from tlm.training.checkpoint import Curve, Snapshots, State
from tlm.training.device import resolve_device, run_facts
from tlm.training.distributed.group import ProcessGroup
from tlm.training.input import batches
from tlm.training.input.batches import Batch, External, Interleaving, Masking, Stream, generator, number
from tlm.training.input.texts import Examples, Special, Texts
from tlm.training.input.tokenizer import continuing
from tlm.training.loop import Plan, fit
from tlm.training.model import build
from tlm.training.model.encoder import Encoder, Inputs, MlmHead
from tlm.training.model.losses import Losses, external_loss, internal_loss, with_zero_gradients

PPMI_SVD = "ppmi-svd"
MOST_TOKENS = 20_000_000  # of more, texts at even distances are read: memory and time are bounded
SMALLEST = 1e-6  # share of the largest spread below which a dimension is noise


def train_jointly(draft: Draft, recipe: Recipe, preset: Preset, compute: Compute, root: str | None) -> None:
    """Train and write a `checkpoint`. Of several processes, the first one writes it.

    `train-multitask` also writes the heads of all tasks (``heads.safetensors``; the model folder has the first task's),
    and whose batch each internal step had.

    Args:
        draft: Where to write.
        recipe: What is trained: arm and seed, and the artifacts ``task`` and ``task_tokens``; ``task-1``,
            ``task_tokens-1`` and so on of further tasks; ``subset_tokens`` (left out in the task-only arm); ``start``,
            a checkpoint to begin with (optional).
        preset: All settings. Of the model, the recipe's own settings count.
        compute: Where to train, and how often to save the state.
        root: The store, as the step was given it.
    """
    inputs, facts = recipe.inputs, {name: recipe.settings[name] for name in ("arm", "seed")}
    preset = preset.model_copy(update={"model": Model.model_validate(recipe.settings["model"])})
    torch_device, group, seed = torch.device(resolve_device(compute.place)), ProcessGroup.current(), facts["seed"]
    multi_task = recipe.step == "train-multitask"
    with group.in_turn():
        tasks = _open_tasks(inputs, preset.model)
        subset = inputs.get("subset_tokens")
        passages = Texts.open(subset, preset.train.external_length) if subset is not None else None
        encoders = _encoders(inputs, tasks, preset, seed, torch_device)
        if preset.train.embeddings == PPMI_SVD and "start" not in inputs and group.first:
            _begin_with_vectors(encoders[0], _sources(tasks, passages))
        if "start" in inputs and not inputs["start"].entries(build.MLM_HEAD) and group.first:
            _begin_to_predict(encoders[0], _sources(tasks, passages))
    vocabulary = inputs["task_tokens"].input("tokenizer")
    of_words = preset.train.masking == "words"
    continues = continuing(vocabulary, len(encoders[0].body.embedding())) if of_words else None
    work = Joint(encoders, tasks, passages, preset, seed, continues)
    work.label = f"stage 1, {facts['arm']}, seed {seed}"
    plan = Plan(preset.train, preset.train.steps, preset.train.warmup_steps, preset.model.dropout, seed)
    state = State.fresh(Together(encoders) if len(encoders) > 1 else encoders[0], plan.settings, plan.steps)
    fit(state, work, plan, Snapshots(recipe, root, compute, draft.spending), torch_device)
    if group.first:
        for encoder, examples in zip(encoders, tasks.values(), strict=True):
            build.to_units(encoder, examples.scale)
        build.save(encoders[0], draft.folder / "model", vocabulary.path("tokenizer"))
        build.save_mlm_head(encoders[0], draft.folder / build.MLM_HEAD)
        columns = work.columns(state.curve, plan)
        if multi_task:
            turns = map(work.task, range(plan.steps))
            columns["task"] = pa.array([None if task is None else task.name for task in turns], pa.string())
        state.curve.write(draft, columns)
        draft.counts = {**work.counts(), **state.curve.cost(work.parameters())}
        draft.details = {**facts, "parameters": work.parameters(), "cost": dict(draft.counts)}
        if multi_task:
            build.save_heads(encoders, draft.folder / build.HEADS)
            draft.details["tasks"] = work.shares()
        draft.run |= run_facts(torch_device, preset.train.precision)


def _open_tasks(inputs: dict[str, Artifact], shape: Model) -> dict[str, Examples]:
    """The examples of each task, by its name, in the order of the tasks."""
    tasks = {}
    for name, tokens in inputs.items():
        if name.startswith("task_tokens"):
            task = inputs[name.replace("task_tokens", "task")]
            tasks[str(task.details["name"])] = Examples.open(task, tokens, shape.max_length, shape.cut)
    return tasks


def _encoders(
    inputs: dict[str, Artifact], tasks: dict[str, Examples], preset: Preset, seed: int, device: torch.device
) -> list[Encoder]:
    """An encoder for each task: fresh, or with the weights of the checkpoint ``start`` and a fresh classifier."""
    start, tokens = inputs.get("start"), inputs["task_tokens"]
    if start is None:
        special = Special.of(tokens.input("tokenizer"))
        base = build.make_config(preset.model, tokens.details["vocab_size"], special)
    else:
        base = build.with_dropout(config_of(start.path("model")), preset.model.dropout)
    configs = [build.with_task(base, one.classes, name, one.marks, several=one.several) for name, one in tasks.items()]
    encoders = build_together(configs, seed, device)
    if start is not None:
        build.load_encoder(encoders[0], start.path("model"))
        if start.entries(build.MLM_HEAD):
            build.load_mlm_head(encoders[0], start.path(build.MLM_HEAD))
    return encoders


Sources: TypeAlias = Sequence[tuple[Texts, Ints]]


def _sources(tasks: dict[str, Examples], passages: Texts | None) -> Sources:
    """The texts that are trained on: which of their rows."""
    own = [(one.texts, np.concatenate([one.rows("train"), one.without_label()])) for one in tasks.values()]
    return own if passages is None else [*own, (passages, np.arange(len(passages)))]


def _begin_to_predict(encoder: Encoder, sources: Sources) -> None:
    """Give a model without an MLM head one that starts near the answer, where the head is of our form."""
    if not isinstance(encoder.mlm, MlmHead):
        say("warning: this model has no head that predicts tokens, so stage 1 begins with a random one")
        return
    counts = np.bincount(_tokens_of(sources)[0], minlength=len(encoder.body.embedding())) + 1
    encoder.mlm.begin_as_identity(torch.from_numpy(np.log(counts / counts.sum())))


def _begin_with_vectors(encoder: Encoder, sources: Sources) -> None:
    """Give the embeddings of all tokens that occur vectors of their neighbourhood, at the scale of fresh ones."""
    table = encoder.body.embedding()
    tokens, vectors = token_vectors(sources, *table.shape)
    with torch.no_grad():
        scaled = torch.from_numpy(vectors).to(table) * table.std()
        table[torch.from_numpy(tokens).to(table.device), : scaled.shape[1]] = scaled


def token_vectors(sources: Sources, vocab_size: int, dimensions: int) -> tuple[Ints, NDArray[np.float32]]:
    """Vectors of the tokens that occur in texts, with mean 0 and deviation 1 in every dimension.

    Args:
        sources: Texts, and which of their rows are read.
        vocab_size: Number of tokens.
        dimensions: Length of a vector. There are fewer dimensions if texts are few.

    Returns:
        The ids of the tokens, shape [n], and their vectors, shape [n, dimensions].
    """
    ids, lengths = _tokens_of(sources)
    if not len(ids):
        return ids, np.zeros((0, dimensions), np.float32)
    from tlm.shallow.models import one_thread
    from tlm.shallow.static import neighbour_vectors

    with one_thread():
        vectors = neighbour_vectors(ids.astype(np.int32), lengths, vocab_size, dimensions)
    seen = np.unique(ids).astype(np.int64)
    vectors = vectors[seen] - vectors[seen].mean(axis=0)
    spread = vectors.std(axis=0)
    real = spread > SMALLEST * spread.max(initial=0)
    return seen, (vectors[:, real] / spread[real]).astype(np.float32)


def _tokens_of(sources: Sources) -> tuple[Ints, Ints]:
    """The tokens of all texts, one after the other, and how many each text has."""
    parts = [(ragged, rows) for texts, rows in sources for ragged in (texts.first, texts.second) if ragged is not None]
    total = sum(int(ragged.lengths_of(rows).sum()) for ragged, rows in parts)
    stride = max(1, -(-total // MOST_TOKENS))
    chosen = [(ragged, rows[::stride]) for ragged, rows in parts]
    lengths = [ragged.lengths_of(rows) for ragged, rows in chosen]
    ids = [ragged.take(rows, counts) for (ragged, rows), counts in zip(chosen, lengths, strict=True)]
    return np.concatenate(ids), np.concatenate(lengths)


def build_together(configs: list[dict[str, Any]], seed: int, device: torch.device) -> list[Encoder]:
    """An encoder for each config. They share all parameters except those of their classification heads.

    The first is what its task alone would get with this seed.
    """
    first, *others = (
        build.build(config, number(seed, batches.HEADS, index) if index else seed).to(device)
        for index, config in enumerate(configs)
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
        self.heads = nn.ModuleList(encoder.body.classification_head() for encoder in encoders[1:])


@dataclass(frozen=True)
class Internal:
    """The internal data of one task.

    Attributes:
        name: Of the task.
        encoder: With the task's classification head.
        examples: All of the task's examples.
        stream: Of the training examples.
        cost: Counts the FLOPs of a batch.
    """

    name: str
    encoder: Encoder
    examples: Examples
    stream: Stream
    cost: batches.FlopCount


class Joint:
    """The work of stage 1: which batch each step takes, and its loss. Without external texts every step is internal."""

    advice = (
        "lower train.external_batch and train.internal_batch, or compute them in parts (train.accumulation=2, 4, …)"
    )

    def __init__(
        self,
        encoders: list[Encoder],
        tasks: dict[str, Examples],
        passages: Texts | None,
        preset: Preset,
        seed: int,
        continues: NDArray[np.bool_] | None = None,
    ) -> None:
        """`continues` is that of `Masking`: None masks single tokens."""
        self.label, self.settings, self.seed = "stage 1", preset.train, seed
        first = next(iter(tasks.values()))
        self.external = External(passages, (first.texts, first.without_label()), preset.train.external_batch, seed)
        self.mlm_only = preset.train.rho2 == "inf"  # internal batches then have no classification loss
        self.mixture = Interleaving(preset.train.rho1 if self.external else 0)
        self.tasks = []
        for index, (encoder, (name, examples)) in enumerate(zip(encoders, tasks.items(), strict=True)):
            config = encoder.body.config
            own = batches.SECOND_TASK + index - 1 if index else batches.INTERNAL
            stream = Stream(examples.texts, examples.rows("train"), preset.train.internal_batch, seed, own)
            cost = batches.FlopCount(preset.model, config["vocab_size"], len(config["id2label"]))
            self.tasks.append(Internal(name, encoder, examples, stream, cost))
        heads = [one for encoder in encoders for one in encoder.body.classification_head().parameters()]
        self.stepped_outside = heads if preset.train.head_steps == "all" else []
        vocab_size = encoders[0].body.config["vocab_size"]
        self.masking = Masking(preset.train.mask_share, vocab_size, first.texts.special, continues)

    def task(self, step: int) -> Internal | None:
        """The task whose batch an internal step takes; None for an external step."""
        if not self.mixture.is_internal(step):
            return None
        return self.tasks[self.mixture.index(step) % len(self.tasks)]

    def batch(self, step: int) -> Batch:
        """The masked batch of `step`."""
        task, index = self.task(step), self.mixture.index(step)
        if task is None:
            plain = self.external.batch(index)
        else:
            plain = task.stream.batch(index // len(self.tasks), task.examples.labels)
        return self.masking(plain, generator(self.seed, batches.MASK, step))

    def losses(self, step: int, inputs: Inputs) -> Losses:
        """The losses of a part of that batch."""
        task = self.task(step)
        if task is None:
            return with_zero_gradients(external_loss(self.tasks[0].encoder, inputs), self.stepped_outside)
        if self.mlm_only:
            return external_loss(task.encoder, inputs)
        normalised = self.settings.internal_loss == "normalised"
        return internal_loss(task.encoder, inputs, float(self.settings.rho2), normalised, self.settings.mask_internal)

    def costs(self, step: int, batch: Batch) -> tuple[int, int, int]:
        """Tokens, padded tokens as the paper counts them, and FLOPs of `step`."""
        task = self.task(step)
        if task is None:
            return batch.tokens, batch.padded, self.tasks[0].cost.of(batch, tokens=True, classes=False)
        if self.settings.mask_internal or self.mlm_only:
            return batch.tokens, batch.padded, task.cost.of(batch, tokens=True, classes=not self.mlm_only)
        passes = (task.cost.of(batch, tokens=kind, classes=not kind) for kind in (True, False))
        return 2 * batch.tokens, 2 * batch.padded, sum(passes)

    def after(self, state: State) -> None:
        """Do nothing: stage 1 is not scored on dev."""

    def counts(self) -> dict[str, int]:
        """Return the number of steps of each kind."""
        steps = self.settings.steps
        internal = self.mixture.internal_before(steps)
        return {"steps": steps, "external_steps": steps - internal, "internal_steps": internal}

    def shares(self) -> list[dict[str, Any]]:
        """Name, classes and number of internal steps of each task."""
        count, internal = len(self.tasks), self.mixture.internal_before(self.settings.steps)
        return [
            {
                "name": task.name,
                "labels": task.examples.classes,
                "internal_steps": (internal + count - 1 - index) // count,
            }
            for index, task in enumerate(self.tasks)
        ]

    def parameters(self) -> int:
        """Parameters of the encoder with all classification heads."""
        return sum({id(one): one.numel() for task in self.tasks for one in task.encoder.body.parameters()}.values())

    def columns(self, curve: Curve, plan: Plan) -> dict[str, pa.Array]:
        """The columns of curve.parquet, a row for each step; `ce` is null where nothing was classified."""
        internal = np.array([self.mixture.is_internal(step) for step in range(plan.steps)], dtype=bool)
        kinds = pa.array(np.where(internal, "internal", "external").tolist(), pa.string())
        _, mlm, ce = curve.losses.cpu().numpy().T
        losses = {"mlm": pa.array(mlm), "ce": pa.array(ce, mask=~internal | self.mlm_only)}
        return plan.columns(curve, {"kind": kinds, **losses})
