"""The examples of a split, metrics of a task, also on thousands of resampled test sets, and the labels' thresholds.

Every metric depends on its examples only through a few sums: for classes the true positives, the gold and the
predicted examples of each class; for regression the moments; for means over texts the sum of their scores. `sums_of`
computes the sums of each group of examples, and `scores_of` turns sums into scores, so that scoring thousands of
resampled test sets takes one matrix product.

Degenerate cases have a defined score: without examples every score is 0; macro-F1 leaves out classes that are neither
among the gold labels nor among the predictions (as scikit-learn does, but not of several labels a text); Matthews,
Pearson and Spearman are 0 where one side is constant; a text that has no labels and gets none counts as right. NumPy
only: importing scikit-learn would add 1.5 CPU seconds to every fine-tuning process.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tlm.errors import InputError

CLASSIFICATION = ("macro_f1", "micro_f1", "accuracy", "matthews")
POSITIVE = "f1"  # of the second of two classes
REGRESSION = ("pearson", "spearman")
BY_EXAMPLE = ("example_f1", "exact_match")  # of texts with several labels: means over the texts
OF_SEVERAL = ("micro_f1", "macro_f1", *BY_EXAMPLE)
METRICS = ("auto", *CLASSIFICATION, POSITIVE, *REGRESSION, *BY_EXAMPLE)

ROUNDING = 1e-12  # a side varies if its variance is above this share of its mean square, whatever its unit

Array = NDArray[Any]
Floats = NDArray[np.float64]
Texts = Sequence[str]


def sum_in_order(values: Iterable[float]) -> float:
    """The sum of floats from left to right, the same on every Python; from 3.12 on, `sum` rounds differently."""
    return reduce(add, values, 0.0)


@dataclass(frozen=True)
class Split:
    """The n examples of one split.

    Attributes:
        name: train, dev or test.
        example: Row ordinals in the task; shape [n].
        texts: The texts.
        pairs: The second texts, for a task on pairs.
        gold: Class ordinals (int64), or targets (float64) for regression, shape [n]; of texts with several labels 0/1
            (int64), shape [n, labels].
        group: Ordinal of each example's group (`tlm.data.tasks.splits`); shape [n].
        copied: Whether train has the same text; shape [n].
    """

    name: str
    example: NDArray[np.int64]
    texts: list[str]
    pairs: list[str] | None
    gold: NDArray[Any]
    group: NDArray[np.int64]
    copied: NDArray[np.bool_]


def metric_for(labels: Sequence[str], metric: str, *, several: bool = False) -> str:
    """Return the metric for a task with these classes, or for a regression if there are none.

    'auto' is macro_f1 for classes, micro_f1 for `several` labels a text, pearson for regression. Raises InputError if
    the metric is for another problem.
    """
    metrics = OF_SEVERAL if several else CLASSIFICATION if labels else REGRESSION
    if metric == "auto":
        return metrics[0]
    if len(labels) == 2 and not several:
        metrics = (*metrics, POSITIVE)
    if metric not in metrics:
        problem = f"a classification with {len(labels)} classes" if labels else "a regression"
        problem = f"one with {len(labels)} labels, several a text" if several else problem
        raise InputError(f"metric '{metric}' does not fit: the task is {problem}; expected {', '.join(metrics)}")
    return metric


def score(metric: str, gold: Array, predicted: Array) -> float:
    """Score the predictions of one set of examples.

    Args:
        metric: A name from `METRICS` but auto.
        gold: Class ordinals, or floats for regression, shape [n]; 0/1 of several labels, shape [n, labels].
        predicted: The same, as predicted.
    """
    if len(gold) == 0:
        return 0.0
    if metric not in (POSITIVE, *REGRESSION) and gold.ndim == 1:
        # number the classes that occur: absent ones change how floats add up
        gold, predicted = np.unique(np.stack([gold, predicted]), return_inverse=True)[1].reshape(2, -1)
    return float(scores_of(metric, sums_of(metric, gold, predicted, np.zeros(len(gold), np.int64), 1))[0])


def dev_score(metric: str, gold: Array, logits: Array) -> float:
    """Score logits of shape [n, classes], or the predicted values in the first column for regression.

    Of several labels a text, `gold` is 0/1 of shape [n, classes], and thresholds are fitted to it.
    """
    if gold.ndim == 2:
        gold = gold.astype(np.int64)
        return score(metric, gold, above(logits, fitted_thresholds(logits, gold)))
    return score(metric, gold, logits[:, 0] if metric in REGRESSION else logits.argmax(axis=1))


def sums_of(metric: str, gold: Array, predicted: Array, group: Array, groups: int) -> Floats:
    """Sums from which `scores_of` computes `metric`, shape [groups, numbers].

    Args:
        metric: Name of the metric.
        gold: Class ordinals, or floats for regression, shape [n]; 0/1 of several labels, shape [n, labels].
        predicted: The same, as predicted.
        group: Group of each example, 0 to `groups` - 1; shape [n].
        groups: Number of groups.
    """
    if metric in REGRESSION:
        return _moments(metric, gold.astype(np.float64), predicted.astype(np.float64), group, groups)
    if gold.ndim == 2:
        sums = _label_sums(metric, gold, predicted)
        found = np.zeros((groups, sums.shape[1]))
        np.add.at(found, group, sums)
        return found
    classes = count_classes(gold, predicted)
    places = np.ravel_multi_index(places_of(gold, predicted, group, classes), (groups, 3 * classes))
    return np.bincount(places, minlength=groups * 3 * classes).reshape(groups, -1).astype(np.float64)


def count_classes(gold: Array, predicted: Array) -> int:
    """How many classes these ordinals need, at least two."""
    return max(2, int(max(gold.max(initial=0), predicted.max(initial=0))) + 1)


def places_of(gold: Array, predicted: Array, group: Array, classes: int) -> tuple[Array, Array]:
    """Rows and columns of the sums of `sums_of` that grow by one, of examples with one class each."""
    right = gold == predicted
    columns = [gold[right], classes + gold, 2 * classes + predicted]
    return np.concatenate([group[right], group, group]), np.concatenate(columns)


def scores_of(metric: str, sums: Floats) -> Floats:
    """Scores of sums; shape [..., numbers] becomes [...]. Spearman uses the ranks within the whole split."""
    if metric in REGRESSION:
        n, x, y, xx, yy, xy = np.moveaxis(sums, -1, 0)
        spreads = [np.where(n * xx - x * x > ROUNDING * n * xx, n * xx - x * x, 0) for x, xx in ((x, xx), (y, yy))]
        return _ratio(n * xy - x * y, np.sqrt(spreads[0]) * np.sqrt(spreads[1]))
    if metric in BY_EXAMPLE:
        return _ratio(sums[..., 0], sums[..., 1])
    right, support, claimed = np.moveaxis(sums.reshape(*sums.shape[:-1], 3, -1), -2, 0)
    if metric == "matthews":  # the correlation of gold and predicted classes (Gorodkin 2004)
        n = support.sum(-1)
        covariance = right.sum(-1) * n - (support * claimed).sum(-1)
        return _ratio(covariance, np.sqrt((n * n - (support**2).sum(-1)) * (n * n - (claimed**2).sum(-1))))
    if metric == "accuracy":
        return _ratio(right.sum(-1), support.sum(-1))
    if metric == "micro_f1":  # with one class an example, the accuracy
        return _ratio(2 * right.sum(-1), support.sum(-1) + claimed.sum(-1))
    f1 = _ratio(2 * right, support + claimed)
    return f1[..., 1] if metric == POSITIVE else _ratio(f1.sum(-1), (support + claimed > 0).sum(-1))


def _label_sums(metric: str, gold: Array, predicted: Array) -> Floats:
    """What each example with several labels adds to the sums, shape [n, numbers]."""
    right = gold & predicted
    if metric not in BY_EXAMPLE:
        return np.hstack([right, gold, predicted]).astype(np.float64)
    both = gold.sum(1) + predicted.sum(1)
    f1 = np.where(both > 0, 2 * right.sum(1) / np.maximum(1, both), 1.0)
    return np.stack([f1 if metric == "example_f1" else (gold == predicted).all(1), np.ones(len(gold))], 1)


def _moments(metric: str, gold: Floats, predicted: Floats, group: NDArray[np.int64], groups: int) -> Floats:
    """Count, sums of both sides, of their squares and of their product, shape [groups, 6]; both sides are centred."""
    x, y = (_ranks(side) if metric == "spearman" else side for side in (gold, predicted))
    x, y = x - x.mean(), y - y.mean()
    return np.stack([np.bincount(group, column, groups) for column in (np.ones_like(x), x, y, x * x, y * y, x * y)], 1)


def _ranks(values: Array) -> Floats:
    """Ranks from 1; equal values share the mean of their ranks."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: Floats = np.cumsum(counts) - (counts - 1) / 2
    return ranks[place]


def _ratio(above: Floats, below: Array) -> Floats:
    """`above` / `below`, and 0 where `below` is 0."""
    found: Floats = np.divide(above, below, out=np.zeros(np.shape(above)), where=np.asarray(below) != 0)
    return found


# The labels of texts that may have several: those whose values are above a threshold of their own.
FOLDS = 5
UNFITTED = 0.5  # of a probability
# In an encoder's config.json: the problem type, as transformers calls it, and our thresholds.
MULTI_LABEL, THRESHOLDS = "multi_label_classification", "tlm_thresholds"


def above(values: Array, thresholds: Array | list[float]) -> NDArray[np.int64]:
    """The labels whose values are above their thresholds, as 0/1; shape [n, labels]."""
    return (values > np.asarray(thresholds)).astype(np.int64)


def fitted_thresholds(values: Array, gold: Array) -> Floats:
    """Fit the threshold of each label, from the most frequent one on.

    Each maximises micro-F1 plus macro-F1 of the labels up to this one, which keeps rare labels from overfitting; the
    highest of the best wins. This is ``micromacro-freq`` of Lin and Lin (CIKM 2023, section 4.3), as in LibMultiLabel's
    ``train_thresholding``; that averages the thresholds of its folds, here one is fitted to all of them together.

    Args:
        values: Probabilities, or logits, that were not fitted to these examples; shape [n, labels].
        gold: 0/1; shape [n, labels].

    Returns:
        The thresholds, shape [labels]; `UNFITTED` without examples.
    """
    count, labels = gold.shape
    found = np.full(labels, UNFITTED)
    before = np.zeros(3)  # right, gold and predicted labels, of the labels so far
    left = count - np.arange(count + 1)  # examples that have the label, if it is cut off at each place of their order
    for number, label in enumerate(np.flip(np.argsort(gold.sum(axis=0), kind="stable")) if count else (), start=1):
        order = np.argsort(values[:, label], kind="stable")
        ordered, hits = values[order, label].astype(np.float64), gold[order, label]
        right = np.append(np.cumsum(hits[::-1])[::-1], 0)
        counts = np.stack([right, np.full(count + 1, hits.sum()), left])
        distinct = np.concatenate([[True], ordered[1:] > ordered[:-1], [True]])
        objective = np.where(distinct, _f1(counts) / number + _f1(counts + before[:, None]), -1)
        cut = count - int(np.argmax(objective[::-1]))
        lower, upper = np.nextafter(ordered[0], -np.inf), np.nextafter(ordered[-1], np.inf)
        if 0 < cut < count:
            middle = (ordered[cut - 1] + ordered[cut]) / 2
            lower = upper = min(middle, np.nextafter(ordered[cut], -np.inf))  # of neighbours, it may be the upper one
        found[label] = upper if cut else lower
        before += counts[:, cut]
    return found


def held_out(group: NDArray[np.int64]) -> Iterator[tuple[Array, Array]]:
    """The rows to fit on and those to judge, for each of at most `FOLDS` folds; of one group, all rows for both.

    Args:
        group: Group of each example; shape [n]. Groups are not divided.
    """
    from sklearn.model_selection import GroupKFold

    folds = min(FOLDS, len(np.unique(group)))
    if folds < 2:
        yield np.arange(len(group)), np.arange(len(group))
    else:
        yield from GroupKFold(folds).split(group, groups=group)


def cross_decided(values: Array, gold: Array, group: NDArray[np.int64]) -> NDArray[np.int64]:
    """The labels of examples that thresholds are fitted to, as 0/1: each by thresholds of the other groups.

    Args:
        values: Probabilities; shape [n, labels].
        gold: 0/1; shape [n, labels].
        group: Group of each example; shape [n]. Groups are not divided.
    """
    decided = np.zeros(gold.shape, np.int64)
    for others, own in held_out(group):
        decided[own] = above(values[own], fitted_thresholds(values[others], gold[others]))
    return decided


def _f1(counts: Floats) -> Floats:
    """F1 of right, gold and predicted labels, shape [3, n]; 0 where there are none."""
    return _ratio(2 * counts[0], counts[1] + counts[2])
