"""Linear models: one-against-rest logistic regressions of sparse features, a softmax of dense ones, or ridge."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse, special
from sklearn.linear_model import LogisticRegression, Ridge

MOST_ITERATIONS = 1000


@dataclass(frozen=True)
class Linear:
    """Weights of a linear model.

    Attributes:
        weights: One row for each class, or a single row for two classes (the first one's) and for numbers.
        bias: Of each row; infinite where a class has all or none of the training examples.
        classes: Number of classes; 0 for numbers.
        softmax: Whether the rows are normalised together, not each by itself.
    """

    weights: NDArray[np.float64]
    bias: NDArray[np.float64]
    classes: int
    softmax: bool = False

    @classmethod
    def fit(cls, features: Any, gold: NDArray[Any], classes: int, strength: float, balanced: bool) -> "Linear":
        """Fit a model. It is deterministic where BLAS uses one thread.

        Args:
            features: Sparse or dense matrix, shape [n, features].
            gold: Class ordinals, or numbers; shape [n].
            classes: Number of classes; 0 for numbers.
            strength: C of the logistic regression, the inverse of the regularisation; ridge gets alpha = 10 / C.
            balanced: Whether classes are weighted by the inverse of their frequency.
        """
        if not classes:
            solver = "sparse_cg" if sparse.issparse(features) else "cholesky"
            ridge = Ridge(alpha=10 / strength, solver=solver).fit(features, gold)
            return cls(ridge.coef_[np.newaxis], np.array([ridge.intercept_]), 0)
        options = {
            "C": strength,
            "class_weight": "balanced" if balanced else None,
            "max_iter": MOST_ITERATIONS,
            "random_state": 0,
        }
        if not sparse.issparse(features) and len(np.unique(gold)) > 2:
            return cls._softmax(LogisticRegression(**options).fit(features, gold), classes)
        rows = classes - 1 if classes == 2 else classes
        weights, bias = np.zeros((rows, features.shape[1])), np.zeros(rows)
        for label in range(rows):
            wanted = gold == label
            if wanted.all() or not wanted.any():
                bias[label] = np.inf if wanted.all() else -np.inf
                continue
            model = LogisticRegression(solver="liblinear", **options).fit(features, wanted)
            weights[label], bias[label] = model.coef_[0], model.intercept_[0]
        return cls(weights, bias, classes)

    @classmethod
    def _softmax(cls, model: Any, classes: int) -> "Linear":
        weights, bias = np.zeros((classes, model.coef_.shape[1])), np.full(classes, -np.inf)
        weights[model.classes_], bias[model.classes_] = model.coef_, model.intercept_
        return cls(weights, bias, classes, softmax=True)

    def predict(self, features: Any) -> NDArray[np.float64]:
        """Probabilities, shape [n, classes]; or numbers, shape [n, 1]."""
        values = np.asarray(features @ self.weights.T) + self.bias
        if not self.classes:
            return values
        if self.softmax:
            return special.softmax(values, axis=1)  # type: ignore[no-any-return]
        chances = special.expit(values)
        if self.classes == 2:
            chances = np.hstack([chances, 1 - chances])
        total = chances.sum(axis=1, keepdims=True)
        return np.where(total > 0, chances / np.where(total > 0, total, 1), 1 / self.classes)
