"""The labels of texts that may have several: those whose values are above a threshold of their own."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

FOLDS = 5
UNFITTED = 0.5  # of a probability
# In an encoder's config.json: the problem type, as transformers calls it, and our thresholds.
MULTI_LABEL, THRESHOLDS = "multi_label_classification", "tlm_thresholds"

Array = NDArray[Any]
Floats = NDArray[np.float64]


def above(values: Array, thresholds: Array | list[float]) -> NDArray[np.int64]:
    """The labels whose values are above their thresholds, as 0/1; shape [n, labels]."""
    return (values > np.asarray(thresholds)).astype(np.int64)


def fitted(values: Array, gold: Array) -> Floats:
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
        decided[own] = above(values[own], fitted(values[others], gold[others]))
    return decided


def _f1(counts: Floats) -> Floats:
    """F1 of right, gold and predicted labels, shape [3, n]; 0 where there are none."""
    found: Floats = 2 * counts[0] / np.maximum(1, counts[1] + counts[2])
    return found
