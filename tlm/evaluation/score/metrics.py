"""Scores of predictions: always finite numbers, also where a textbook formula divides by zero.

Degenerate cases are defined, not left to chance: no examples give 0 everywhere; a class that occurs neither among
the gold labels nor among the predicted ones is left out of macro-F1 (scikit-learn's rule); a class without a
prediction or without a gold example has F1 0; Matthews, Pearson and Spearman are 0 where one side is constant.

Of two classes the last is the positive one, whose F1 is the score ``f1``: GLUE's label 1 (equivalent, duplicate) as
its tasks are registered; elsewhere labels are sorted, so that yes, true, positive and 1 come last.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tlm.data.tasks.labels import CLASSIFICATION, POSITIVE, REGRESSION

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
    "mse": "mean squared error",
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
        For classes: the scores of `CLASSIFICATION`, of two classes also ``f1``, ``ece`` (expected calibration error
        over 10 equally wide bins),
        ``confusion`` (rows gold, columns predicted), ``classes`` (precision, recall, f1, support by label) and
        ``reliability`` (bins). For regression: the scores of `REGRESSION`, ``mse`` and ``mae``. Always ``n``.

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


def score(name: str, gold: Array, predicted: Array) -> float:
    """One score by its name: what a task is judged by.

    Args:
        name: One of `CLASSIFICATION` or `POSITIVE` (then class ordinals), or of `REGRESSION` (then floats).
        gold: Shape [n].
        predicted: Shape [n].
    """
    if len(gold) == 0:
        return 0.0
    if name in REGRESSION:
        return _correlation(gold, predicted, name)
    from sklearn import metrics

    if name == "matthews":
        if len(set(gold.tolist())) == 1 or len(set(predicted.tolist())) == 1:
            return 0.0
        return float(metrics.matthews_corrcoef(gold, predicted))
    if name == "accuracy":
        return float(metrics.accuracy_score(gold, predicted))
    if name == POSITIVE:
        return float(metrics.f1_score(gold, predicted, zero_division=0))
    return float(metrics.f1_score(gold, predicted, average=name.removesuffix("_f1"), zero_division=0))


def _classification(gold: Array, predicted: Array, chances: Array, labels: Sequence[str]) -> dict[str, Any]:
    confusion = np.zeros((len(labels), len(labels)), dtype=np.int64)
    np.add.at(confusion, (gold, predicted), 1)
    bins = _reliability(gold == predicted, chances.max(axis=1, initial=0.0))
    classes = {label: _class(confusion, index) for index, label in enumerate(labels)}
    binary = {POSITIVE: classes[positive(labels)]["f1"]} if positive(labels) else {}
    gaps = [bin["n"] * abs(bin["accuracy"] - bin["confidence"]) for bin in bins]
    return {
        "n": len(gold),
        **{name: score(name, gold, predicted) for name in CLASSIFICATION},
        **binary,
        "ece": sum(gaps) / max(1, len(gold)),
        "classes": classes,
        "confusion": confusion.tolist(),
        "reliability": bins,
    }


def _class(confusion: Array, index: int) -> dict[str, float]:
    hits, support, claimed = (
        int(part) for part in (confusion[index, index], confusion[index].sum(), confusion[:, index].sum())
    )
    return {
        "precision": hits / max(1, claimed),
        "recall": hits / max(1, support),
        "f1": 2 * hits / max(1, support + claimed),
        "support": support,
    }


def _reliability(correct: Array, confidence: Array) -> list[dict[str, float]]:
    """The bins that hold something: (0, 0.1], … (0.9, 1] of confidence, with their mean confidence and accuracy."""
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
        "mae": float(np.abs(error).mean()),
    }


def _correlation(gold: Array, predicted: Array, name: str) -> float:
    if len(gold) < 2 or np.ptp(gold) == 0 or np.ptp(predicted) == 0:
        return 0.0
    from scipy import stats

    found = float((stats.pearsonr if name == "pearson" else stats.spearmanr)(gold, predicted).statistic)
    return found if np.isfinite(found) else 0.0
