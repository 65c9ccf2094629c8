"""Choose the settings of a shallow model: by cross-validation over the groups of train, or on dev if train is large."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import GroupKFold

from tlm.data.tasks.arrays import Split
from tlm.data.tasks.labels import REGRESSION
from tlm.data.tasks.metrics import dev_score
from tlm.shallow.linear import Linear

FOLDS = 3
MOST_FOLDED = 5_000  # training examples; with more, dev is enough to choose by
STRENGTHS = (10.0, 1.0, 3.0, 30.0, 100.0, 300.0)  # of sparse features; the first one is tried with each shape
DENSE_STRENGTHS = (0.003, 0.001, 0.01, 0.03, 0.1)

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Setting:
    """One point of the search.

    Attributes:
        strength: C of the logistic regression; ridge gets alpha = 10 / C.
        balanced: Whether classes are weighted by the inverse of their frequency.
        score: By the task's metric, over all examples that were judged.
        features: Which of the features that were considered.
    """

    strength: float
    balanced: bool
    score: float
    features: Any


def folds_of(train: Split, dev: Split) -> list[tuple[Rows, Rows]]:
    """What is fitted on and what is judged, by turns: rows of train followed by those of dev.

    Examples of a group are never divided between the two.
    """
    rows = np.arange(len(train.texts))
    if len(rows) > MOST_FOLDED or len(np.unique(train.group)) < FOLDS:
        return [(rows, len(rows) + np.arange(len(dev.texts)))]
    return list(GroupKFold(FOLDS).split(rows, groups=train.group))


class Search:
    """The best setting considered so far.

    Attributes:
        best: The setting; among equals the one tried first. None before the first.
        tried: How many settings were considered.
    """

    def __init__(self, folds: Sequence[tuple[Rows, Rows]], gold: NDArray[Any], metric: str, classes: int) -> None:
        """Judge with `metric` against `gold`, the class ordinals or numbers of train followed by those of dev."""
        self.folds, self.gold, self.metric, self.classes = folds, gold, metric, classes
        self.best: Setting | None = None
        self.tried = 0

    def consider(
        self, features: Any, matrices: Sequence[tuple[Any, Any]], strengths: Iterable[float], balances: Iterable[bool]
    ) -> None:
        """Fit a linear model for each setting.

        Args:
            features: Names the features in `Setting`.
            matrices: For each fold the features of the examples to fit on and of those to judge.
            strengths: Values of C.
            balances: With or without class weights, or both.
        """
        judged = np.concatenate([rows for _, rows in self.folds])
        for strength in strengths:
            for balanced in balances:
                predicted = [
                    Linear.fit(seen, self.gold[rows], self.classes, strength, balanced).predict(unseen)
                    for (rows, _), (seen, unseen) in zip(self.folds, matrices, strict=True)
                ]
                score = dev_score(self.metric, self.gold[judged], np.concatenate(predicted))
                self.tried += 1
                if self.best is None or score > self.best.score:
                    self.best = Setting(strength, balanced, score, features)


def balances(metric: str) -> tuple[bool, ...]:
    """With and without class weights, where there are classes."""
    return (False,) if metric in REGRESSION else (False, True)
