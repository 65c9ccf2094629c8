"""The step `distill`: a small model learns from the answers of a better one, made once for all students, resumable."""

import time
from collections.abc import Iterator
from contextlib import closing
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tlm.artifacts.artifact import Artifact, home
from tlm.artifacts.produce import Draft, Progress, Recipe, produce
from tlm.artifacts.stores.local import scratch_folder
from tlm.data.passages import passages
from tlm.data.tasks.examples import examples, one_label_each, read_splits
from tlm.data.tasks.labelled import UNLABELLED
from tlm.errors import InputError
from tlm.evaluation.predict.predictor import open_predictor
from tlm.evaluation.score.evaluate import check_classes
from tlm.evaluation.score.mix import STUDENT
from tlm.progress import Meter, hidden, say
from tlm.retrieval.subset.protected import check_protected, check_trained
from tlm.serving.export_onnx import trained_model
from tlm.settings import presets
from tlm.settings.options import Compute, Range
from tlm.training.distributed.launch import train_together
from tlm.training.input.tokenize import tokenize, tokens_for

VERSION, OF_LABELS = 5, 1


def distill(
    teacher: str,
    checkpoint: str,
    task: str,
    *,
    subset: str = "",
    preset: str,
    overrides: list[str] = (),  # type: ignore[assignment]
    temperature: float = 2.0,
    seed: int = -1,
    compute: Compute = Compute(),
    root: str | None = None,
) -> str:
    """Train a small encoder on the answers of a teacher: a mixture, a larger encoder, a fine-tuned published model.

    The student begins with a checkpoint of stage 1, usually of a smaller preset. It learns the teacher's
    probabilities for the training texts and, with a subset, for the passages in it: rho1 batches of them for each
    batch of the task. The weights that are best on dev are kept. Repeat the command to continue after an interruption.

    Args:
        teacher: URI of the teacher, or of its metrics.
        checkpoint: URI of the student's checkpoint of stage 1.
        task: URI of the task.
        subset: URI of the subset whose passages the teacher is asked about, too; empty for the task alone.
        preset: Named settings, those of stage 2 (finetune) and train.rho1; `tlm show` lists them.
        overrides: A setting to change, such as finetune.epochs=12; may be repeated.
        temperature: Above 1, the teacher's probabilities become more equal, so that unlikely classes count for more.
        seed: For the fresh head, order and dropout; -1: that of the checkpoint.
        compute: Where to train, and how often to save the state.
        root: Store to write to, which holds all inputs; by default TLM_ROOT, else the store of the inputs.
    """
    arguments = dict(locals())
    model, start = trained_model(teacher), Artifact.open(checkpoint, "checkpoint")
    labelled = Artifact.open(task, "task")
    one_label_each(labelled, "distill")
    retrieved = Artifact.open(subset, "subset") if subset else None
    check_trained(labelled, model, start)
    if retrieved:
        check_protected(retrieved, labelled)
    resolved = presets.resolve(preset, overrides)
    rho1, stage2 = resolved.train.rho1, resolved.finetune
    _check(model, labelled, retrieved, rho1, temperature)
    Range("-1 or more", -1).check("seed", seed)
    root = home(root, [one for one in (model, start, labelled, retrieved) if one]).root
    tokens = tokens_for(start, labelled, root)
    inputs = {"teacher": model, "checkpoint": start, "task": labelled, "task_tokens": tokens}
    inputs["task_answers"] = soft_labels(model, labelled, compute.place, root)
    if retrieved:
        inputs["subset_tokens"] = Artifact.open(tokenize(retrieved.uri, tokens.input("tokenizer").uri, root=root))
        inputs["subset_answers"] = soft_labels(model, retrieved, compute.place, root)
    settings = {"arm": STUDENT, "seed": start.details["seed"] if seed < 0 else seed, "teacher": model.details["arm"]}
    settings |= {"temperature": temperature, "rho1": rho1, "finetune": stage2.for_key()}
    recipe = Recipe("model", "distill", VERSION, settings, inputs)

    def write(draft: Draft) -> None:
        from tlm.serving.student import teach

        given = [answers(inputs[name]) for name in ("subset_answers", "task_answers") if name in inputs]
        teach(draft, recipe, given, stage2, compute, root)
        draft.run |= presets.named(preset, overrides)

    return train_together(recipe, root, write, distill, arguments, stage2.batch)


def _check(teacher: Artifact, task: Artifact, subset: Artifact | None, rho1: int | str, temperature: float) -> None:
    """Raise InputError unless this teacher can be asked about these texts."""
    check_classes(teacher, task)
    Range("a number above 0, at most 100", above=0, most=100).check("temperature", temperature)
    if rho1 == "inf":
        raise InputError("train.rho1 is inf; expected the number of batches of passages for each batch of the task")
    if subset is not None and task.details["pair"]:
        advice = "leave out --subset, or give the task pairs without labels (load-task --unlabelled)"
        raise InputError(f"{task.uri} has pairs of texts, and a passage is one text; {advice}")


KIND: Final = "soft-labels"
FILE = "answers.npy"
CHUNK = 1024  # texts between two looks at the clock
SAVE_SECONDS = 300.0

Texts = tuple[int, list[str], list[str] | None]  # the first row, its text and those after it, second texts of pairs


def soft_labels(teacher: Artifact, data: Artifact, device: str, root: str | None) -> Artifact:
    """Find or make a teacher's answers to the texts of a task or a subset.

    Of a task, the teacher is asked only about train and the texts without labels.

    Args:
        teacher: A model of the task.
        data: The task, or a subset.
        device: Where the teacher computes.
        root: Store to write to.
    """
    recipe = Recipe(KIND, KIND, OF_LABELS, {}, {"teacher": teacher, "data": data})
    progress = Progress(recipe.key, root, recipe.inputs)
    uri = produce(recipe, root, _write, recipe, device, progress)
    progress.clear()
    return Artifact.open(uri, KIND)


def answers(labels: Artifact) -> NDArray[np.float32]:
    """The answers, memory-mapped: probabilities [rows, classes], or numbers [rows]; nan where none was asked for."""
    found: NDArray[np.float32] = np.load(labels.path(FILE), mmap_mode="r", allow_pickle=False)
    return found if labels.details["classes"] else found[:, 0]


def _write(draft: Draft, recipe: Recipe, device: str, progress: Progress) -> None:
    teacher, data = recipe.inputs["teacher"], recipe.inputs["data"]
    predictor, draft.run["device"] = open_predictor(teacher.path("model"), device)
    rows = examples(data).num_rows if data.manifest.kind == "task" else int(data.details["passages"])
    predicted = np.full((rows, len(predictor.labels or [""])), np.nan, np.float32)
    done = _resumed(progress, predicted)
    saved = time.monotonic()
    with closing(Meter(f"asking the teacher about the {data.manifest.kind}", rows, "texts")) as meter:
        for first, texts, pairs in _asked(data, done):
            with hidden():
                predicted[first : first + len(texts)] = predictor.predict(texts, pairs)
            meter.advance(first + len(texts) - meter.done)  # to this row: dev and test texts are passed over
            if time.monotonic() > saved + SAVE_SECONDS:
                progress.save(first + len(texts), lambda folder: np.save(folder / FILE, predicted))
                saved = time.monotonic()
    np.save(draft.folder / FILE, predicted)
    draft.rows[FILE] = rows
    draft.counts = {"texts": int(np.isfinite(predicted[:, 0]).sum())}
    draft.details = {"of": data.manifest.kind, "classes": predictor.labels or []}


def _resumed(progress: Progress, predicted: NDArray[np.float32]) -> int:
    """Fill `predicted` with the answers of an earlier attempt; returns the row to go on at."""
    with scratch_folder(progress.store.scratch(), "resume") as folder:
        done = progress.latest(folder)
        if done is None:
            return 0
        predicted[:] = np.load(folder / FILE, allow_pickle=False)
    say(f"resuming after text {done:,}")
    return done


def _asked(data: Artifact, done: int) -> Iterator[Texts]:
    """The texts to ask about, from row `done` on; in chunks that do not depend on where an earlier attempt ended."""
    for first, texts, pairs in _of_task(data) if data.manifest.kind == "task" else _of_subset(data):
        for start in range(0, len(texts), CHUNK):
            part = slice(start, start + CHUNK)
            if first + start >= done:
                yield first + start, texts[part], pairs and pairs[part]


def _of_subset(subset: Artifact) -> Iterator[Texts]:
    first = 0
    for batch in passages(subset, ["text"]):
        yield first, batch.column("text").to_pylist(), None
        first += len(batch)


def _of_task(task: Artifact) -> Iterator[Texts]:
    for split in read_splits(task, "train", UNLABELLED).values():
        if split.texts:  # one after the other, as examples are ordered by split
            yield int(split.example[0]), split.texts, split.pairs
