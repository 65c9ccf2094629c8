"""Optimizer steps of both stages on a CPU: ours, the authors' way, Hugging Face's `Trainer`."""

import tempfile
import time
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from research.benchmarks.measure import Cost, Side, Stopwatch, compare, per_cpu_second
from research.benchmarks.row import Result, Row, against, need
from research.benchmarks.training_data import Material, prepare
from research.benchmarks.without import Change, every_logit, full_length

EXTERNAL, INTERNAL, STAGE2 = "external batches", "internal batches", "stage 2"
AUTHORS, TRAINER = "the authors' way", "Hugging Face Trainer"


class Shape(NamedTuple):
    """A line of the measurement.

    Attributes:
        name: For the label.
        preset: Shape and settings of the model.
        overrides: Batches that a CPU can do; the rest is the preset's.
        steps: Steps of a repeat, by kind of step.
        targets: Ratio to reach against the authors' way, by kind of step.
    """

    name: str
    preset: str
    overrides: tuple[str, ...]
    steps: dict[str, int]
    targets: dict[str, float]


ENOUGH = 8192  # passages that the others' rows are made of: drawn evenly, more than a measurement sees
FP32 = ("train.precision=fp32", "finetune.precision=fp32", "train.rho1=1", "model.dropout=0")
SHAPES = (
    Shape("pocket", "pocket", FP32, {EXTERNAL: 40, INTERNAL: 80, STAGE2: 80}, {EXTERNAL: 5.0, INTERNAL: 8.0}),
    Shape(
        "mini", "mini", (*FP32, "train.external_batch=32", "train.internal_batch=32", "finetune.batch=32"),
        {EXTERNAL: 6, INTERNAL: 12, STAGE2: 12}, {EXTERNAL: 2.8, INTERNAL: 2.8},
    ),
    Shape(
        "BERT-base", "small", (*FP32, "train.external_batch=16", "train.internal_batch=16", "finetune.batch=16"),
        {EXTERNAL: 2, INTERNAL: 4, STAGE2: 4}, {EXTERNAL: 1.8, INTERNAL: 1.8},
    ),
)  # fmt: skip


def run(quick: bool) -> list[Result]:
    """Tokens, padding left out, per CPU second."""
    need("accelerate")
    results = []
    for shape in SHAPES[:1] if quick else SHAPES:
        for kind in shape.steps:
            results += measure(shape, kind, quick)
    return results


def measure(shape: Shape, kind: str, quick: bool) -> list[Result]:
    """Ours beside both others, on one kind of step."""
    from tlm.settings import presets

    preset = presets.resolve(shape.preset, shape.overrides)
    stand = Bench(prepare(quick, preset.tokenizer.vocab_size), preset, kind)
    steps = max(1, shape.steps[kind] // (4 if quick else 1))
    sides = {"ours": stand.ours(steps), AUTHORS: stand.authors(steps), TRAINER: stand.trainer(steps)}
    measured = compare(sides, repeats=2 if quick else 5, warm_up=1)
    tokens, note = per_cpu_second("tokens"), stand.told
    label = f"{shape.name}, {kind}"
    target = shape.targets.get(kind)
    more = f" {AUTHORS.capitalize()} takes {stand.times_the_operations():.1f} times the operations." if target else ""
    return [
        against(label, measured, AUTHORS, tokens, at_least=target, note=note + more),
        against(label, measured, TRAINER, tokens, note=note),
    ]


class Bench:
    """The three sides of one kind of step, on one device."""

    def __init__(self, material: Material, preset: Any, kind: str, device: str = "cpu", vocab_size: int = 0) -> None:
        """`vocab_size` is that of the model, where it is to be larger than the tokenizer's."""
        import torch
        from transformers import PreTrainedTokenizerFast

        from tlm.artifacts.artifact import Artifact
        from tlm.training.input.texts import Examples, Texts
        from tlm.training.model import build

        self.preset, self.kind, self.device = preset, kind, torch.device(device)
        task = Artifact.open(material.task)
        self.examples = Examples.open(task, material.task_tokens, preset.model.max_length, preset.model.cut)
        self.passages = Texts.open(material.subset_tokens, preset.train.external_length)
        tokenizer = Artifact.open(material.tokenizer)
        self.tokenizer = PreTrainedTokenizerFast.from_pretrained(tokenizer.path("tokenizer"))
        vocab_size = vocab_size or material.task_tokens.details["vocab_size"]
        plain = build.make_config(preset.model, vocab_size, self.examples.texts.special)
        self.config = build.with_task(plain, self.examples.classes, "benchmark")
        train, finetune = preset.train, preset.finetune
        self.batch = {EXTERNAL: train.external_batch, INTERNAL: train.internal_batch, STAGE2: finetune.batch}[kind]
        texts = self.passages if kind == EXTERNAL else self.examples.texts
        rows = range(len(texts)) if kind == EXTERNAL else self.examples.rows("train")
        lengths = texts.lengths[list(rows)]
        self.told = (
            f"{material.told}: {lengths.mean():.0f} tokens a text on average, {lengths.mean() / texts.max_length:.0%} "
            f"of the {texts.max_length} that are padded to; batches of {self.batch}, dropout {preset.model.dropout:g}."
        )

    def ours(self, steps: int, change: Change = lambda work: None) -> Side:
        """The product's own loop, snapshots off; `change` may alter its work first."""
        from tlm.training.checkpoint import State
        from tlm.training.loop import Plan, fit

        settings, work = self.preset.finetune if self.kind == STAGE2 else self.preset.train, self.work()
        change(work)
        model = work.model if self.kind == STAGE2 else work.encoder
        state = State.fresh(model, settings, 100_000)

        def run(more: int) -> None:
            plan = Plan(settings, state.step + more, 0, self.preset.model.dropout, 0)
            fit(state, work, plan, Unsaved(), self.device)  # type: ignore[arg-type]
            finish(self.device)

        def go() -> Cost:
            run(self._uncounted)
            before = state.step
            with Stopwatch() as watch:
                run(steps)
            return watch.cost(float(state.curve.costs[before : state.step, 0].sum()))

        return go

    def flops_per_token(self, batches: int = 20) -> float:
        """Operations that a step needs for each of its tokens, padding left out."""
        work = self.work()
        costs = [work.costs(step, work.batch(step)) for step in range(batches)]
        return float(sum(flops for _, _, flops in costs) / sum(tokens for tokens, _, _ in costs))

    def times_the_operations(self, batches: int = 20) -> float:
        """The ratio of the matrix products for these texts at full length, with every logit, to our stage 1's."""
        ours, theirs = self.work(), self.work()
        full_length(theirs)
        every_logit(theirs)
        needed = taken = 0
        for step in range(batches):
            whole = theirs.batch(step)
            whole = replace(whole, lengths=np.full_like(whole.lengths, whole.ids.shape[1]))
            needed += ours.costs(step, ours.batch(step))[2]
            taken += theirs.costs(step, whole)[2]
        return float(taken / needed)

    def seconds_per_batch(self, batches: int = 20) -> float:
        """The time to make and mask a batch."""
        work = self.work()
        work.batch(0)
        started = time.perf_counter()
        for step in range(1, batches + 1):
            work.batch(step)
        return (time.perf_counter() - started) / batches

    def work(self) -> Any:
        """The product's work on these batches, with a fresh model."""
        from tlm.training.classification import Classification
        from tlm.training.joint import Joint
        from tlm.training.model import build

        model = build.build(self.config, seed=0).to(self.device)
        if self.kind == STAGE2:
            unscored = self.preset.finetune.model_copy(update={"steps": 100_000, "evaluations": 1})
            return Classification(model, self.examples, self.preset.model, unscored, "accuracy", 0)
        only = {"rho1": "inf" if self.kind == EXTERNAL else 0}
        preset = self.preset.model_copy(update={"train": self.preset.train.model_copy(update=only)})
        return Joint(model, self.examples, self.passages, preset, 0)

    def authors(self, steps: int) -> Side:
        """The loop in `research.benchmarks.reference.joint`."""
        from research.benchmarks.reference.joint import WORKERS, AuthorsLoop, loader

        model, workers = self._library_model(sparing=False), WORKERS if self._is_gpu else 0
        batches = loader(self._rows(padded=True), self.tokenizer, self.batch, self._mask_share(), workers)
        external, internal = (batches, None) if self.kind == EXTERNAL else (None, batches)
        loop = AuthorsLoop(model, external, internal, self.preset.train, self.device, self._precision())

        def go() -> Cost:
            loop.run(self._uncounted)
            finish(self.device)
            before = int(model.seen)
            with Stopwatch() as watch:
                loop.run(steps)
                finish(self.device)
            return watch.cost(int(model.seen) - before)

        return go

    def trainer(self, steps: int) -> Side:
        """`Trainer`, a fresh one each time; its first steps are not counted."""
        from research.benchmarks.reference.joint import collator
        from research.benchmarks.reference.trainer import AtSteps, trainer

        model, rows = self._library_model(sparing=True), self._rows(padded=False)
        batches = collator(self.tokenizer, self._mask_share(), 8 if self._is_gpu else None)
        clip = self.preset.finetune.clip if self.kind == STAGE2 else self.preset.train.clip
        settings, seeds = self.preset.train.model_copy(update={"clip": clip}), count()

        def go() -> Cost:
            watch, tokens = Stopwatch(), [0]

            def start() -> None:
                finish(self.device)
                tokens[0] = int(model.seen)
                watch.__enter__()

            def stop() -> None:
                finish(self.device)
                watch.__exit__(None, None, None)

            with tempfile.TemporaryDirectory() as folder:
                made = trainer(
                    model, rows, batches, settings, self.batch, steps + 1, AtSteps(1, start, stop), Path(folder),
                    self._precision() is not None, not self._is_gpu, next(seeds),
                )  # fmt: skip
                made.train()
            return watch.cost(int(model.seen) - tokens[0])

        return go

    @property
    def _is_gpu(self) -> bool:
        return bool(self.device.type == "cuda")

    @property
    def _uncounted(self) -> int:
        """Steps before the counted ones: one on a GPU, because `Trainer` empties the cache of memory before that."""
        return 1 if self._is_gpu else 0

    def _rows(self, padded: bool) -> Any:
        from research.benchmarks.reference.joint import external_rows, internal_rows

        if self.kind == EXTERNAL:
            return external_rows(self.passages, ENOUGH, padded)
        return internal_rows(self.examples, padded)

    def _mask_share(self) -> float:
        return 0.0 if self.kind == STAGE2 else self.preset.train.mask_share

    def _library_model(self, sparing: bool) -> Any:
        from research.benchmarks.reference.joint import JointModel

        return JointModel(self.config, float(self.preset.train.rho2), sparing=sparing).to(self.device)

    def _precision(self) -> Any:
        import torch

        return torch.bfloat16 if self.preset.train.precision == "bf16" else None


class Unsaved:
    """Stand in for `tlm.training.checkpoint.Snapshots`, and keep nothing."""

    def __init__(self) -> None:
        from tlm.artifacts.spending import Spending

        self.spending = Spending(())

    def resume(self, state: Any) -> None:
        """There is nothing to take up."""

    def due(self, step: int) -> bool:
        """Never."""
        return False

    def late(self) -> bool:
        """Never."""
        return False

    def wait(self) -> None:
        """There is nothing to wait for."""


def finish(device: Any) -> None:
    """Wait until the device has finished its work."""
    if device.type == "cuda":
        import torch

        torch.cuda.synchronize(device)


ROW = Row(
    name="training_cpu",
    stage="stages 1 and 2 on a CPU",
    against="the authors' way; Hugging Face Trainer",
    target="stage 1: pocket 5× (external) and 8× (task), mini 2.8×, BERT-base 1.8×",
    what="Optimizer steps with everything that belongs to them: building and masking batches, forward and backward "
    "pass, clipping where the side clips, the optimizer. All three train the same model on the same texts with "
    "the same batch size; the measure is tokens per CPU second, without padding, with one thread. The authors' "
    "way (`research/benchmarks/reference/joint.py`, written from the paper): texts padded to the full length, logits "
    "at every position (none in stage 2), the library's model and collator. `Trainer` has the settings of an "
    "experienced user (`research/benchmarks/reference/trainer.py`): texts of similar length share a batch, which is "
    "padded to its longest text; ModernBERT (pocket and mini) computes logits only where a token was masked, "
    "through its option `sparse_prediction`; the library's BERT (BERT-base) has no such option. The ratios "
    "grow with the share of padding, which depends on the texts; each line states it. Losses are equal on "
    "equal inputs (`tests/benchmarks/test_reference_training.py`).",
    run=run,
    packages=("torch", "transformers", "accelerate", "numpy"),
)
