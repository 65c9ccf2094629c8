"""The members of a mixture: their models, predictions and costs, and the parts that the seeds of an arm form."""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tlm.artifacts.artifact import Artifact


@dataclass(frozen=True)
class Part:
    """The models of one arm, which are averaged equally.

    Attributes:
        arm: Name of the arm.
        members: The metrics of its models.
    """

    arm: str
    members: list[Artifact]

    def predictions(self, split: str) -> NDArray[np.float64]:
        """Mean prediction for the examples of a split: probabilities [n, classes], or numbers [n, 1]."""
        return np.mean([_predictions(member, split) for member in self.members], axis=0)  # type: ignore[no-any-return]


def parts_of(metrics: list[Artifact]) -> list[Part]:
    """The parts of a mixture, in the order in which their arms come first."""
    arms: dict[str, list[Artifact]] = {}
    for one in metrics:
        arms.setdefault(part_name(one), []).append(one)
    return [Part(arm, members) for arm, members in arms.items()]


def arm_of(parts: list[Part]) -> str:
    """The name of a mixture, such as ``bm25 × 5 + baseline``."""
    return " + ".join(f"{part.arm} × {len(part.members)}" if len(part.members) > 1 else part.arm for part in parts)


def part_name(metrics: Artifact) -> str:
    """The arm that metrics are of; a model without stage 2 is a part of its own."""
    arm, stage = str(metrics.details["arm"]), metrics.details.get("stage")
    return f"{arm} (stage 1)" if stage == "stage 1" else arm


def model_of(metrics: Artifact) -> Artifact | None:
    """The model that metrics are of; None if they were imported."""
    return next((metrics.input(name) for name in ("model", "checkpoint") if name in metrics.manifest.inputs), None)


def costs_of(parts: list[Part]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What was counted in each stage of each member, and the facts of its run, by arm, seed and stage.

    Members of one arm and seed are numbered where they differ; a stage that they share counts once.
    """
    counted: dict[str, Any] = {}
    facts: dict[str, Any] = {}
    made: dict[str, str] = {}
    for part in parts:
        for member in part.members:
            values = json.loads(member.path("metrics.json").read_text(encoding="utf-8"))
            seed = f" {values['seed']}" if len(part.members) > 1 else ""
            runs = member.run().get("stages", {})
            for stage, cost in values["cost"].items():
                name, number, key = f"{part.arm}{seed}, {stage}", 1, _key(member, stage)
                while made.setdefault(name, key) != key:
                    number += 1
                    name = f"{part.arm}{seed}, {stage} ({number})"
                counted[name], facts[name] = cost, runs.get(stage, {})
    return counted, facts


def _key(metrics: Artifact, stage: str) -> str:
    """What was made in a stage: the key of the checkpoint, or of the model."""
    model = model_of(metrics)
    assert model is not None, "imported predictions have no stages"
    start = model.manifest.inputs.get("checkpoint")
    return start.key if start is not None and stage == "stage 1" else model.manifest.key


def _predictions(metrics: Artifact, split: str) -> NDArray[np.float64]:
    table = pq.ParquetFile(metrics.path("predictions.parquet")).read(["split", "predicted", "probabilities"])
    rows = table.filter(pc.equal(table["split"], split))
    if pa.types.is_floating(rows["predicted"].type):
        return rows["predicted"].to_numpy()[:, np.newaxis]  # type: ignore[no-any-return]
    classes = len(metrics.input("task").details["labels"])
    return np.array(rows["probabilities"].to_pylist(), np.float64).reshape(-1, classes)  # no rows: [0, classes]
