"""Joint training on external and internal data (paper, section 3.2)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Self, TypeAlias

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
from tlm.training.input.batches import Batch, External, FlopCount, Interleaving, Masking, Stream, generator
from tlm.training.input.texts import Examples, Special, Texts
from tlm.training.input.tokenizer import continuing
from tlm.training.loop import Plan, fit
from tlm.training.model import build
from tlm.training.model.encoder import Encoder, Inputs, MlmHead
from tlm.training.model.losses import Losses, external_loss, internal_loss, with_zero_gradients

PPMI_SVD = "ppmi-svd"
MOST_TOKENS = 20_000_000  # of more, texts at even distances are read: memory and time are bounded
SMALLEST = 1e-6  # share of the largest spread below which a dimension is noise

Sources: TypeAlias = Sequence[tuple[Texts, Ints]]


class Joint:
    """The work of stage 1: which batch each step takes, and its loss. Without external texts every step is internal."""

    advice = (
        "lower train.external_batch and train.internal_batch, or compute them in parts (train.accumulation=2, 4, …)"
    )

    def __init__(
        self,
        encoder: Encoder,
        examples: Examples,
        passages: Texts | None,
        preset: Preset,
        seed: int,
        continues: NDArray[np.bool_] | None = None,
    ) -> None:
        """`continues` is that of `Masking`: None masks single tokens."""
        self.label, self.settings, self.seed = "stage 1", preset.train, seed
        self.encoder, self.examples, self.passages = encoder, examples, passages
        unlabelled = (examples.texts, examples.without_label())
        self.external = External(passages, unlabelled, preset.train.external_batch, seed)
        self.mlm_only = preset.train.rho2 == "inf"  # internal batches then have no classification loss
        self.mixture = Interleaving(preset.train.rho1 if self.external else 0)
        rows = examples.rows("train")
        self.stream = Stream(examples.texts, rows, preset.train.internal_batch, seed, batches.INTERNAL)
        vocab_size = encoder.body.config["vocab_size"]
        self.cost = FlopCount(preset.model, vocab_size, len(encoder.body.config["id2label"]))
        head = encoder.body.classification_head().parameters()
        self.stepped_outside = list(head) if preset.train.head_steps == "all" else []
        self.masking = Masking(preset.train.mask_share, vocab_size, examples.texts.special, continues)

    @classmethod
    def of(cls, inputs: dict[str, Artifact], preset: Preset, seed: int, device: torch.device) -> Self:
        """The work that these inputs of a recipe are for, with a model that is fresh or begins as a checkpoint."""
        task, tokens, subset = inputs["task"], inputs["task_tokens"], inputs.get("subset_tokens")
        examples = Examples.open(task, tokens, preset.model.max_length, preset.model.cut)
        passages = Texts.open(subset, preset.train.external_length) if subset is not None else None
        encoder = _encoder(inputs, examples, preset.model, seed).to(device)
        of_words, vocabulary = preset.train.masking == "words", tokens.input("tokenizer")
        continues = continuing(vocabulary, len(encoder.body.embedding())) if of_words else None
        return cls(encoder, examples, passages, preset, seed, continues)

    def model(self) -> nn.Module:
        """What is optimized and saved in snapshots."""
        return self.encoder

    def sources(self) -> Sources:
        """The texts that are trained on: which of their rows."""
        own = (self.examples.texts, np.concatenate([self.stream.rows, self.examples.without_label()]))
        return [own] if self.passages is None else [own, (self.passages, np.arange(len(self.passages)))]

    def batch(self, step: int) -> Batch:
        """The masked batch of `step`."""
        index = self.mixture.index(step)
        plain = self.internal(index) if self.mixture.is_internal(step) else self.external.batch(index)
        return self.masking(plain, generator(self.seed, batches.MASK, step))

    def internal(self, index: int) -> Batch:
        """The batch of internal step `index` (from 0)."""
        return self.stream.batch(index, self.examples.labels)

    def losses(self, step: int, inputs: Inputs) -> Losses:
        """The losses of a part of that batch."""
        if not self.mixture.is_internal(step):
            return with_zero_gradients(external_loss(self.encoder, inputs), self.stepped_outside)
        if self.mlm_only:
            return external_loss(self.encoder, inputs)
        normalised = self.settings.internal_loss == "normalised"
        return internal_loss(self.encoder, inputs, float(self.settings.rho2), normalised, self.settings.mask_internal)

    def costs(self, step: int, batch: Batch) -> tuple[int, int, int]:
        """Tokens, padded tokens as the paper counts them, and FLOPs of `step`."""
        classes = self.mixture.is_internal(step) and not self.mlm_only
        if self.settings.mask_internal or not classes:
            return batch.tokens, batch.padded, self.cost.of(batch, tokens=True, classes=classes)
        masked_pass = self.cost.of(batch, tokens=True, classes=False)
        plain_pass = self.cost.of(batch, tokens=False, classes=True)
        return 2 * batch.tokens, 2 * batch.padded, masked_pass + plain_pass

    def after(self, state: State) -> None:
        """Do nothing: stage 1 is not scored on dev."""

    def counts(self) -> dict[str, int]:
        """Return the number of steps of each kind."""
        steps = self.settings.steps
        internal = self.mixture.internal_before(steps)
        return {"steps": steps, "external_steps": steps - internal, "internal_steps": internal}

    def parameters(self) -> int:
        """Parameters of the encoder with its classification head."""
        return build.parameter_count(self.encoder)

    def columns(self, curve: Curve, plan: Plan) -> dict[str, pa.Array]:
        """The columns of curve.parquet, a row for each step; `ce` is null where nothing was classified."""
        internal = np.array([self.mixture.is_internal(step) for step in range(plan.steps)], dtype=bool)
        kinds = pa.array(np.where(internal, "internal", "external").tolist(), pa.string())
        _, mlm, ce = curve.losses.cpu().numpy().T
        losses = {"mlm": pa.array(mlm), "ce": pa.array(ce, mask=~internal | self.mlm_only)}
        return plan.columns(curve, {"kind": kinds, **losses})

    def save(self, draft: Draft, tokenizer: Path) -> None:
        """Write the model and its MLM head, after training."""
        build.to_units(self.encoder, self.examples.scale)
        build.save(self.encoder, draft.folder / "model", tokenizer)
        build.save_mlm_head(self.encoder, draft.folder / build.MLM_HEAD)


def _encoder(inputs: dict[str, Artifact], examples: Examples, model: Model, seed: int) -> Encoder:
    """An encoder for the task: fresh, or with the weights of the checkpoint ``start`` and a fresh classifier."""
    start, tokens = inputs.get("start"), inputs["task_tokens"]
    if start is None:
        base = build.make_config(model, tokens.details["vocab_size"], Special.of(tokens.input("tokenizer")))
    else:
        base = build.with_dropout(config_of(start.path("model")), model.dropout)
    name = str(inputs["task"].details["name"])
    config = build.with_task(base, examples.classes, name, examples.marks, several=examples.several)
    encoder = build.build(config, seed)
    if start is not None:
        build.load_encoder(encoder, start.path("model"))
        if start.entries(build.MLM_HEAD):
            build.load_mlm_head(encoder, start.path(build.MLM_HEAD))
    return encoder


def train_jointly(
    draft: Draft, recipe: Recipe, preset: Preset, compute: Compute, root: str | None, kind: type[Joint] = Joint
) -> None:
    """Train and write a `checkpoint`. Of several processes, the first one writes it.

    Args:
        draft: Where to write.
        recipe: What is trained: arm and seed, and the artifacts ``task`` and ``task_tokens``; ``subset_tokens`` (left
            out in the task-only arm); ``start``, a checkpoint to begin with (optional).
        preset: All settings. Of the model, the recipe's own settings count.
        compute: Where to train, and how often to save the state.
        root: The store, as the step was given it.
        kind: The work.
    """
    inputs, facts = recipe.inputs, {name: recipe.settings[name] for name in ("arm", "seed")}
    preset = preset.model_copy(update={"model": Model.model_validate(recipe.settings["model"])})
    device, group, seed = torch.device(resolve_device(compute.place)), ProcessGroup.current(), facts["seed"]
    with group.in_turn():
        work = kind.of(inputs, preset, seed, device)
        if group.first:
            _begin(work, preset, inputs.get("start"))
    work.label = f"stage 1, {facts['arm']}, seed {seed}"
    plan = Plan(preset.train, preset.train.steps, preset.train.warmup_steps, preset.model.dropout, seed)
    state = State.fresh(work.model(), plan.settings, plan.steps)
    fit(state, work, plan, Snapshots(recipe, root, compute, draft.spending), device)
    if group.first:
        draft.counts = {**work.counts(), **state.curve.cost(work.parameters())}
        draft.details = {**facts, "parameters": work.parameters(), "cost": dict(draft.counts)}
        work.save(draft, inputs["task_tokens"].input("tokenizer").path("tokenizer"))
        state.curve.write(draft, work.columns(state.curve, plan))
        draft.run |= run_facts(device, preset.train.precision)


def _begin(work: Joint, preset: Preset, start: Artifact | None) -> None:
    """Set what the texts tell before training: vectors of tokens, or the MLM head that the checkpoint `start` lacks."""
    if preset.train.embeddings == PPMI_SVD and start is None:
        _begin_with_vectors(work.encoder, work.sources())
    if start is not None and not start.entries(build.MLM_HEAD):
        _begin_to_predict(work.encoder, work.sources())


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
