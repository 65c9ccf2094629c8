"""Confidence intervals of scores over seeds and test examples together.

Another seed gives another model, and another draw of test examples another score; both count. The variance of an arm's
mean score is the variance over its seeds, s²/n, plus the variance over the examples, which comes from resampling them.
Whole groups are resampled, because examples that share their text (or service, author, document) are not independent
(cluster bootstrap: Davison and Hinkley 1997, section 3.8). Groups of unequal sizes have fewer degrees of freedom
(`_equal_parts`). All arms use the same draws, so differences are paired by example. The variance of one more answer in
each class is added, as if it could come out differently (in the spirit of Agresti and Min 2005): a class with a few
texts has no spread where all are answered alike, and three or four lucky answers would otherwise decide. The interval
is Student's t with the degrees of freedom of Welch and Satterthwaite. Among m comparisons each interval has the
confidence 1 - 0.05/m (Bonferroni).

The chance that an arm is ahead on new texts is the share of the same t above 0, without a correction: it answers one
question, about two arms that dev chose. With too few seeds for an interval it covers the test examples alone, and
so speaks of the models that were trained, not of another training.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, NotRequired, TypedDict

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import stdtr, stdtrit

from tlm.data.tasks.metrics import (
    BY_EXAMPLE,
    POSITIVE,
    REGRESSION,
    Floats,
    count_classes,
    places_of,
    scores_of,
    sum_in_order,
    sums_of,
)

LEAST_SEEDS = 3  # for an interval
CORRELATIONS = (*REGRESSION, "matthews")  # from -1 to 1; all other scores are from 0 to 1
BY_SHARE = ("accuracy", "micro_f1")  # to which a class adds as much as it has texts; to others, all add the same
CONFIDENCE = 0.95
RESAMPLES = 1000
COUNTS_AT_ONCE, COUNTS_KEPT = 1 << 22, 1 << 26


@dataclass(frozen=True)
class Predictions:
    """Predictions of one arm's runs for the examples of one split.

    Attributes:
        metric: Name of the metric.
        gold: Class ordinals, or floats for regression; shape [n].
        predicted: Predictions of each run; shape [runs, n].
        group: Ordinal of each example's group, from 0; shape [n].
        known: Number of classes that count; an answer with a later one is wrong, and its class has no score. 0: all.
    """

    metric: str
    gold: NDArray[Any]
    predicted: NDArray[Any]
    group: NDArray[np.int64]
    known: int = 0

    @property
    def groups(self) -> int:
        """Number of groups."""
        return int(self.group.max(initial=-1)) + 1

    @property
    def one_more(self) -> float:
        """The variance of one more answer in each class: Σ (w/(g + 1))².

        w is the weight of a class in the score: equal, or its share of the texts; g is the number of groups with it.
        """
        if self.metric in (*REGRESSION, *BY_EXAMPLE):
            classes = np.ones((1, len(self.gold)))
        elif self.metric == POSITIVE:
            classes = self.gold[None] == 1
        else:
            classes = self.gold.T if self.gold.ndim == 2 else self.gold == np.unique(self.gold)[:, None]
        occurring = classes[classes.any(axis=1)] > 0
        weights = occurring.sum(axis=1) if self.metric in BY_SHARE else np.ones(len(occurring))
        groups = np.array([len(np.unique(self.group[rows])) for rows in occurring])
        return float(((weights / weights.sum() / (groups + 1)) ** 2).sum()) or self.groups**-2  # no class of the score

    def same_examples(self, other: "Predictions") -> bool:
        """Whether `other` has the same metric, examples and groups."""
        same = np.array_equal(self.gold, other.gold) and np.array_equal(self.group, other.group)
        return same and self.metric == other.metric

    def resampled(self, resamples: int) -> tuple[Floats, Floats]:
        """Scores of the runs on this split, shape [runs], and on resampled ones, shape [resamples, runs]."""
        flat = self._sums()
        drawn = np.hstack([flat.T @ counts.astype(np.float64) for counts in _counts(self.groups, resamples)])
        sums = np.vstack([flat.sum(axis=0), drawn.T]).reshape(1 + resamples, len(self.predicted), -1)
        if self.known and self.metric == "macro_f1":  # of all others, the class makes its answers wrong
            sums.reshape(*sums.shape[:2], 3, -1)[..., self.known :] = 0
        scores = scores_of(self.metric, sums)
        return scores[0], scores[1:]

    def _sums(self) -> Any:
        """The sums of each group for all runs, side by side; sparse where most are 0: each answer has one class."""
        if self.gold.ndim == 2 or self.metric in REGRESSION:
            return np.hstack([sums_of(self.metric, self.gold, run, self.group, self.groups) for run in self.predicted])
        classes = count_classes(self.gold, self.predicted)  # of any run
        places = [places_of(self.gold, run, self.group, classes) for run in self.predicted]
        shape = (self.groups, 3 * classes)
        return sparse.hstack([sparse.coo_array((np.ones(len(one[0])), one), shape=shape) for one in places], "csr")


@dataclass(frozen=True)
class Arm:
    """Runs that differ in their seed only.

    Attributes:
        splits: Predictions for one split, or for one split of each of several tasks, whose scores are averaged.
        fixed: Training draws no random numbers, so one run is enough for an interval (a linear model).
        draws: Number of the draw of text that each run learned from; () if no text was drawn. Runs on one draw have its
            luck in common, so draws count in place of seeds.
        resamples: Number of resampled test sets.
    """

    splits: tuple[Predictions, ...]
    fixed: bool = False
    draws: tuple[int, ...] = ()
    resamples: int = RESAMPLES

    @cached_property
    def _scored(self) -> tuple[Floats, Floats]:
        """`scores` and `mean_resampled`, added up once; the resampled scores of each run are not kept."""
        found = [split.resampled(self.resamples) for split in self.splits]
        scores = np.asarray(np.mean([scores for scores, _ in found], axis=0), np.float64)
        return scores, np.array([resampled.mean(axis=1) for _, resampled in found])

    @property
    def scores(self) -> Floats:
        """Score of each run, shape [runs]."""
        return self._scored[0]

    @property
    def mean_resampled(self) -> Floats:
        """Mean score of the runs on each resampled split, shape [splits, resamples]."""
        return self._scored[1]

    @cached_property
    def independent(self) -> Floats:
        """The mean score of each draw of text; of each run, if no text was drawn."""
        draws = np.array(self.draws or range(len(self.scores)))
        return np.array([self.scores[draws == draw].mean() for draw in np.unique(draws)])

    @property
    def counts(self) -> bool:
        """Whether there are enough seeds, or draws, for an interval."""
        return (self.fixed and not self.draws) or len(self.independent) >= LEAST_SEEDS

    def seed_variance(self) -> tuple[float, int]:
        """Variance of the mean over seeds or draws, and its degrees of freedom.

        The mean is that of all runs, so a draw that several runs learned from counts for more in it than another.
        """
        if self.fixed and not self.draws:
            return 0.0, 1
        found = self.independent
        return float(np.var(found, ddof=1)) / _equal_parts(self.draws or range(len(found))), len(found) - 1


class Interval(NamedTuple):
    """A mean score or a difference with the ends of its interval, which are None where there are too few seeds."""

    mean: float
    low: float | None
    high: float | None

    @property
    def sign(self) -> int:
        """1 or -1 where the interval lies above or below 0, else 0."""
        return 0 if self.low is None or self.high is None else int(self.low > 0) - int(self.high < 0)


class Difference(TypedDict):
    """The `difference` of two arms, the name of the one ahead ("" if not shown), the `chance` that it is the first.

    ``question`` is what a report asks of the first.
    """

    first: str
    second: str
    ahead: str
    chance: float
    mean: float
    low: float | None
    high: float | None
    question: NotRequired[str]


def interval(arm: Arm) -> Interval:
    """The arm's mean score with its 95 % interval."""
    return _interval([arm], float(arm.scores.mean()), arm.mean_resampled, 1)


def chance(first: Arm, second: Arm) -> float:
    """The probability that the mean score of the first arm is above that of the second on new texts.

    Over seeds and test examples where both arms have enough seeds; else over test examples alone.
    """
    seeded = [first, second] if first.counts and second.counts else []
    total, freedom = _variance(seeded, first.splits, first.mean_resampled - second.mean_resampled)
    return float(stdtr(freedom, (first.scores.mean() - second.scores.mean()) / total**0.5))


def difference(first: Arm, second: Arm, comparisons: int = 1) -> Interval:
    """The difference of two arms' mean scores, paired by example; the interval is corrected for `comparisons`.

    Raises:
        ValueError: the arms were not scored on the same examples.
    """
    if not all(one.same_examples(other) for one, other in zip(first.splits, second.splits, strict=True)):
        raise ValueError("the arms were scored on different examples")
    mean = float(first.scores.mean() - second.scores.mean())
    return _interval([first, second], mean, first.mean_resampled - second.mean_resampled, comparisons)


def compared(names: tuple[str, str], first: Arm, second: Arm, comparisons: int) -> Difference:
    """The `difference` of two arms with their names."""
    mean, low, high = found = difference(first, second, comparisons)
    ahead, likely = {1: names[0], 0: "", -1: names[1]}[found.sign], chance(first, second)
    return Difference(first=names[0], second=names[1], ahead=ahead, chance=likely, mean=mean, low=low, high=high)


def differences(arms: Mapping[str, Arm], pairs: Sequence[tuple[str, str]]) -> list[Difference]:
    """Each pair of arms `compared`, named as in `arms`.

    Corrected for the number of pairs that have an interval: no other order can be claimed.
    """
    tested = max(1, sum(arms[one].counts and arms[other].counts for one, other in pairs))
    return [compared((one, other), arms[one], arms[other], tested) for one, other in pairs]


class _Spread(TypedDict):
    values: list[float]
    std: float | None
    low: float | None
    high: float | None


class Spread(_Spread):
    """Values, their standard deviation (from 2 on), and the 95 % interval of their mean (from `LEAST_SEEDS` on).

    ``mean`` is None where there is no value.
    """

    mean: float | None


class Score(_Spread):
    """The `Spread` of a score, which every run has."""

    mean: float


def spread(values: Iterable[float | None]) -> Spread:
    """The spread of the values that are there."""
    found = [float(value) for value in values if value is not None]
    mean = float(np.mean(found)) if found else None
    std = float(np.std(found, ddof=1)) if len(found) > 1 else None
    low = high = None
    if mean is not None and std is not None and len(found) >= LEAST_SEEDS:
        half = t_quantile(CONFIDENCE, len(found) - 1) * std / len(found) ** 0.5
        low, high = mean - half, mean + half
    return Spread(values=found, mean=mean, std=std, low=low, high=high)


def with_interval(arm: Arm, values: Iterable[float] | None = None) -> Score:
    """The spread of an arm's scores (or these `values`) over its seeds; the interval also over test examples."""
    least = -1.0 if arm.splits[0].metric in CORRELATIONS else 0.0
    low, high = (None if end is None else min(max(end, least), 1.0) for end in interval(arm)[1:])
    seeds = spread(arm.scores if values is None else values)
    return Score(values=seeds["values"], mean=float(np.mean(seeds["values"])), std=seeds["std"], low=low, high=high)


def t_quantile(confidence: float, degrees: int) -> float:
    """The t with P(-t < T < t) = `confidence` for Student's T."""
    return float(stdtrit(degrees, (1 + confidence) / 2))


def _interval(arms: Sequence[Arm], mean: float, resampled: Floats, comparisons: int) -> Interval:
    """Student's t interval from the variances over seeds and over examples (`resampled`, shape [splits, resamples])."""
    if not all(arm.counts for arm in arms):
        return Interval(mean, None, None)
    total, freedom = _variance(arms, arms[0].splits, resampled)
    half = t_quantile(1 - (1 - CONFIDENCE) / comparisons, freedom) * total**0.5
    return Interval(mean, mean - half, mean + half)


def _variance(arms: Sequence[Arm], splits: Sequence[Predictions], resampled: Floats) -> tuple[float, int]:
    """The variance over the seeds of `arms` and over examples, and its degrees of freedom."""
    seeds = [arm.seed_variance() for arm in arms]
    examples = [
        (_of_examples(scores, split) / len(splits) ** 2, max(1.0, _equal_parts(split.group) - 1))
        for scores, split in zip(resampled, splits, strict=True)
    ]
    parts = [(variance, degrees) for variance, degrees in [*seeds, *examples] if variance > 0]
    total = sum_in_order(variance for variance, _ in parts)
    return total, int(total**2 / sum_in_order(variance**2 / degrees for variance, degrees in parts) + 1e-9)


def _equal_parts(places: Sequence[int] | NDArray[np.int64]) -> float:
    """How many equal parts say as much as parts of m texts or runs each: (Σ m)² / Σ m² (Kish, Survey Sampling, 1965).

    It is Satterthwaite's number of degrees of freedom where a part's variance grows with its size. Where one group has
    half of the texts, the number of all groups gave intervals that held the true score in 88 % of cases.

    Args:
        places: The part that each text, or run, belongs to.
    """
    return float(len(places) ** 2 / (np.bincount(places) ** 2).sum())


def _of_examples(scores: Floats, split: Predictions) -> float:
    """The variance over examples, and that of one more answer in each class.

    One answer hardly changes a correlation of numbers. Spearman's needs it all the same: with the ranks of the whole
    split, its resamples differ too little.
    """
    own = float(np.var(scores, ddof=1))
    return own if own > 0 and split.metric == "pearson" else own + split.one_more


def _counts(groups: int, resamples: int) -> Iterable[NDArray[np.uint8]]:
    """Counts of each group in each resample, shape [groups, part of resamples]; the same at every call."""
    return (_kept if groups * resamples <= COUNTS_KEPT else _drawn)(groups, resamples)


@lru_cache(maxsize=4)  # dev and test, with and without copies
def _kept(groups: int, resamples: int) -> list[NDArray[np.uint8]]:
    return list(_drawn(groups, resamples))


def _drawn(groups: int, resamples: int) -> Iterator[NDArray[np.uint8]]:
    """Draw the `_counts`. A byte is enough: the chance that one reaches 256 is below 10**-500."""
    rng = np.random.default_rng(0)
    at_once = max(1, COUNTS_AT_ONCE // max(1, groups))
    for start in range(0, resamples, at_once):
        rows = min(at_once, resamples - start)
        drawn = rng.integers(groups, size=(rows, groups)) + groups * np.arange(rows)[:, None]
        yield np.bincount(drawn.ravel(), minlength=rows * groups).reshape(rows, groups).T.astype(np.uint8, order="C")
