"""Two tasks to train together, and runs of that which are killed half-way.

``python -m tests.toys_multitask FOLDER`` prints, as JSON, what came of them, as `tests.toys_training` does.
"""

import contextlib
import json
import signal
import sys
from pathlib import Path
from typing import Any

from research.multitask.train import train_multitask
from tests.toys import Row, make_task
from tests.toys_training import SMALL, die_in, in_child, passages, rows, task, tokenizer
from tlm.artifacts.artifact import Artifact
from tlm.cli.command import flat

HERE: dict[str, Any] = {"preset": "tiny", "device": "cpu"}


def other_task(root: Path, kind: str = "pairs", name: str = "other") -> str:
    """Another task than `task`: of two classes, of pairs or with a number to predict."""
    if kind == "regression":
        return make_task(root, rows(regression=True), "pearson", None, name)
    two: list[Row] = [(a, b, str(gold == "sea"), split) for a, b, gold, split in rows(train=30, pair=kind == "pairs")]
    return make_task(root, two, "accuracy", ["False", "True"], name)


def together(root: Path, tasks: list[str], *overrides: str, alone: bool = False, **settings: Any) -> Artifact:
    """Stage 1 for `tasks` with the tiny preset, 12 steps."""
    subset = "" if alone else passages(root, "subset")
    settings = {**HERE, "root": str(root), **settings}
    made = flat(train_multitask)(
        tasks, tokenizer=tokenizer(root, tasks[0]), subset=subset, overrides=[*SMALL, *overrides], **settings
    )
    return Artifact.open(made)


def killed_runs(folder: Path) -> dict[str, Any]:
    """Contents of an undisturbed run, and of runs that died at some step and were repeated."""

    def run(name: str, save_steps: int) -> str:
        root = folder / name
        changes = ("model.dropout=0.1", "train.rho1=1")
        return together(root, [task(root), other_task(root)], *changes, save_steps=save_steps, save_minutes=0.0).content

    found: dict[str, Any] = {"calm": in_child(lambda: run("calm", 0))}
    for name, step, by in (("killed", 8, signal.SIGKILL), ("stopped", 7, signal.SIGTERM)):

        def dying(name: str = name, step: int = step, by: signal.Signals = by) -> str:
            die_in("multitask", step, by, saved=True)
            return run(name, 3)

        code, _ = in_child(dying)
        snapshots = sorted(path.parent.name for path in (folder / name).glob("progress/*/*/manifest.json"))
        again = in_child(lambda name=name: run(name, 3))  # type: ignore[misc]
        found[name] = {"code": code, "snapshots": snapshots, "again": again,
                       "left": len(list((folder / name).glob("progress/**/*")))}  # fmt: skip
    return found


if __name__ == "__main__":
    import tlm.training.joint  # noqa: F401  # imported once, before the forks

    with contextlib.redirect_stdout(sys.stderr):
        results = killed_runs(Path(sys.argv[1]))
    print(json.dumps(results))
