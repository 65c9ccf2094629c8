"""Scores as functions of sums over examples, so that thousands of resampled test sets cost one matrix product.

Every score that a task is judged by depends on its examples only through a few sums: for classes the true positives,
the gold and the predicted examples of each class; for numbers the moments. `tlm.evaluation.score.metrics.score` is the
reference. Of Spearman's correlation the ranks are those of the whole split.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tlm.data.tasks.labels import POSITIVE, REGRESSION

Floats = NDArray[np.float64]


def sums_of(
    metric: str, gold: NDArray[np.generic], predicted: NDArray[np.generic], group: NDArray[np.int64], groups: int
) -> Floats:
    """What `metric` needs to know of each group of examples, shape [groups, numbers].

    Args:
        metric: Name of the score.
        gold: Class ordinals, or floats for a regression; shape [n].
        predicted: The same, as predicted; shape [n].
        group: The group of each example, 0 to `groups` - 1; shape [n].
        groups: How many there are.
    """
    if metric in REGRESSION:
        return _moments(metric, gold.astype(np.float64), predicted.astype(np.float64), group, groups)
    classes = int(max(gold.max(initial=0), predicted.max(initial=0))) + 1
    return _class_sums(gold.astype(np.int64), predicted.astype(np.int64), group, groups, max(classes, 2))


def scores_of(metric: str, sums: Floats) -> Floats:
    """The score of each set of sums; shape [..., numbers] becomes [...]."""
    if metric in REGRESSION:
        return _correlation(sums)
    right, support, claimed = np.moveaxis(sums.reshape(*sums.shape[:-1], 3, -1), -2, 0)
    if metric == "matthews":
        return _matthews(right, support, claimed)
    if metric in ("accuracy", "micro_f1"):
        return _ratio(right.sum(-1), support.sum(-1))
    f1 = _ratio(2 * right, support + claimed)
    return f1[..., 1] if metric == POSITIVE else _ratio(f1.sum(-1), (support + claimed > 0).sum(-1))


def _class_sums(
    gold: NDArray[np.int64], predicted: NDArray[np.int64], group: NDArray[np.int64], groups: int, classes: int
) -> Floats:
    """True positives, gold and predicted examples of each class, shape [groups, 3 * classes]."""
    right = gold == predicted
    kinds = ((group[right], gold[right]), (group, gold), (group, predicted))
    counts = [np.bincount(where * classes + label, minlength=groups * classes) for where, label in kinds]
    return np.stack([count.reshape(groups, classes) for count in counts], axis=1).reshape(groups, -1).astype(np.float64)


def _moments(metric: str, gold: Floats, predicted: Floats, group: NDArray[np.int64], groups: int) -> Floats:
    """n, sums of both sides, of their squares and their product, shape [groups, 6]; both sides centred."""
    x, y = (_ranks(side) if metric == "spearman" else side for side in (gold, predicted))
    x, y = x - x.mean(), y - y.mean()
    columns: Sequence[Floats] = (np.ones_like(x), x, y, x * x, y * y, x * y)
    return np.stack([np.bincount(group, column, groups) for column in columns], axis=1)


def _ranks(values: Floats) -> Floats:
    """Ranks from 1; equal values share the mean of theirs."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: Floats = (np.cumsum(counts) - (counts - 1) / 2)[place]
    return ranks


def _correlation(sums: Floats) -> Floats:
    n, x, y, xx, yy, xy = np.moveaxis(sums, -1, 0)
    spread = np.clip(n * xx - x * x, 0, None) * np.clip(n * yy - y * y, 0, None)
    found: Floats = np.where(spread > 1e-12, _ratio(n * xy - x * y, np.sqrt(spread)), 0.0)
    return found


def _matthews(right: Floats, support: Floats, claimed: Floats) -> Floats:
    n = support.sum(-1)
    covariance = right.sum(-1) * n - (support * claimed).sum(-1)
    return _ratio(covariance, np.sqrt((n * n - (support**2).sum(-1)) * (n * n - (claimed**2).sum(-1))))


def _ratio(above: Floats, below: NDArray[np.generic]) -> Floats:
    """0 where `below` is 0."""
    found: Floats = np.divide(above, below, out=np.zeros(np.shape(above)), where=np.asarray(below) != 0)
    return found
