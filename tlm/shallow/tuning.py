"""Choose the settings of a shallow model: by cross-validation over the groups of train, and on dev."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import GroupKFold

from tlm.data.tasks.metrics import REGRESSION, dev_score
from tlm.data.tasks.split import Split
from tlm.shallow.linear import Linear

FOLDS = 3
MOST_FOLDED = 5_000  # training examples; with more, dev is enough to choose by
STRENGTHS = (10.0, 1.0, 3.0, 30.0, 100.0, 300.0)  # of sparse features; the first two are tried with each shape
DENSE_STRENGTHS = (0.003, 0.001, 0.01, 0.03, 0.1)

Fold = tuple[NDArray[np.int64], NDArray[np.int64]]  # rows to fit on, and rows to judge


@dataclass(frozen=True)
class Setting:
    """One point of the search.

    Attributes:
        strength: C of the logistic regression; ridge gets alpha = 10 / C.
        balanced: Whether classes are weighted by the inverse of their frequency.
        score: By the task's metric, the mean of all views.
        features: Which of the features that were considered.
    """

    strength: float
    balanced: bool
    score: float
    features: Any


def views_of(train: Split, dev: Split) -> list[list[Fold]]:
    """Two ways to judge a setting: by cross-validation over train, and on dev. Rows of dev follow those of train.

    Examples of a group are never divided. There is no cross-validation if train is large or has few groups, and no
    view of dev if dev is empty.
    """
    count = len(train.texts)
    rows, views = np.arange(count), []
    if count <= MOST_FOLDED and len(np.unique(train.group)) >= FOLDS:
        views.append(list(GroupKFold(FOLDS).split(rows, groups=train.group)))
    if dev.texts:
        views.append([(rows, count + np.arange(len(dev.texts)))])
    return views


class Search:
    """The best setting considered so far, by the mean of its scores in each view.

    Attributes:
        folds: What is fitted on and what is judged, by turns: those of the first view, then those of the second.
        best: The setting; among equals the one tried first. None before the first.
        tried: How many settings were considered.
    """

    def __init__(self, train: Split, dev: Split, metric: str, labels: list[str] | None) -> None:
        """Judge with `metric`; `labels` are the classes, or None for numbers."""
        self.views = views_of(train, dev)
        self.folds = list(chain.from_iterable(self.views))
        self.gold = np.concatenate([train.gold, dev.gold])
        self.metric, self.classes = metric, 0 if metric in REGRESSION else len(labels or [])
        self.best: Setting | None = None
        self.tried = 0

    def consider(
        self,
        features: Any,
        matrices: Sequence[tuple[Any, Any]],
        strengths: Iterable[float],
        weighted: Sequence[bool] = (False, True),
    ) -> None:
        """Fit a linear model for each strength; for classes, with and without class weights.

        Args:
            features: Names the features in `Setting`.
            matrices: For each fold the features of the examples to fit on and of those to judge.
            strengths: Values of C.
            weighted: Whether to weight classes; both are tried by default.
        """
        for strength, balanced in product(strengths, weighted if self.classes else (False,)):
            predicted = [
                Linear.fit(seen, self.gold[rows], self.classes, strength, balanced).predict(unseen)
                for (rows, _), (seen, unseen) in zip(self.folds, matrices, strict=True)
            ]
            score = self._score(iter(predicted))
            self.tried += 1
            if self.best is None or score > self.best.score:
                self.best = Setting(strength, balanced, score, features)

    def _score(self, predicted: Iterator[NDArray[np.float64]]) -> float:
        scores = []
        for view in self.views:
            judged = np.concatenate([rows for _, rows in view])
            values = np.concatenate([next(predicted) for _ in view])
            scores.append(dev_score(self.metric, self.gold[judged], values))
        return float(np.mean(scores)) if scores else 0.0
