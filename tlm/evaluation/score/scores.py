"""All scores of a model's predictions, always finite numbers, written as a `metrics` artifact, and read from it again.

`tlm.data.tasks.metrics` defines degenerate cases. A class without a prediction or without a gold example has F1 0.

Of two classes the last is the positive one, whose F1 is the score ``f1``. It is GLUE's label 1 (equivalent, duplicate)
for the registered tasks of GLUE; other tasks have sorted labels, so yes, true, positive and 1 come last, unless
``f1:LABEL`` puts another one there.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tlm.artifacts.artifact import Artifact
from tlm.artifacts.produce import Draft
from tlm.data.tasks import metrics as known
from tlm.data.tasks.examples import LISTS, SEVERAL, classes_of, values_of
from tlm.data.tasks.metrics import Array, Floats, Split, above, cross_decided, score, sum_in_order
from tlm.evaluation.pages.text import visible

BINS = 10
TOP, MANY = 5, 20  # with more than so many classes, whether the right one is among the first five is a score, too
METRIC_NAMES = {
    "macro_f1": "macro-F1",
    "micro_f1": "micro-F1",
    "accuracy": "accuracy",
    "top5": f"top-{TOP} accuracy",
    "f1": "F1 of the positive class",
    "example_f1": "example-F1",
    "exact_match": "exact match",
    "matthews": "Matthews correlation",
    "pearson": "Pearson correlation",
    "spearman": "Spearman correlation",
    "ece": "calibration error",
    "rmse": "root mean squared error",
    "mae": "mean absolute error",
}


def scores(gold: Array, predicted: Array, probabilities: Array | None, labels: Sequence[str] | None) -> dict[str, Any]:
    """All scores of one split.

    Args:
        gold: Class ordinals into `labels`, or float targets where `labels` is None, shape [n]; 0/1 of several labels a
            text, shape [n, classes].
        predicted: The same, as predicted.
        probabilities: Of every class, shape [n, classes]; unused for regression.
        labels: The classes in order; None for regression.

    Returns:
        ``n``, the number of examples. For classes: the metrics of `CLASSIFICATION` (with two classes also ``f1``, with
        more than `MANY` ``top5``: the share of examples whose class is among the five likeliest; ties count as wrong),
        ``ece`` (expected calibration error over 10 bins of equal width), ``confusion`` (rows gold, columns predicted),
        ``classes`` (precision, recall, f1, support by label) and ``reliability`` (bins). For regression: the metrics
        of `REGRESSION`, ``mse``, ``rmse`` and ``mae``. For several labels: those of `OF_SEVERAL`, and ``classes``.

    Raises:
        ValueError: shapes differ, or a prediction is not finite.
    """
    if len(gold) != len(predicted):
        raise ValueError(f"{len(gold)} gold values but {len(predicted)} predicted ones")
    if labels is None:
        return _regression(np.asarray(gold, dtype=float), np.asarray(predicted, dtype=float))
    chances = np.asarray(probabilities, dtype=float).reshape(len(gold), len(labels))
    if not np.isfinite(chances).all():
        raise ValueError("a probability is not finite")
    gold, predicted = np.asarray(gold, dtype=np.int64), np.asarray(predicted, dtype=np.int64)
    return _several(gold, predicted, labels) if gold.ndim == 2 else _classification(gold, predicted, chances, labels)


def metric_names(labels: Sequence[str] | None) -> dict[str, str]:
    """What the metrics of a task with these classes are called: ``f1`` by the class that it is of."""
    found = positive(labels or ())
    return METRIC_NAMES | ({known.POSITIVE: f"F1 of {visible(found, 40)}"} if found else {})


def positive(labels: Sequence[str]) -> str:
    """The class whose F1 is reported; "" unless there are two."""
    return labels[1] if len(labels) == 2 else ""


def _classification(gold: Array, predicted: Array, chances: Array, labels: Sequence[str]) -> dict[str, Any]:
    confusion = np.zeros((len(labels), len(labels)), dtype=np.int64)
    np.add.at(confusion, (gold, predicted), 1)
    bins = _reliability(gold == predicted, chances[np.arange(len(gold)), predicted])
    metrics = (*known.CLASSIFICATION, known.POSITIVE) if positive(labels) else known.CLASSIFICATION
    found = {name: score(name, gold, predicted) for name in metrics}
    if len(labels) > MANY:
        found["top5"] = _top(gold, chances)
    return {
        "n": len(gold),
        **found,
        "ece": sum_in_order(bin["n"] * abs(bin["accuracy"] - bin["confidence"]) for bin in bins) / max(1, len(gold)),
        "classes": _by_class(confusion.diagonal(), confusion.sum(axis=1), confusion.sum(axis=0), labels),
        "confusion": confusion.tolist(),
        "reliability": bins,
    }


def _several(gold: Array, predicted: Array, labels: Sequence[str]) -> dict[str, Any]:
    classes = _by_class((gold & predicted).sum(axis=0), gold.sum(axis=0), predicted.sum(axis=0), labels)
    return {"n": len(gold), **{name: score(name, gold, predicted) for name in known.OF_SEVERAL}, "classes": classes}


def _by_class(hits: Array, support: Array, claimed: Array, labels: Sequence[str]) -> dict[str, dict[str, Any]]:
    columns = {"precision": hits / np.maximum(1, claimed), "recall": hits / np.maximum(1, support)}
    columns |= {"f1": 2 * hits / np.maximum(1, support + claimed), "support": support}
    return {label: {name: column[row].item() for name, column in columns.items()} for row, label in enumerate(labels)}


def _top(gold: Array, chances: Array) -> float:
    own = np.take_along_axis(chances, gold[:, None], axis=1)
    return float(((chances >= own).sum(axis=1) <= TOP).sum() / max(1, len(gold)))


def _reliability(correct: Array, confidence: Array) -> list[dict[str, float]]:
    """The bins of confidence, (0, 0.1] to (0.9, 1], that are not empty, with their mean confidence and accuracy."""
    place = np.clip(np.ceil(confidence * BINS).astype(int) - 1, 0, BINS - 1)
    bins = []
    for index in np.unique(place).tolist():
        inside = place == index
        means = {"confidence": float(confidence[inside].mean()), "accuracy": float(correct[inside].mean())}
        bins.append({"from": index / BINS, "to": (index + 1) / BINS, "n": int(inside.sum()), **means})
    return bins


def _regression(gold: Array, predicted: Array) -> dict[str, Any]:
    if not np.isfinite(predicted).all():
        raise ValueError("a prediction is not finite")
    error = predicted - gold if len(gold) else np.zeros(1)
    squared, absolute = (error**2).mean(), np.abs(error).mean()
    found = {name: score(name, gold, predicted) for name in known.REGRESSION}
    return {"n": len(gold), **found, "mse": float(squared), "rmse": float(squared**0.5), "mae": float(absolute)}


ROW_GROUP = 65536


@dataclass(frozen=True)
class Prediction:
    """Predictions for a split.

    Attributes:
        split: The examples.
        predicted: Class ordinals, or floats for regression, shape [n]; 0/1 of several labels, shape [n, classes].
        probabilities: Of every class, shape [n, classes]; None for regression.
    """

    split: Split
    predicted: Array
    probabilities: NDArray[np.float64] | None

    @classmethod
    def of(cls, split: Split, values: Floats, thresholds: list[float] | None = None, new: bool = False) -> "Prediction":
        """Predict the likeliest class from probabilities, shape [n, classes], or take numbers, shape [n, 1].

        Of several labels a text, those above `thresholds`; for dev, if it is not `new` and these are fitted to it,
        above such that are fitted to the other groups of dev.
        """
        if thresholds is None:
            numbers = values.shape[1] == 1
            return cls(split, values[:, 0], None) if numbers else cls(split, values.argmax(axis=1), values)
        fitted_to_it = split.name == "dev" and not new and set(thresholds) != {known.UNFITTED}
        decided = cross_decided(values, split.gold, split.group) if fitted_to_it else above(values, thresholds)
        return cls(split, decided, values)

    def scores(self, labels: list[str] | None, *, without_copies: bool = False) -> dict[str, Any]:
        """All scores of the predictions, or of those for examples whose text is not also in train."""
        rows = ~self.split.copied if without_copies else slice(None)
        chances = None if self.probabilities is None else self.probabilities[rows]
        return scores(self.split.gold[rows], self.predicted[rows], chances, labels)


def scored(task: Artifact) -> dict[str, Any]:
    """The setting of a step that scores a task: which of two classes is the positive one; `TOP` with many classes."""
    labels = [] if task.details["problem"] == SEVERAL else task.details["labels"]
    if positive(labels):
        return {"positive": positive(labels)}
    return {"top": TOP} if len(labels) > MANY else {}


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
    details, labels = task.details, classes_of(task)
    splits = {one.split.name: one.scores(labels) for one in predictions}
    some_copied = [one for one in predictions if one.split.copied.any() and not one.split.copied.all()]
    without = {one.split.name: one.scores(labels, without_copies=True) for one in some_copied}
    summary = {"task": details["name"], "metric": details["metric"], **identity}
    summary |= {name: values[details["metric"]] for name, values in splits.items()}
    content = {**summary, **facts, **scored(task), "problem": details["problem"], "labels": labels}
    content |= {"splits": splits, "without_copies": without}
    text = json.dumps(content, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False)
    (draft.folder / "metrics.json").write_text(text + "\n", encoding="utf-8")
    table = pa.concat_tables(_table(prediction, labels) for prediction in predictions)
    pq.write_table(table, draft.folder / "predictions.parquet", compression="zstd", row_group_size=ROW_GROUP)
    draft.rows["predictions.parquet"] = table.num_rows
    draft.counts.update({name: values["n"] for name, values in splits.items()})
    draft.details.update(summary)


def predictions_of(metrics: Artifact, split: str) -> pa.Table:
    """The predictions for a split that `write_metrics` wrote."""
    # partitioning=None: a folder called name=value makes no column
    return pq.read_table(metrics.path("predictions.parquet"), filters=[("split", "=", split)], partitioning=None)


def _table(prediction: Prediction, labels: list[str] | None) -> pa.Table:
    split, size = prediction.split, len(prediction.split.example)

    def values(array: Array) -> pa.Array:
        if labels is None:
            return pa.array(array, pa.float64())
        if array.ndim == 2:
            return pa.array([[labels[place] for place in np.flatnonzero(row)] for row in array], LISTS)
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


SHARES = (0.2, 0.5, 0.6, 0.7, 0.8, 0.9)  # of the texts of dev; all texts are answered from the probability 0 on
DIGITS = 4  # of a threshold, so that one can type it


def coverage(metrics: Artifact, labels: list[str]) -> list[dict[str, Any]] | None:
    """Thresholds that answer `SHARES` of dev, and what they give on dev and on test.

    Args:
        metrics: Of a model for single labels, which are `labels` in order.

    Returns:
        Rows, each with ``at_least`` and, for dev and test, ``share`` and ``accuracy`` of the answered texts (None if
        there are none). None if dev or test has no texts, or if all answers have the same probability.
    """
    splits = {name: _answers(predictions_of(metrics, name), labels) for name in ("dev", "test")}
    chances = np.sort(splits["dev"][0])[::-1]
    if not len(splits["test"][0]) or len(np.unique(chances)) < 2:
        return None
    lowest = [chances[math.ceil(share * len(chances)) - 1] for share in SHARES]  # of the answers that are given
    thresholds = dict.fromkeys(math.floor(chance * 10**DIGITS) / 10**DIGITS for chance in lowest)
    return [{"at_least": at, **{name: _at(at, *one) for name, one in splits.items()}} for at in (*thresholds, 0.0)]


def _answers(rows: pa.Table, labels: list[str]) -> tuple[Floats, NDArray[np.bool_]]:
    """The probability of each answer, and whether it is right."""
    chances = pc.list_flatten(rows["probabilities"]).to_numpy().reshape(len(rows), len(labels))
    own = chances[np.arange(len(rows)), values_of(rows["predicted"], labels)]  # an imported answer may not be likeliest
    return own, pc.equal(rows["gold"], rows["predicted"]).to_numpy()


def _at(at_least: float, chances: NDArray[np.float64], right: NDArray[np.bool_]) -> dict[str, float | None]:
    answered = chances >= at_least
    accuracy = float(right[answered].mean()) if answered.any() else None
    return {"share": float(answered.mean()), "accuracy": accuracy}
