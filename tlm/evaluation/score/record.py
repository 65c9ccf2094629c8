"""Write a ``metrics`` artifact, for `evaluate` and `baseline`."""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tlm.artifacts.artifact import Artifact
from tlm.artifacts.produce import Draft
from tlm.data.tasks.arrays import classes_of
from tlm.data.tasks.split import Split
from tlm.evaluation.score.metrics import positive, scores

ROW_GROUP = 65536


@dataclass(frozen=True)
class Prediction:
    """Predictions for a split.

    Attributes:
        split: The examples.
        predicted: Class ordinals, or floats for regression; shape [n].
        probabilities: Of every class, shape [n, classes]; None for regression.
    """

    split: Split
    predicted: NDArray[Any]
    probabilities: NDArray[np.float64] | None

    @classmethod
    def of(cls, split: Split, values: NDArray[np.float64]) -> "Prediction":
        """From probabilities, shape [n, classes], or numbers, shape [n, 1]: the likeliest class, or the number."""
        return cls(split, values[:, 0], None) if values.shape[1] == 1 else cls(split, values.argmax(axis=1), values)

    def scores(self, labels: list[str] | None, *, without_copies: bool = False) -> dict[str, Any]:
        """All scores of the predictions, or of those for examples whose text is not also in train."""
        rows = ~self.split.copied if without_copies else slice(None)
        chances = None if self.probabilities is None else self.probabilities[rows]
        return scores(self.split.gold[rows], self.predicted[rows], chances, labels)


def scored(task: Artifact) -> dict[str, str]:
    """The setting of a step that scores a task: which of two classes is the positive one."""
    found = positive(task.details["labels"])
    return {"positive": found} if found else {}


def write_metrics(
    draft: Draft, task: Artifact, predictions: list[Prediction], identity: dict[str, Any], facts: dict[str, Any]
) -> None:
    """Fill `draft` with metrics.json and predictions.parquet.

    Where some texts of dev or test are also in train, ``without_copies`` holds the scores of the others.

    Args:
        draft: The artifact to write.
        task: The task that was predicted.
        predictions: One for each split.
        identity: arm, seed, stage and mlm_loss; they also go into the manifest's details.
        facts: More for metrics.json, such as the cost or the chosen settings.
    """
    details = task.details
    labels = classes_of(task)
    splits = {one.split.name: one.scores(labels) for one in predictions}
    some_copied = [one for one in predictions if one.split.copied.any() and not one.split.copied.all()]
    summary = {"task": details["name"], "metric": details["metric"], **identity}
    summary |= {name: values[details["metric"]] for name, values in splits.items()}
    whole = {
        **summary,
        **facts,
        **scored(task),
        "problem": details["problem"],
        "labels": labels,
        "splits": splits,
        "without_copies": {one.split.name: one.scores(labels, without_copies=True) for one in some_copied},
    }
    text = json.dumps(whole, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False)
    (draft.folder / "metrics.json").write_text(text + "\n", encoding="utf-8")
    table = pa.concat_tables(_table(prediction, labels) for prediction in predictions)
    pq.write_table(table, draft.folder / "predictions.parquet", compression="zstd", row_group_size=ROW_GROUP)
    draft.rows["predictions.parquet"] = table.num_rows
    draft.counts.update({name: values["n"] for name, values in splits.items()})
    draft.details.update(summary)


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
