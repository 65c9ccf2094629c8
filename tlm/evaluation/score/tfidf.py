"""tf-idf and linear models, tuned on dev in two rounds: first the features, then the regularisation.

A word is a run of letters and digits of any length, or a run of punctuation. scikit-learn's default pattern drops
one-letter words and punctuation, but entity markers and one-letter words carry the answer in some tasks.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import FeatureUnion
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from tlm.data.tasks.labels import REGRESSION
from tlm.data.tasks.metrics import score
from tlm.errors import InputError
from tlm.evaluation.score.examples import Split
from tlm.evaluation.score.record import Prediction
from tlm.progress import say

WORD = r"\w+|[^\w\s]+"
STRENGTHS = (10.0, 1.0, 3.0, 30.0, 100.0, 300.0)  # C; features are compared at the first one
LARGE = 5_000_000  # characters of training text above which only the cheapest features are tried
MOST_FEATURES = 1_000_000
MOST_ITERATIONS = 1000


@dataclass(frozen=True)
class Setting:
    """One point of the search.

    Attributes:
        words: Length of the longest word n-grams.
        chars: Length of the longest character n-grams; 0 for none.
        min_count: Number of training texts that a feature must occur in.
        balanced: Whether classes are weighted by the inverse of their frequency.
        strength: C of the logistic regression; ridge gets alpha = 10 / C.
    """

    words: int
    chars: int
    min_count: int
    balanced: bool = False
    strength: float = STRENGTHS[0]

    def describe(self) -> dict[str, Any]:
        """The setting as metrics.json and the report show it."""
        return {
            "word n-grams": f"1-{self.words}",
            "character n-grams": f"2-{self.chars}" if self.chars else "none",
            "least count": self.min_count,
            "class weights": "balanced" if self.balanced else "none",
            "C": self.strength,
        }


@dataclass(frozen=True)
class Tuned:
    """A fitted setting.

    Attributes:
        setting: The point of the search.
        features: The vectorizers, fitted on the training texts.
        linear: The model, fitted on the training examples.
        dev: Its score on dev.
    """

    setting: Setting
    features: FeatureUnion
    linear: "Linear"
    dev: float

    def predict(self, split: Split) -> Prediction:
        """Predict class ordinals with probabilities, or floats, for a split."""
        return Prediction(split, *self.linear.predict(_matrix(self.features, split)))


def tune(train: Split, dev: Split, metric: str, labels: list[str] | None) -> tuple[Tuned, int]:
    """Fit on `train`, choose by `metric` on `dev`; among equals the one tried first wins.

    Deterministic. Returns the best setting, fitted, and how many settings were tried.

    Raises:
        InputError: there is no training text, or no text with a word in it.
    """
    if not train.texts:
        raise InputError("the task has no training examples; a baseline needs some")
    classes = 0 if metric in REGRESSION else len(labels or [])
    large = sum(map(len, train.texts)) + sum(map(len, train.pairs or [])) > LARGE
    shapes = [(2, 0, 2)] if large else [(2, 0, 1), (2, 0, 2), (3, 0, 2), (2, 5, 1), (3, 5, 2)]
    search = _Search(train, dev, metric, classes)
    with threadpool_limits(1):  # floats are added up in the same order on every machine
        for setting in (Setting(*shape) for shape in shapes):
            try:
                features = _vectorizers(setting).fit(_texts(train))
            except ValueError:  # scikit-learn's "empty vocabulary" and "no terms remain"
                continue
            search.consider(features, [setting])
        if search.best is None:
            raise InputError("no training text has a word in it; the baseline cannot be fitted")
        first = search.best
        search.consider(first.features, [replace(first.setting, strength=strength) for strength in STRENGTHS[1:]])
    say(f"baseline: {metric} {search.best.dev:.4f} on dev with {search.best.setting.describe()}")
    return search.best, search.tried


class _Search:
    """The best of the settings that were considered so far, and how many these were."""

    def __init__(self, train: Split, dev: Split, metric: str, classes: int) -> None:
        self.train, self.dev, self.metric, self.classes = train, dev, metric, classes
        self.best: Tuned | None = None
        self.tried = 0

    def consider(self, features: FeatureUnion, settings: list[Setting]) -> None:
        """Fit a linear model for each setting; for classes, also with the other choice of class weights."""
        seen, unseen = _matrix(features, self.train), _matrix(features, self.dev)
        for setting in settings:
            other = [replace(setting, balanced=not setting.balanced)] if self.classes else []
            for one in (setting, *other):
                linear = Linear.fit(seen, self.train.gold, one, self.classes)
                dev = score(self.metric, self.dev.gold, linear.predict(unseen)[0])
                self.tried += 1
                if self.best is None or dev > self.best.dev:
                    self.best = Tuned(one, features, linear, dev)


class Linear:
    """One-against-rest logistic regressions, or ridge where `classes` is 0."""

    def __init__(self, models: list[Any], classes: int) -> None:
        self.models, self.classes = models, classes

    @classmethod
    def fit(cls, features: Any, gold: NDArray[Any], setting: Setting, classes: int) -> "Linear":
        """Fit on a sparse matrix [n, features] and gold [n]; a class that no or every example has is constant."""
        if not classes:
            return cls([Ridge(alpha=10 / setting.strength, solver="sparse_cg").fit(features, gold)], 0)
        weight = "balanced" if setting.balanced else None
        models: list[Any] = []
        for label in range(classes - 1 if classes == 2 else classes):
            wanted = gold == label
            if wanted.all() or not wanted.any():
                models.append(float(wanted.all()))
                continue
            model = LogisticRegression(
                C=setting.strength, class_weight=weight, solver="liblinear", random_state=0, max_iter=MOST_ITERATIONS
            )
            models.append(model.fit(features, wanted))
        return cls(models, classes)

    def predict(self, features: Any) -> tuple[NDArray[Any], NDArray[np.float64] | None]:
        """Class ordinals [n] and probabilities [n, classes]; or floats [n] and None."""
        size = features.shape[0]
        if not self.classes:
            return (self.models[0].predict(features) if size else np.zeros(0)), None
        if not size:
            return np.zeros(0, dtype=np.int64), np.zeros((0, self.classes))
        columns = [
            np.full(size, model) if isinstance(model, float) else special.expit(model.decision_function(features))
            for model in self.models
        ]
        if self.classes == 2:
            columns.append(1 - columns[0])
        chances = np.stack(columns, axis=1)
        total = chances.sum(axis=1, keepdims=True)
        chances = np.where(total > 0, chances / np.where(total > 0, total, 1), 1 / self.classes)
        return chances.argmax(axis=1), chances


def _vectorizers(setting: Setting) -> FeatureUnion:
    shared = {"sublinear_tf": True, "min_df": setting.min_count, "max_features": MOST_FEATURES, "dtype": np.float64}
    parts = [("words", TfidfVectorizer(ngram_range=(1, setting.words), token_pattern=WORD, **shared))]
    if setting.chars:
        parts.append(("chars", TfidfVectorizer(analyzer="char_wb", ngram_range=(2, setting.chars), **shared)))
    return FeatureUnion(parts)


def _matrix(features: FeatureUnion, split: Split) -> Any:
    """The features of a split as a sparse matrix, shape [n, features]."""
    return features.transform(_texts(split)) if split.texts else np.zeros((0, 0))


def _texts(split: Split) -> list[str]:
    """The texts of a split; the two texts of a pair become one."""
    if split.pairs is None:
        return split.texts
    return [f"{first} \n {second}" for first, second in zip(split.texts, split.pairs, strict=True)]
