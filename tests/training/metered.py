"""Runs on stand-in meters and clocks: a batch takes a second, and so many joules on each machine.

``python -m tests.training.metered FOLDER`` prints, as JSON, what the run.json of both stages says of each case. Each
process is a fork of one that has the imports done and nothing computed yet.
"""

import contextlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from tests.toys_training import die_in, in_child
from tests.training.worlds import SAME, both_stages, described, in_world


class Attempt(NamedTuple):
    """One of the attempts at a case.

    Attributes:
        joules: What a batch takes, for each process; None where there is no meter.
        end: Stage, step and signal that end the last process; None: it lives to the end.
        forgotten: Whether what the snapshots say of it is lost.
    """

    joules: tuple[float | None, ...]
    end: tuple[str, int, signal.Signals] | None = None
    forgotten: bool = False


def ended(joules: tuple[float | None, ...], by: signal.Signals = signal.SIGKILL) -> list[Attempt]:
    """Each stage ended twice on its way, then undisturbed."""
    ends = [("train", 8), ("train", 14), ("finetune", 8), ("finetune", 17)]
    return [*(Attempt(joules, (*end, by)) for end in ends), Attempt(joules)]


KILL_BOTH = [("train", 8, signal.SIGKILL), ("finetune", 8, signal.SIGKILL)]
CASES = {
    "undisturbed": [Attempt((10,))],
    "killed": ended((10,)),
    "stopped": ended((10,), signal.SIGTERM),
    "two nodes": [Attempt((10, 100))],
    "two nodes, killed": ended((10, 100)),
    "two nodes, stopped": ended((10, 100), signal.SIGTERM),
    "one machine": ended((10, 100)),
    "a node without a meter": ended((10, None)),
    "no meters": ended((None,)),
    "an attempt without a meter": [
        Attempt((None,), KILL_BOTH[0]),
        Attempt((10,), KILL_BOTH[1]),
        Attempt((None,)),
    ],  # stage 1 is not measured at first, stage 2 is measured at first
    "a forgotten attempt": [*(Attempt((10,), end, forgotten=True) for end in KILL_BOTH), Attempt((10,))],
}


def measure(joules: float | None) -> None:
    """Have each batch in this process take a second, and so many joules of its machine."""
    from tlm.artifacts import spending
    from tlm.training import classification, joint

    batches = [0]

    def counted(batch: Any) -> Any:
        def batch_and_count(self: Any, step: int) -> Any:
            batches[0] += 1
            return batch(self, step)

        return batch_and_count

    for work in (joint.Joint, classification.Classification):
        work.batch = counted(work.batch)  # type: ignore[method-assign]
    time.monotonic = time.process_time = lambda: float(batches[0])

    def counters() -> list[spending.Counter]:
        return [] if joules is None else [spending.Counter("cpu_joules", lambda: batches[0] * joules)]

    spending.rapl = counters


def run(root: Path, attempt: Attempt, nodes: bool) -> list[dict[str, Any]]:
    """How each process of an attempt ended; with `nodes` each is on a machine of its own."""

    def work(rank: int) -> Any:
        measure(attempt.joules[rank])
        if nodes:
            os.environ["LOCAL_RANK"] = "0"
        if attempt.end is not None and rank == len(attempt.joules) - 1:
            die_in(*attempt.end, saved=True)
        return [
            {"content": made["content"], **made["run"]} for made in described(both_stages(root, *SAME, save_steps=3))
        ]

    if len(attempt.joules) > 1:
        return in_world(len(attempt.joules), work)
    code, value = in_child(lambda: work(0))
    return [{"code": code, "value": value}]


def case(root: Path, name: str) -> dict[str, Any]:
    """Exit codes of the last process of each attempt, and run.json of both stages in the end."""
    codes = []
    for attempt in CASES[name]:
        *_, last = found = run(root, attempt, nodes="node" in name)
        codes.append(last.get("code", 0))
        if attempt.forgotten:
            for path in root.glob("progress/*/*/run.json"):
                path.unlink()
    return {"codes": codes, "runs": found[0].get("value")}


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):
        results = {name: case(Path(sys.argv[1], name.replace(" ", "-")), name) for name in CASES}
    print(json.dumps(results))
