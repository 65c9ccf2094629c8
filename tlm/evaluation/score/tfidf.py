"""tf-idf and linear models, tuned on dev in two rounds: first the features, then the regularisation.

Words here are runs of letters and digits of any length, and runs of punctuation: entity markers and one-letter
words carry the answer in some tasks, and the usual pattern drops both.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse, special
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from tlm.errors import InputError
from tlm.evaluation.score.examples import Split
from tlm.evaluation.score.metrics import score
from tlm.evaluation.score.record import Prediction
from tlm.progress import say

WORD = r"\w+|[^\w\s]+"
STRENGTHS = (10.0, 1.0, 3.0, 30.0, 100.0, 300.0)  # C; the first one judges the features
LARGE = 5_000_000  # characters of training text, above which only the cheaper features are tried
MOST_FEATURES = 1_000_000
MOST_ITERATIONS = 1000


@dataclass(frozen=True)
class Setting:
    """One point of the search: word n-grams up to `words`, character n-grams up to `chars` (0: none), and so on.

    `strength` is C of the logistic regression; ridge gets alpha = 10 / C.
    """

    words: int = 2
    chars: int = 0
    min_count: int = 1
    balanced: bool = False
    strength: float = STRENGTHS[0]

    def describe(self) -> dict[str, Any]:
        """For metrics.json and the report."""
        return {
            "word n-grams": f"1-{self.words}",
            "character n-grams": f"2-{self.chars}" if self.chars else "none",
            "least count": self.min_count,
            "class weights": "balanced" if self.balanced else "none",
            "C": self.strength,
        }


@dataclass
class Tuned:
    """The model that was best on dev: `chosen` says which, `tried` how many were compared."""

    features: "Features"
    linear: "Linear"
    chosen: dict[str, Any]
    tried: int

    def predict(self, split: Split) -> Prediction:
        """Class ordinals with probabilities, or floats, of a split."""
        predicted, chances = self.linear.predict(self.features.of(split))
        return Prediction(split, predicted, chances)


def tune(train: Split, dev: Split, metric: str, labels: list[str] | None) -> Tuned:
    """Fit on `train`, choose by `metric` on `dev`; of equals the simpler, earlier tried one. Deterministic.

    Raises:
        InputError: there is no training text, or no text with a word in it.
    """
    if not train.texts:
        raise InputError("the task has no training examples; a baseline needs some")
    classes = 0 if metric in ("pearson", "spearman") else len(labels or [])
    with threadpool_limits(1):  # sums in one order, whatever the machine has
        first = _round([*_feature_settings(train, classes)], train, dev, metric, classes)
        if not first:
            raise InputError("no training text has a word in it; the baseline cannot be fitted")
        best = max(first, key=lambda trial: trial[0])
        second = _round([*_strength_settings(best[1], classes)], train, dev, metric, classes)
    value, setting, features, linear = max([best, *second], key=lambda trial: trial[0])
    say(f"baseline: {metric} {value:.4f} on dev with {setting.describe()}")
    return Tuned(features, linear, setting.describe(), len(first) + len(second))


Trial = tuple[float, Setting, "Features", "Linear"]


def _round(settings: list[Setting], train: Split, dev: Split, metric: str, classes: int) -> list[Trial]:
    trials: list[Trial] = []
    features = None
    for setting in settings:
        if features is None or not features.serves(setting):
            features = Features.fit(train, setting)
            if features is None:
                continue
            seen, unseen = features.of(train), features.of(dev)
        linear = Linear.fit(seen, train.gold, setting, classes)
        predicted, _ = linear.predict(unseen)
        trials.append((score(metric, dev.gold, predicted), setting, features, linear))
    return trials


def _feature_settings(train: Split, classes: int) -> Iterator[Setting]:
    large = sum(map(len, train.texts)) + sum(map(len, train.pairs or [])) > LARGE
    shapes = [(2, 0, 2)] if large else [(2, 0, 1), (2, 0, 2), (3, 0, 2), (2, 5, 1), (3, 5, 2)]
    for words, chars, min_count in shapes:
        yield Setting(words, chars, min_count)
        if classes:
            yield Setting(words, chars, min_count, balanced=True)


def _strength_settings(best: Setting, classes: int) -> Iterator[Setting]:
    for strength in STRENGTHS[1:]:
        yield replace(best, strength=strength)
        if classes:
            yield replace(best, strength=strength, balanced=not best.balanced)


class Features:
    """tf-idf features fitted on the training texts; a pair's texts are read as one."""

    def __init__(self, setting: Setting, parts: list[Any]) -> None:
        self.setting, self.parts = setting, parts

    @classmethod
    def fit(cls, train: Split, setting: Setting) -> "Features | None":
        """None where the training texts have no such feature."""
        shared = {"sublinear_tf": True, "min_df": setting.min_count, "max_features": MOST_FEATURES, "dtype": np.float64}
        parts = [TfidfVectorizer(ngram_range=(1, setting.words), token_pattern=WORD, **shared)]
        if setting.chars:
            parts.append(TfidfVectorizer(analyzer="char_wb", ngram_range=(2, setting.chars), **shared))
        try:
            return cls(setting, [part.fit(_texts(train)) for part in parts])
        except ValueError:  # scikit-learn's "empty vocabulary" and "no terms remain"
            return None

    def of(self, split: Split) -> Any:
        """A sparse matrix, shape [n, features]."""
        texts = _texts(split)
        if not texts:
            return sparse.csr_matrix((0, sum(len(part.vocabulary_) for part in self.parts)))
        return sparse.hstack([part.transform(texts) for part in self.parts]).tocsr()

    def serves(self, setting: Setting) -> bool:
        """Whether `setting` asks for the same features."""
        mine = self.setting
        return (mine.words, mine.chars, mine.min_count) == (setting.words, setting.chars, setting.min_count)


class Linear:
    """One-against-rest logistic regressions, or ridge where `classes` is 0."""

    def __init__(self, models: list[Any], classes: int) -> None:
        self.models, self.classes = models, classes

    @classmethod
    def fit(cls, features: Any, gold: NDArray[Any], setting: Setting, classes: int) -> "Linear":
        """Fit on a sparse matrix [n, features] and gold [n]; a class that train lacks (or has alone) is constant."""
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


def _texts(split: Split) -> list[str]:
    if split.pairs is None:
        return split.texts
    return [f"{first} \n {second}" for first, second in zip(split.texts, split.pairs, strict=True)]
