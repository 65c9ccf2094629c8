"""Writing a ``metrics`` artifact: what `evaluate` and `baseline` have in common."""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tlm.artifacts.artifact import Artifact
from tlm.artifacts.produce import Draft
from tlm.evaluation.score.examples import Split
from tlm.evaluation.score.metrics import positive, scores

ROW_GROUP = 65536


@dataclass(frozen=True)
class Prediction:
    """What was predicted for a split: class ordinals or floats, shape [n]; probabilities [n, classes] or None."""

    split: Split
    predicted: NDArray[Any]
    probabilities: NDArray[np.float64] | None

    def scores(self, labels: list[str] | None) -> dict[str, Any]:
        """All scores, see `tlm.evaluation.score.metrics.scores`."""
        return scores(self.split.gold, self.predicted, self.probabilities, labels)

    def without_copies(self) -> "Prediction":
        """Only the examples whose texts train does not have."""
        rows = np.flatnonzero(~self.split.copied)
        chances = None if self.probabilities is None else self.probabilities[rows]
        return Prediction(self.split.take(rows), self.predicted[rows], chances)


def scored(task: Artifact) -> dict[str, str]:
    """The setting that decides the scores of a task with two classes: which of them is the positive one."""
    found = positive(task.details["labels"])
    return {"positive": found} if found else {}


def write_metrics(
    draft: Draft, task: Artifact, predictions: list[Prediction], identity: dict[str, Any], facts: dict[str, Any]
) -> None:
    """Fill `draft` with metrics.json and predictions.parquet.

    Where dev or test has texts that train has too, ``without_copies`` holds the scores of the others.

    Args:
        draft: The artifact in the making.
        task: The task that was predicted.
        predictions: One for each split.
        identity: arm, seed, stage and mlm_loss, as they go into the manifest's details.
        facts: More for metrics.json: cost, settings that were chosen.
    """
    details = task.details
    labels = details["labels"] if details["problem"] == "classification" else None
    splits = {p.split.name: p.scores(labels) for p in predictions}
    without_copies = {p.split.name: p.without_copies().scores(labels) for p in predictions if _some(p.split.copied)}
    summary = {"task": details["name"], "metric": details["metric"], **identity}
    for name, values in splits.items():
        summary[name] = values[details["metric"]]
    whole = {**summary, **facts, **scored(task), "problem": details["problem"], "labels": labels, "splits": splits}
    whole["without_copies"] = without_copies
    text = json.dumps(whole, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False)
    (draft.folder / "metrics.json").write_text(text + "\n", encoding="utf-8")
    table = pa.concat_tables(_table(prediction, labels) for prediction in predictions)
    pq.write_table(table, draft.folder / "predictions.parquet", compression="zstd", row_group_size=ROW_GROUP)
    draft.rows["predictions.parquet"] = table.num_rows
    draft.counts.update({name: values["n"] for name, values in splits.items()})
    draft.details.update(summary)


def _some(flags: NDArray[np.bool_]) -> bool:
    return bool(flags.any() and not flags.all())


def _table(prediction: Prediction, labels: list[str] | None) -> pa.Table:
    split, size = prediction.split, len(prediction.split.example)

    def values(array: NDArray[Any]) -> pa.Array:
        if labels is None:
            return pa.array(array, pa.float64())
        return pa.array([labels[index] for index in array], pa.string())

    chances = [None] * size if prediction.probabilities is None else list(prediction.probabilities)
    return pa.table(
        {
            "example": pa.array(split.example, pa.int64()),
            "split": pa.array([split.name] * size, pa.string()),
            "gold": values(split.gold),
            "predicted": values(prediction.predicted),
            "group": pa.array(split.group, pa.int64()),
            "copied": pa.array(split.copied, pa.bool_()),
            "probabilities": pa.array(chances, pa.list_(pa.float64())),
        }
    )
