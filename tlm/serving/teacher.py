"""The answers of a teacher to the texts that a student learns from: made once for all students, resumed if killed."""

import time
from collections.abc import Iterator
from contextlib import closing
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tlm.artifacts.artifact import Artifact
from tlm.artifacts.produce import Draft, Progress, Recipe, produce
from tlm.artifacts.stores.local import scratch_folder
from tlm.data.passages import passages
from tlm.data.tasks.examples import examples
from tlm.data.tasks.labelled import UNLABELLED
from tlm.evaluation.predict.predictor import open_predictor
from tlm.progress import Meter, hidden, say

VERSION = 1
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
    recipe = Recipe(KIND, KIND, VERSION, {}, {"teacher": teacher, "data": data})
    uri = produce(recipe, root, _write, recipe, device, root)
    Progress(recipe.key, root, recipe.inputs).clear()
    return Artifact.open(uri, KIND)


def answers(labels: Artifact) -> NDArray[np.float32]:
    """The answers, memory-mapped: probabilities [rows, classes], or numbers [rows]; nan where none was asked for."""
    found: NDArray[np.float32] = np.load(labels.path(FILE), mmap_mode="r", allow_pickle=False)
    return found if labels.details["classes"] else found[:, 0]


def _write(draft: Draft, recipe: Recipe, device: str, root: str | None) -> None:
    teacher, data = recipe.inputs["teacher"], recipe.inputs["data"]
    predictor, draft.run["device"] = open_predictor(teacher.path("model"), device)
    progress = Progress(recipe.key, root, recipe.inputs)
    rows = examples(data).num_rows if data.manifest.kind == "task" else int(data.details["passages"])
    classes = len(predictor.labels or ())
    found = np.full((rows, classes or 1), np.nan, np.float32)
    done = _resumed(progress, found)
    saved = time.monotonic()
    with closing(Meter(f"asking the teacher about the {data.manifest.kind}", unit="texts")) as meter:
        for first, texts, pairs in (part for part in _asked(data) if part[0] >= done):
            with hidden():
                found[first : first + len(texts)] = predictor.predict(texts, pairs)
            meter.advance(len(texts))
            if time.monotonic() > saved + SAVE_SECONDS:
                progress.save(first + len(texts), lambda folder: np.save(folder / FILE, found))
                saved = time.monotonic()
    np.save(draft.folder / FILE, found)
    draft.rows[FILE] = rows
    draft.counts = {"texts": int(np.isfinite(found[:, 0]).sum())}
    draft.details = {"of": data.manifest.kind, "classes": predictor.labels or []}


def _resumed(progress: Progress, found: NDArray[np.float32]) -> int:
    """Take the answers of an earlier attempt; returns the row to go on at."""
    with scratch_folder(progress.store.scratch(), "resume") as folder:
        done = progress.latest(folder)
        if done is None:
            return 0
        found[:] = np.load(folder / FILE, allow_pickle=False)
    say(f"goes on after text {done:,}")
    return done


def _asked(data: Artifact) -> Iterator[Texts]:
    """The texts to ask about, in chunks that do not depend on where an earlier attempt ended."""
    if data.manifest.kind == "task":
        yield from _of_task(data)
        return
    first = 0
    for batch in passages(data, ["text"]):
        texts = batch.column("text").to_pylist()
        for start in range(0, len(texts), CHUNK):
            yield first + start, texts[start : start + CHUNK], None
        first += len(texts)


def _of_task(task: Artifact) -> Iterator[Texts]:
    table = examples(task)
    splits = np.array(table["split"].to_pylist(), dtype=object)
    texts, seconds = table["text"].to_pylist(), table["text_pair"].to_pylist()
    for split in ("train", UNLABELLED):
        rows = np.flatnonzero(splits == split)  # one after the other, as examples are ordered by split
        for start in range(0, len(rows), CHUNK):
            part = slice(rows[start], rows[min(start + CHUNK, len(rows)) - 1] + 1)
            pairs = [pair or "" for pair in seconds[part]] if task.details["pair"] else None
            yield int(part.start), texts[part], pairs
