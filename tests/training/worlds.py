"""Runs in one process and in two, some of them disturbed.

``python -m tests.training.worlds FOLDER`` prints, as JSON, what came of them. Each process is a fork of one that has
the imports done and nothing computed yet; torchrun's part is in test_launch.py.
"""

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tests.servers.servers import free_port
from tests.toys_training import checkpoint, die_in, in_child, model, task
from tlm.artifacts.artifact import Artifact
from tlm.errors import InputError, TlmError
from tlm.training.distributed.group import ProcessGroup

STEPS = 20
LOOKED_AT, SAVE_SECONDS = 100, 4.0
TICKS = {"equal clocks": (0.1, 0.1), "the other's is fast": (0.1, 0.5), "the other's is slow": (0.5, 0.1)}
SAME = (f"train.steps={STEPS}", "finetune.dropout=0", "finetune.steps=24")
PLANS = {
    "mixed": (*SAME, "train.rho1=2"),
    "external only": (*SAME, "train.rho1=inf"),
    "fewer rows than processes": (*SAME, "train.rho1=2", "train.internal_batch=1", "finetune.batch=1"),
    "accumulation": (*SAME, "train.rho1=1", "train.accumulation=3", "train.internal_loss=sum"),
    "head in all steps": (*SAME, "train.rho1=2", "train.head_steps=all", "train.internal_batch=1", "finetune.batch=1"),
}
PORTS: list[int] = []  # in a process of a world: one for each stage, so that none meets the other's listener
DROPOUT = (*SAME, "train.rho1=2", "train.head_steps=all", "model.dropout=0.1", "finetune.dropout=0.1")


def in_world(size: int, work: Callable[[int], Any]) -> list[dict[str, Any]]:
    """How each of `size` processes that train together ended: exit code, sentence or what `work(rank)` returned."""
    ports, pipes, children = [free_port(), free_port()], [], []
    for rank in range(size):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1")
            PORTS.extend(ports)
            ended: dict[str, Any] = {"code": 0}
            try:
                ended["value"] = work(rank)
            except TlmError as error:
                ended = {"code": error.exit_code, "sentence": str(error), "kind": type(error).__name__}
            with os.fdopen(writing, "w") as pipe:
                json.dump(ended, pipe)
            os._exit(ended["code"])
        os.close(writing)
        pipes.append(reading)
        children.append(child)
    found = []
    for child, pipe in zip(children, pipes, strict=True):
        with os.fdopen(pipe) as text:
            said = text.read()
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        found.append(json.loads(said) if said else {"code": code})
    return found


def both_stages(root: Path, *overrides: str, save_steps: int = 0) -> list[str]:
    """URIs of checkpoint and model."""
    examples = task(root)
    os.environ["MASTER_PORT"] = str(PORTS[0] if PORTS else 0)
    start = checkpoint(root, examples, *overrides, save_steps=save_steps, save_minutes=0.0)
    os.environ["MASTER_PORT"] = str(PORTS[1] if PORTS else 0)
    return [start.uri, model(root, start, examples, *overrides, save_steps=save_steps, save_minutes=0.0).uri]


def described(uris: list[str]) -> list[dict[str, Any]]:
    """What tests look at."""
    found = []
    for uri in uris:
        made = Artifact.open(uri)
        curve = pq.read_table(made.path("curve.parquet")).to_pydict()
        found.append({"uri": uri, "content": made.content, "details": made.details, "run": made.run(), "curve": curve})
    return found


def compared(root: Path, overrides: tuple[str, ...]) -> dict[str, Any]:
    """The same training in one process and in two."""
    _, alone = in_child(lambda: described(both_stages(root / "one", *overrides)))
    pair = in_world(2, lambda _: described(both_stages(root / "two", *overrides)))
    return {"one": alone, "two": [ended.get("value", ended) for ended in pair]}


def fail_at(step: int) -> None:
    """Have stage 1 in this process raise when it makes the batch of `step`."""
    from tlm.training import joint

    batch = joint.Joint.batch

    def batch_or_error(self: Any, at: int) -> Any:
        if at == step:
            raise InputError("this process has had enough; let it rest")
        return batch(self, at)

    joint.Joint.batch = batch_or_error  # type: ignore[method-assign]


def disturbed(root: Path, disturb: Callable[[int], None], *overrides: str) -> dict[str, Any]:
    """Two processes that `disturb` may stop on their way, and then two undisturbed ones."""

    def work(rank: int) -> Any:
        disturb(rank)
        return both_stages(root, *overrides, save_steps=3)

    started = time.monotonic()
    ended = in_world(2, work)
    seconds = time.monotonic() - started
    snapshots = sorted(path.parent.name for path in root.glob("progress/*/*/manifest.json"))
    again = in_world(2, lambda _: [made["content"] for made in described(both_stages(root, *overrides, save_steps=3))])
    left = len(list(root.glob("progress/**/*")))
    return {"ended": ended, "seconds": seconds, "snapshots": snapshots, "again": again, "left": left}


def looks(root: Path, ticks: tuple[float, float]) -> list[dict[str, Any]]:
    """How often each process waited for its losses, and the checkpoint; a batch takes `ticks[rank]` of its seconds."""
    from tlm.training import joint
    from tlm.training.checkpoint import Curve

    counted, now, batch, check = [0], [0.0], joint.Joint.batch, Curve.check

    def batch_in_time(self: Any, step: int) -> Any:
        now[0] += ticks[ProcessGroup.current().rank]
        return batch(self, step)

    def check_and_count(self: Any, start: int, stop: int) -> float:
        counted[0] += 1
        return check(self, start, stop)

    def work(rank: int) -> Any:
        joint.Joint.batch = batch_in_time  # type: ignore[method-assign]
        Curve.check = check_and_count  # type: ignore[method-assign]
        time.monotonic = lambda: now[0]
        os.environ["MASTER_PORT"] = str(PORTS[0])
        examples = task(root)
        made = checkpoint(root, examples, *SAME, f"train.steps={LOOKED_AT}", save_minutes=SAVE_SECONDS / 60)
        return {"looks": counted[0], "content": made.content}

    return [ended.get("value", ended) for ended in in_world(2, work)]


def dropout_seeds(root: Path) -> list[dict[str, Any]]:
    """Contents, and the seed of each process's last dropout."""
    import torch

    return in_world(2, lambda _: [both_contents(root), torch.initial_seed()])


def both_contents(root: Path) -> list[str]:
    return [made["content"] for made in described(both_stages(root, *DROPOUT))]


def all_runs(folder: Path) -> dict[str, Any]:
    def only(rank: int, act: Callable[[], None]) -> Callable[[int], None]:
        return lambda here: act() if here == rank else None

    kill, term = signal.SIGKILL, signal.SIGTERM
    return {
        "compared": {name: compared(folder / name, overrides) for name, overrides in PLANS.items()},
        "dropout": dropout_seeds(folder / "dropout"),
        "killed": disturbed(folder / "killed", only(1, lambda: die_in("train", 8, kill, saved=True)), *DROPOUT),
        "killed in stage 2": disturbed(
            folder / "killed 2", only(0, lambda: die_in("finetune", 8, kill, saved=True)), *DROPOUT
        ),
        "stopped": disturbed(folder / "stopped", only(1, lambda: die_in("train", 4, term)), *DROPOUT),
        "looks": {name: looks(folder / f"looks {name}", ticks) for name, ticks in TICKS.items()},
        "failed": disturbed(folder / "failed", only(1, lambda: fail_at(8)), *DROPOUT),
    }


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):
        results = all_runs(Path(sys.argv[1]))
    print(json.dumps(results))
