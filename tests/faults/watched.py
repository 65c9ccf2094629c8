"""What a training step does, written down while it does it: which steps it begins, and its last snapshot."""

import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tests.faults.child import nothing
from tests.toys_training import end_of_saving
from tlm.artifacts.artifact import Artifact
from tlm.artifacts.produce import Progress

STAGES = ("train", "finetune", "train-multitask", "distill")
BEGUN, LAST = "begun", "last"


def watcher(step: str, folder: Path, killed_at: int = -1) -> Callable[[], None]:
    """What prepares a child for `step`: if it trains, it appends to files in `folder`, and dies when it is that far."""
    return partial(_watch, step, folder, killed_at) if step in STAGES else nothing


def facts(uri: str, folder: Path) -> dict[str, Any]:
    """The content of the last snapshot (weights, moments of the optimizer, curve, best weights); the curve in hex."""
    curve = Artifact.open(uri).path("curve.parquet")
    floats = pq.read_table(curve).to_pylist()
    exact = [
        {name: value.hex() if isinstance(value, float) else value for name, value in row.items()} for row in floats
    ]
    return {"snapshot": (folder / LAST).read_text(), "curve": exact}


def processes(folder: Path) -> list[list[int]]:
    """The steps that each process began, one process after the other."""
    text = (folder / BEGUN).read_text() if (folder / BEGUN).exists() else ""
    return [[int(step) for step in part.split()] for part in text.split("process\n")[1:]]


def lost(folder: Path) -> int:
    """The most steps that a process had finished and a later one did again."""
    done, most = 0, 0
    for begun in processes(folder):
        if begun:
            most = max(most, done - begun[0])
            done = begun[-1]  # the step in progress is not finished
    return most


def _watch(step: str, folder: Path, killed_at: int) -> None:
    from tlm.serving import student
    from tlm.training import classification, joint

    folder.mkdir(parents=True, exist_ok=True)
    log = os.open(folder / BEGUN, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.write(log, b"process\n")
    work: Any = {
        "train": joint.Joint,
        "finetune": classification.Classification,
        "train-multitask": joint.Joint,
        "distill": student.Distillation,
    }[step]
    batch, clear, wait = work.batch, Progress.clear, end_of_saving()

    def batch_and_say(self: Any, at: int) -> Any:
        os.write(log, b"%d\n" % at)
        if at == killed_at:
            wait()
            os.kill(os.getpid(), signal.SIGKILL)
        return batch(self, at)

    def clear_and_say(self: Progress) -> None:
        names = self._steps()
        last = Artifact.find(self.store, self.kind, names[-1]) if names else None
        if last is not None and not (folder / LAST).exists():
            (folder / LAST).write_text(f"{names[-1]} {last.content}")
        clear(self)

    work.batch = batch_and_say
    Progress.clear = clear_and_say  # type: ignore[method-assign]
