"""Compare the losses of stage 1 under two roots, one of which trained in several pods.

``python -m k8s.check.losses compare ROOT OTHER``: the same losses at each step, up to rounding; else exits with 1.
``python -m k8s.check.losses snapshot ROOT``: print the key of the training that has saved its state there.
"""

import math
import sys
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from tlm.artifacts.artifact import MANIFEST, Artifact
from tlm.artifacts.stores import open_store

LOSSES = ("mlm", "ce")
# That of tests/training/test_together.py. Several processes add up the same numbers in another order, so the last bits
# of a sum differ, and each step builds on the one before: differences grow without end. On toy data they stay far below
# 0.0001 for 40 steps; after 400 steps of the preset pocket, they were 3 % of the masked-LM loss.
TOLERANCE = 1e-4

Curve = dict[str, list[Any]]


class Difference(NamedTuple):
    """The largest difference of two curves, relative to the first, and where it is."""

    size: float
    step: int
    loss: str

    def __str__(self) -> str:
        return f"largest relative difference {self.size:.1e} ({self.loss} at step {self.step}), tolerance {TOLERANCE:g}"


def checkpoint(root: str) -> Artifact:
    """The one checkpoint under a root. Raises ValueError if there is none, or another one."""
    end = f"/{MANIFEST}"
    found = [file.name.removesuffix(end) for file in open_store(root).list("checkpoint/") if file.name.endswith(end)]
    if len(found) != 1:
        raise ValueError(f"{root} has {len(found)} checkpoints; expected one")
    return Artifact.open(f"{root}/{found[0]}", "checkpoint")


def snapshot(root: str) -> str:
    """The key of an unfinished training that has saved its state; "" if there is none."""
    saved = (file.name.split("/") for file in open_store(root).list("progress/") if file.name.endswith(f"/{MANIFEST}"))
    return next((key for _, key, *_ in saved), "")


def largest(first: Curve, second: Curve) -> Difference:
    """Where the losses of two trainings differ most. Raises ValueError if the steps are not the same."""
    for column in ("step", "kind", "tokens"):
        if first[column] != second[column]:
            raise ValueError(f"the column '{column}' of the two curves differs: these are not the same steps")
    if not first["step"]:
        raise ValueError("the curves have no steps")
    found = [
        Difference(_relative(one, other), step, loss)
        for loss in LOSSES
        for step, one, other in zip(first["step"], first[loss], second[loss], strict=True)
    ]
    return max(found)


def _relative(one: float | None, other: float | None) -> float:
    if one is None or other is None:  # a step without this loss
        return 0.0 if one is other else math.inf
    if not (math.isfinite(one) and math.isfinite(other)):
        return 0.0 if math.isnan(one) and math.isnan(other) else math.inf
    return abs(one - other) / abs(one) if one else math.inf if other else 0.0


def compare(root: str, other: str) -> list[str]:
    """What was seen of the two trainings, and last how they differ. Raises ValueError if they differ too much."""
    made = [checkpoint(root), checkpoint(other)]
    lines = [f"{one.uri}: {one.run()['processes']} processes, {one.run()['seconds']} s" for one in made]
    first, second = (one.manifest.key for one in made)
    if first != second:
        raise ValueError(f"the keys are {first} and {second}: these are not the same trainings")
    if made[1].run()["processes"] < 2:
        raise ValueError(f"{made[1].uri} was trained in one process: there is nothing to compare")
    curves = [pq.read_table(one.path("curve.parquet")).to_pydict() for one in made]
    difference = largest(*curves)
    if difference.size > TOLERANCE:
        raise ValueError(str(difference))
    return [*lines, f"{len(curves[0]['step'])} steps: {difference}"]


def main() -> int:
    """Do what the arguments say."""
    what, *roots = sys.argv[1:]
    if what == "snapshot":
        key = snapshot(*roots)
        print(key)
        return not key
    try:
        print("\n".join(compare(*roots)))
    except ValueError as error:
        print(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
