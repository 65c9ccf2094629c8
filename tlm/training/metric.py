"""The score by which stage 2 chooses its best weights on dev. numpy only: importing more takes longer."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def dev_score(metric: str, gold: Array, logits: Array) -> float:
    """The task's metric of logits [n, labels] against class ordinals or targets [n]; 0 where it is not defined.

    Args:
        metric: ``macro_f1``, ``micro_f1``, ``accuracy``, ``matthews``, ``f1`` (of the second of two classes),
            ``pearson`` or ``spearman``.
        gold: What is right, [n].
        logits: Of the classes, or the predicted value in one column.
    """
    if metric == "pearson":
        return _correlation(gold, logits[:, 0])
    if metric == "spearman":
        return _correlation(_ranks(gold), _ranks(logits[:, 0]))
    table = np.zeros((logits.shape[1], logits.shape[1]))  # rows gold, columns predicted
    np.add.at(table, (gold, logits.argmax(axis=1)), 1)
    if metric == "macro_f1":
        return _macro_f1(table)
    if metric == "f1":
        return float(2 * table[1, 1] / max(1, table[1].sum() + table[:, 1].sum()))
    return _matthews(table) if metric == "matthews" else float(table.trace() / table.sum())  # micro-F1 is accuracy here


def _macro_f1(table: Array) -> float:
    """Mean over the classes that occur among gold labels or predictions."""
    both = table.sum(axis=0) + table.sum(axis=1)
    return float((2 * table.diagonal()[both > 0] / both[both > 0]).mean())


def _matthews(table: Array) -> float:
    """The correlation of gold and predicted classes (Gorodkin 2004)."""
    predicted, gold, all_rows = table.sum(axis=0), table.sum(axis=1), table.sum()
    spread = (all_rows**2 - predicted @ predicted) * (all_rows**2 - gold @ gold)
    return float((table.trace() * all_rows - predicted @ gold) / np.sqrt(spread)) if spread > 0 else 0.0


def _correlation(gold: Array, predicted: Array) -> float:
    """Pearson's."""
    if len(gold) < 2 or np.ptp(gold) == 0 or np.ptp(predicted) == 0:
        return 0.0
    return float(np.corrcoef(gold, predicted)[0, 1])


def _ranks(values: Array) -> Array:
    """Ranks from 0; equal values share the mean of theirs."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: Array = np.cumsum(counts) - (counts + 1) / 2
    return ranks[place]
