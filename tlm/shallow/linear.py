"""Linear models of sparse or dense features, and the choice of their settings by cross-validation."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse, special
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GroupKFold

from tlm.data.marks import Marks, listed_marks
from tlm.data.tasks.metrics import UNFITTED, Floats, Split, Texts, dev_score, fitted_thresholds
from tlm.progress import Meter, say
from tlm.shallow.features import joined
from tlm.shallow.folder import FAMILY, Arrays
from tlm.shallow.temperature import fitted_temperature

MOST_ITERATIONS = 1000


@dataclass(frozen=True)
class Linear:
    """Weights of a linear model.

    Attributes:
        weights: One row for each class, or a single row for two classes (the first one's) and for numbers.
        bias: Of each row; infinite where a class has all or none of the training examples.
        classes: Number of classes; 0 for numbers.
        softmax: Whether the rows are normalised together, not each by itself.
        thresholds: Of each label, where a text may have several; else None.
        temperature: That of the probabilities, if a text has one label; else 1.
    """

    weights: Floats
    bias: Floats
    classes: int
    softmax: bool = False
    thresholds: list[float] | None = None
    temperature: float = 1.0

    @classmethod
    def fit(
        cls, features: Any, gold: NDArray[Any], classes: int, strength: float, balanced: bool, log: Meter | None = None
    ) -> "Linear":
        """Fit a model. It is deterministic where BLAS uses one thread.

        Args:
            features: Sparse or dense matrix, shape [n, features].
            gold: Class ordinals, or numbers, shape [n]; 0/1 of several labels, shape [n, classes].
            classes: Number of classes; 0 for numbers.
            strength: C of the logistic regression, the inverse of the regularisation; ridge gets alpha = 10 / C.
            balanced: Whether classes are weighted by the inverse of their frequency.
            log: Says which class is being fitted, where each takes a fit of its own.
        """
        if not classes:
            solver = "sparse_cg" if sparse.issparse(features) else "cholesky"
            ridge = Ridge(alpha=10 / strength, solver=solver).fit(features, gold)
            return cls(ridge.coef_[np.newaxis], np.array([ridge.intercept_]), 0)
        options = {"C": strength, "class_weight": "balanced" if balanced else None, "max_iter": MOST_ITERATIONS}
        if gold.ndim == 1 and not sparse.issparse(features) and len(np.unique(gold)) > 2:
            model = LogisticRegression(random_state=0, **options).fit(features, gold)
            weights, bias = np.zeros((classes, features.shape[1])), np.full(classes, -np.inf)
            weights[model.classes_], bias[model.classes_] = model.coef_, model.intercept_
            return cls(weights, bias, classes, softmax=True)
        return _one_vs_rest(features, gold, classes, options, log)

    @classmethod
    def restored(cls, config: dict[str, Any], arrays: Arrays) -> "Linear":
        """Return the model of this `state`; `config` also has its labels. Raises ValueError if they do not fit."""
        classes, thresholds = len(config["labels"] or []), config.get("thresholds")
        if len(arrays["weights"]) not in ((1, 2) if classes == 2 else (max(classes, 1),)):
            raise ValueError(f"weights of {len(arrays['weights'])} classes, and {classes} labels")
        temperature = config.get("temperature", 1.0)
        return cls(arrays["weights"], arrays["bias"], classes, config["softmax"], thresholds, temperature)

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Return the values and arrays that a folder keeps of the model."""
        more: dict[str, Any] = {} if self.thresholds is None else {"thresholds": self.thresholds}
        if self.temperature != 1:
            more["temperature"] = self.temperature
        return {"softmax": self.softmax, **more}, {"weights": self.weights, "bias": self.bias}

    def predict(self, features: Any) -> Floats:
        """Probabilities, shape [n, classes]; or numbers, shape [n, 1]."""
        values = np.asarray(features @ self.weights.T) + self.bias
        if not self.classes:
            return values
        if self.softmax:
            return special.softmax(values / self.temperature, axis=1)  # type: ignore[no-any-return]
        chances: Floats = special.expit(values, out=values)  # with many texts and classes, nothing else is as large
        if self.thresholds is not None:
            return chances
        if self.classes == 2:
            chances = np.hstack([chances, 1 - chances])
        chances **= 1 / self.temperature
        total = chances.sum(axis=1, keepdims=True)
        return np.divide(chances, total, out=np.full_like(chances, 1 / self.classes), where=total > 0)  # type: ignore[no-any-return]


def _one_vs_rest(
    features: Any, gold: NDArray[np.int64], classes: int, options: dict[str, Any], log: Meter | None
) -> Linear:
    """Fit a model to each class against all others, or to each of several labels; of two classes, to the first one."""
    several = gold.ndim == 2
    rows = 1 if classes == 2 and not several else classes
    weights, bias = np.zeros((rows, features.shape[1])), np.zeros(rows)
    for label in range(rows):
        if log is not None:
            log.advance(0, f"class {label + 1:,} of {rows:,}")
        positive = gold[:, label] == 1 if several else gold == label
        if positive.all():
            bias[label] = np.inf
        elif not positive.any():
            bias[label] = -np.inf
        else:
            model = LogisticRegression(solver="liblinear", random_state=0, **options).fit(features, positive)
            weights[label], bias[label] = model.coef_[0], model.intercept_[0]
    return Linear(weights, bias, classes, thresholds=[UNFITTED] * classes if several else None)


FOLDS = 3
MOST_FOLDED = 5_000  # training examples; with more, dev is enough to choose by
STRENGTHS = (10.0, 1.0, 3.0, 30.0, 100.0, 300.0)  # of sparse features; the first two are tried with each shape
DENSE_STRENGTHS = (0.003, 0.001, 0.01, 0.03, 0.1)

Represent = Callable[[Texts, Texts | None], Floats]
Fold = tuple[NDArray[np.int64], NDArray[np.int64]]  # rows to fit on, and rows to judge


@dataclass(frozen=True)
class Setting:
    """One point of the search.

    Attributes:
        strength: C of the logistic regression; ridge gets alpha = 10 / C.
        balanced: Whether classes are weighted by the inverse of their frequency.
        score: By the task's metric, the mean of all views.
        features: Which of the features that were considered.
        predicted: For each fold, what its model predicts for the examples that it judges.
    """

    strength: float
    balanced: bool
    score: float
    features: Any
    predicted: list[Floats]


def views_of(train: Split, dev: Split) -> list[list[Fold]]:
    """Two ways to judge a setting: by cross-validation over train, and on dev. Rows of dev follow those of train.

    Examples of a group are never divided. There is no cross-validation if train is large or has few groups.
    """
    count = len(train.texts)
    rows, views = np.arange(count), []
    if count <= MOST_FOLDED and len(np.unique(train.group)) >= FOLDS:
        views.append(list(GroupKFold(FOLDS).split(rows, groups=train.group)))
    return [*views, [(rows, count + np.arange(len(dev.texts)))]]


class Given(NamedTuple):
    """What a shallow model is fitted to.

    Attributes:
        train: The examples to fit on.
        dev: More examples to choose settings by.
        metric: What to choose by.
        labels: The classes; None for numbers.
        marks: The marks around spans; None: look for them.
    """

    train: Split
    dev: Split
    metric: str
    labels: list[str] | None
    marks: Marks | None = None


SHOWN_EVERY = 100  # texts


class _Shown(list[str]):
    def __init__(self, meter: Meter, texts: Iterable[str]) -> None:
        super().__init__(texts)
        self._meter = meter

    def __iter__(self) -> Iterator[str]:
        for number, text in enumerate(super().__iter__(), 1):
            if number % SHOWN_EVERY == 0:
                self._meter.advance(0, f"text {number:,} of {len(self):,}")
            yield text


class Search:
    """The best setting considered so far, by the mean of its scores in each view.

    Attributes:
        folds: What is fitted on and what is judged, by turns: those of the first view, then those of the second.
        best: The setting; among equals the one tried first. None before the first.
        tried: How many settings were considered.
    """

    def __init__(self, given: Given) -> None:
        """Judge nothing yet."""
        self.views = views_of(given.train, given.dev)
        self.folds = [fold for view in self.views for fold in view]
        self.gold = np.concatenate([given.train.gold, given.dev.gold])
        self.metric, self.classes = given.metric, len(given.labels or [])
        self.best: Setting | None = None
        self.tried = 0
        self._meter = Meter("linear model", unit="settings tried")

    def consider(
        self, features: Any, matrices: list[Any], strengths: Iterable[float], weighted: Sequence[bool] = (False, True)
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
                Linear.fit(seen, self.gold[rows], self.classes, strength, balanced, self._meter).predict(unseen)
                for (rows, _), (seen, unseen) in zip(self.folds, matrices, strict=True)
            ]
            score = self._score(predicted)
            self.tried += 1
            self._meter.advance(1)
            if self.best is None or score > self.best.score:
                self.best = Setting(strength, balanced, score, features, predicted)

    def shown(self, texts: Iterable[str]) -> list[str]:
        """Texts that show how far they are read: their words take minutes to count if they are long."""
        return _Shown(self._meter, texts)

    def fitted(self, features: Any, about: dict[str, Any], name: str) -> tuple[Linear, dict[str, Any]]:
        """Fit the training examples with the best setting. Returns the model, and the setting for the report.

        Args:
            features: Those of the training examples; sparse or dense matrix.
            about: What else was chosen.
            name: What is fitted, for the log.
        """
        best, gold = self.best, self.gold[: features.shape[0]]
        assert best is not None, "something was considered"
        found = Linear.fit(features, gold, self.classes, best.strength, best.balanced, self._meter)
        self._meter.close()
        chosen = {**about, "class weights": "balanced" if best.balanced else "none", "C": best.strength}
        if self.gold.ndim == 2:
            thresholds = fitted_thresholds(np.concatenate(best.predicted), self._judged_gold(self.folds))
            found = replace(found, thresholds=thresholds.tolist())
        elif self.classes:  # on dev, the last fold, which this very model predicted, not one of less text
            chosen["temperature"] = fitted_temperature(best.predicted[-1], self._judged_gold(self.folds[-1:]))
            found = replace(found, temperature=chosen["temperature"])
        where = "on dev" if len(self.views) == 1 else "(mean of dev and cross-validation)"
        say(f"{name}: {self.metric} {best.score:.4f} {where} with {', '.join(f'{k} {v}' for k, v in chosen.items())}")
        return found, chosen

    def _judged_gold(self, folds: list[Fold]) -> NDArray[Any]:
        """The gold of the examples that are judged in these folds."""
        return self.gold[np.concatenate([rows for _, rows in folds])]  # type: ignore[no-any-return]

    def _score(self, predicted: list[Floats]) -> float:
        """The mean score of the views, from what is predicted in each of the `folds`."""
        scores, of_folds = [], iter(predicted)
        for view in self.views:
            values = np.concatenate(list(islice(of_folds, len(view))))
            scores.append(dev_score(self.metric, self._judged_gold(view), values))
        return float(np.mean(scores))


@dataclass(frozen=True)
class Dense:
    """A fitted model.

    Attributes:
        centre: Mean of each feature over the training examples.
        scale: Standard deviation of each feature; 1 where it is constant.
        linear: The model of the standardised features.
        chosen: The settings that were chosen, for the report.
        tried: How many settings were tried.
    """

    centre: Floats
    scale: Floats
    linear: Linear
    chosen: dict[str, Any]
    tried: int = 0

    @classmethod
    def fit(cls, represent: Represent, given: Given, name: str) -> "Dense":
        """Choose the regularisation, and fit the choice on the training examples.

        Args:
            represent: Makes the features of texts, and their second texts.
            given: What to fit to.
            name: What the features are, for the log.
        """
        train, dev = given.train, given.dev
        count = len(train.texts)
        pairs = None if train.pairs is None else [*train.pairs, *(dev.pairs or [])]
        features = represent([*train.texts, *dev.texts], pairs)
        centre, scale = features[:count].mean(axis=0), features[:count].std(axis=0)
        scale[scale < 1e-9] = 1.0
        both = (features - centre) / scale
        search = Search(given)
        search.consider(name, [(both[seen], both[unseen]) for seen, unseen in search.folds], DENSE_STRENGTHS)
        linear, chosen = search.fitted(both[:count], {}, name)
        return cls(centre, scale, linear, chosen, search.tried)


@dataclass(frozen=True)
class OnDense:
    """What models of dense features have in common.

    Attributes:
        labels: The classes in the order of the probabilities; None for numbers.
        marks: The marks around spans.
        dense: The model of the features.
        pair: Whether the examples are pairs of texts.
    """

    labels: list[str] | None
    marks: Marks
    dense: Dense
    pair: bool

    @property
    def linear(self) -> Linear:
        """The linear model."""
        return self.dense.linear

    @property
    def tried(self) -> int:
        """The number of settings that were tried."""
        return self.dense.tried

    def state(self, family: str) -> tuple[dict[str, Any], Arrays]:
        """Return the config and the arrays that a folder keeps of a model of this family."""
        (values, arrays), dense = self.linear.state(), self.dense
        config = {FAMILY: family, "labels": self.labels, **values, "chosen": dense.chosen, "marks": self.marks}
        return config | {"pair": self.pair}, arrays | {"centre": dense.centre, "scale": dense.scale}

    @staticmethod
    def restored(config: dict[str, Any], arrays: Arrays) -> tuple[list[str] | None, Marks, Dense, bool]:
        """Return the attributes of the model of this `state`, in their order."""
        dense = Dense(arrays["centre"], arrays["scale"], Linear.restored(config, arrays), config["chosen"])
        return config["labels"], listed_marks(config.get("marks", ())), dense, config["pair"]

    def represented(self, texts: Texts, pairs: Texts | None) -> Floats:
        """The features of texts, or of pairs; shape [n, features]."""
        raise NotImplementedError

    def predict(self, texts: Texts, pairs: Texts | None = None) -> Floats:
        """Probabilities, shape [n, classes]; or numbers, shape [n, 1].

        A model of pairs takes missing second texts as empty; one of single texts joins them with theirs.
        """
        return self.linear.predict(self.standardised(texts, pairs))

    def standardised(self, texts: Texts, pairs: Texts | None) -> Floats:
        """The features of texts that the linear model reads, shape [n, features]."""
        return (self.represented(*self.given(texts, pairs)) - self.dense.centre) / self.dense.scale

    def given(self, texts: Texts, pairs: Texts | None) -> tuple[Texts, Texts | None]:
        """The texts and second texts that the model represents."""
        return (texts, pairs or [""] * len(texts)) if self.pair else (joined(texts, pairs), None)


def of_pairs(first: Floats, second: Floats) -> Floats:
    """Features of pairs from those of their texts: both, their product and their difference."""
    return np.hstack([first, second, first * second, np.abs(first - second)])
