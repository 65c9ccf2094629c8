"""All scores of a model's predictions: always finite numbers, even where a textbook formula divides by zero.

`tlm.data.tasks.metrics` defines degenerate cases. A class without a prediction or without a gold example has F1 0.

Of two classes the last is the positive one, whose F1 is the score ``f1``. It is GLUE's label 1 (equivalent, duplicate)
for the registered tasks of GLUE; other tasks have sorted labels, so yes, true, positive and 1 come last.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tlm.data.tasks.metrics import CLASSIFICATION, POSITIVE, REGRESSION, score

BINS = 10
METRIC_NAMES = {
    "macro_f1": "macro-F1",
    "micro_f1": "micro-F1",
    "accuracy": "accuracy",
    "f1": "F1 of the positive class",
    "matthews": "Matthews correlation",
    "pearson": "Pearson correlation",
    "spearman": "Spearman correlation",
    "ece": "calibration error",
    "rmse": "root mean squared error",
    "mae": "mean absolute error",
}

Array = NDArray[Any]


def scores(
    gold: Sequence[float] | Array,
    predicted: Sequence[float] | Array,
    probabilities: Sequence[Sequence[float]] | Array | None,
    labels: Sequence[str] | None,
) -> dict[str, Any]:
    """All scores of one split.

    Args:
        gold: Class ordinals into `labels`, or float targets where `labels` is None; shape [n].
        predicted: The same, as predicted; shape [n].
        probabilities: Of every class, shape [n, classes]; unused for regression.
        labels: The classes in order; None for regression.

    Returns:
        ``n``, the number of examples. For classes: the metrics of `CLASSIFICATION` (with two classes also ``f1``),
        ``ece`` (expected calibration error over 10 bins of equal width), ``confusion`` (rows gold, columns predicted),
        ``classes`` (precision, recall, f1, support by label) and ``reliability`` (bins). For regression: the metrics
        of `REGRESSION`, ``mse``, ``rmse`` and ``mae``.

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
    return _classification(np.asarray(gold, dtype=np.int64), np.asarray(predicted, dtype=np.int64), chances, labels)


def positive(labels: Sequence[str]) -> str:
    """The class whose F1 is reported; "" unless there are two."""
    return labels[1] if len(labels) == 2 else ""


def _classification(gold: Array, predicted: Array, chances: Array, labels: Sequence[str]) -> dict[str, Any]:
    confusion = np.zeros((len(labels), len(labels)), dtype=np.int64)
    np.add.at(confusion, (gold, predicted), 1)
    hits, support, claimed = confusion.diagonal(), confusion.sum(axis=1), confusion.sum(axis=0)
    columns = {
        "precision": hits / np.maximum(1, claimed),
        "recall": hits / np.maximum(1, support),
        "f1": 2 * hits / np.maximum(1, support + claimed),
        "support": support,
    }
    bins = _reliability(gold == predicted, chances.max(axis=1, initial=0.0))
    metrics = (*CLASSIFICATION, POSITIVE) if positive(labels) else CLASSIFICATION
    return {
        "n": len(gold),
        **{name: score(name, gold, predicted) for name in metrics},
        "ece": sum(bin["n"] * abs(bin["accuracy"] - bin["confidence"]) for bin in bins) / max(1, len(gold)),
        "classes": {
            label: {name: column[index].item() for name, column in columns.items()}
            for index, label in enumerate(labels)
        },
        "confusion": confusion.tolist(),
        "reliability": bins,
    }


def _reliability(correct: Array, confidence: Array) -> list[dict[str, float]]:
    """The bins of confidence, (0, 0.1] to (0.9, 1], that are not empty, with their mean confidence and accuracy."""
    place = np.clip(np.ceil(confidence * BINS).astype(int) - 1, 0, BINS - 1)
    return [
        {
            "from": index / BINS,
            "to": (index + 1) / BINS,
            "n": int(inside.sum()),
            "confidence": float(confidence[inside].mean()),
            "accuracy": float(correct[inside].mean()),
        }
        for index in range(BINS)
        if (inside := place == index).any()
    ]


def _regression(gold: Array, predicted: Array) -> dict[str, Any]:
    if not np.isfinite(predicted).all():
        raise ValueError("a prediction is not finite")
    error = predicted - gold if len(gold) else np.zeros(1)
    return {
        "n": len(gold),
        **{name: score(name, gold, predicted) for name in REGRESSION},
        "mse": float((error**2).mean()),
        "rmse": float((error**2).mean() ** 0.5),
        "mae": float(np.abs(error).mean()),
    }
