"""The study `worlds`: do a report's intervals, its choice of a model and cascades keep what they promise?

A world is made up, so the truth is known. A text is answered right if it is easier than the model is skilled in its
class; how easy it is has a part of all models, of its group, of the model and of the run. Wrong answers mostly name
frequent classes. Scores of unlimited texts are computed from these probabilities, not drawn.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, softmax

from tlm.data.tasks.metrics import Floats, score, scores_of
from tlm.evaluation.predict.predictor import fitted_cascade
from tlm.evaluation.report.findings import challenger, recommended
from tlm.evaluation.score.intervals import Arm, Predictions, compared, difference, interval
from tlm.settings.options import NOT_NEGATIVE, POSITIVE

KEPT = Path(__file__).parent / "results" / "worlds" / "worlds.jsonl"
METRIC, RESAMPLES, TOLERANCE = "macro_f1", 200, 0.005
OF_ALL, OF_GROUP, OF_MODEL, OF_RUN = 0.5, 0.2, 0.2, 0.1  # parts of the variance of how easy a text is
SKILL, OWN_TEXT = 0.8, 0.3  # of a model in all classes; and how far a text alone is behind its mixture
ROWS = {"linear": "linear"} | {f"static-{text}": "static" for text in ("bm25", "random", "task-only")}
ROWS |= {f"{name} + linear": "static + linear" for name, kind in ROWS.items() if kind == "static"}
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(31)  # for means over effects of draws

Ints = NDArray[np.int64]
Generator = np.random.Generator


class World(NamedTuple):
    """What test sets and arms are drawn from.

    Attributes:
        shares: Of the classes.
        texts: In a test set.
        sizes: How many texts each group has, relative to the others; () where each text is a group.
        draws: The draw of text that each run learned from; () for one run of a model without chance.
        spread: Standard deviation of the skill between draws.
    """

    shares: Floats
    texts: int
    sizes: tuple[float, ...] = ()
    draws: tuple[int, ...] = ()
    spread: float = 0.12


def uneven(classes: int, steepness: float) -> Floats:
    """Shares of classes that fall with their rank."""
    shares = np.arange(1, classes + 1.0) ** -steepness
    return np.asarray(shares / shares.sum(), np.float64)


THREE = np.array([0.5, 0.3, 0.2])
INTERVALS = {
    **{f"{classes} classes, {n} texts": World(uneven(classes, 1.0), n) for classes in (3, 20) for n in (50, 200, 1000)},
    "80 groups of 5": World(THREE, 400, (1,) * 80),
    "16 groups of 25": World(THREE, 400, (1,) * 16),
    "40 groups, one has 30 %": World(THREE, 400, (16.7, *(1,) * 39)),
    "100 groups, one has 50 %": World(THREE, 400, (99, *(1,) * 99)),
    "50 groups, very uneven": World(THREE, 400, tuple(np.exp(1.5 * np.linspace(-2, 2.3, 50)))),
    "3 draws": World(THREE, 800, draws=(0, 1, 2)),
    "10 runs on one draw, 1 on each of 9": World(THREE, 800, draws=(*(0,) * 10, *range(1, 10))),
}
GAINS = {"others worse": (-0.1, 0.06), "about as good": (0, 0.04), "differ": (0, 0.15), "better": (0.1, 0.08)}
SIZES = ((50, 50), (100, 139), (450, 500))  # texts of dev and test
DEV = (50, 100, 200, 500, 1000)
CASCADES = {"a little better": (1.2, 1.1), "better": (1.6, 1.0), "much better": (2.5, 0.8)}  # noise of the two models
NEW, EVIDENCE, OF_BOTH = 5000, 5.0, 0.8  # texts that a cascade then answers; signal of a text's class; noise of both


@dataclass(frozen=True)
class Texts:
    """Texts of a split: classes, groups, and how hard a text is for all models."""

    gold: Ints
    group: Ints
    hard: Floats

    @classmethod
    def drawn(cls, rng: Generator, world: World) -> "Texts":
        """Draw a split of this world."""
        size, parts = world.texts, np.array(world.sizes)
        group = np.arange(size)
        if len(parts):
            group = np.unique(rng.choice(len(parts), size, p=parts / parts.sum()), return_inverse=True)[1]
        hard = OF_ALL**0.5 * rng.normal(size=size) + OF_GROUP**0.5 * rng.normal(size=size)[group]
        return cls(rng.choice(len(world.shares), size, p=world.shares), group, hard)


class Model(NamedTuple):
    """A model that has a skill in each class, and names classes in its wrong answers with these probabilities."""

    skill: Floats
    wrong: Floats

    def answers(self, rng: Generator, texts: Texts, effects: Sequence[float] | Floats = (0.0,)) -> Ints:
        """The answers of runs whose skill differs by these effects, shape [runs, texts]."""
        size = len(texts.gold)
        hard = texts.hard + OF_MODEL**0.5 * rng.normal(size=size)
        other = (rng.random(size)[:, None] > self.wrong.cumsum(axis=1)[texts.gold]).sum(axis=1)
        runs = (hard + OF_RUN**0.5 * rng.normal(size=size) < self.skill[texts.gold] + effect for effect in effects)
        return np.array([np.where(right, texts.gold, other) for right in runs])

    def truth(self, shares: Floats, spread: float) -> float:
        """The mean score of its runs on unlimited texts."""
        return float(np.average([self._score(shares, spread * node) for node in NODES], weights=WEIGHTS))

    def _score(self, shares: Floats, effect: float) -> float:
        right = ndtr(self.skill + effect)
        confusion = (shares * (1 - right))[:, None] * self.wrong + np.diag(shares * right)
        return float(
            scores_of(METRIC, np.concatenate([confusion.diagonal(), confusion.sum(axis=1), confusion.sum(axis=0)]))
        )


def confused(rng: Generator, shares: Floats) -> Floats:
    """Probabilities of the classes of wrong answers, for each class."""
    drawn = shares * rng.gamma(2, size=(len(shares), len(shares)))
    np.fill_diagonal(drawn, 0)
    return np.asarray(drawn / drawn.sum(axis=1, keepdims=True), np.float64)


def arm_of(texts: Texts, answers: Ints, draws: tuple[int, ...] = ()) -> Arm:
    """The arm of these answers."""
    return Arm((Predictions(METRIC, texts.gold, answers, texts.group),), not draws, draws, RESAMPLES)


def held(rng: Generator, world: World) -> dict[str, float]:
    """Two arms of equal skill on one test set: is the truth in the first one's interval, are they called different?"""
    texts, spread = Texts.drawn(rng, world), world.spread if world.draws else 0.0
    model = Model(np.full(len(world.shares), SKILL), confused(rng, world.shares))
    effects = [spread * rng.normal(size=1 + max(world.draws, default=0)) for _ in "ab"]
    first, second = (
        arm_of(texts, model.answers(rng, texts, own[[*world.draws] or [0]]), world.draws) for own in effects
    )
    mean, low, high = interval(first)
    assert low is not None
    assert high is not None
    truth, sign = model.truth(world.shares, spread), difference(first, second).sign
    return {"held": low <= truth <= high, "bias": mean - truth, "width": high - low, "called different": sign != 0}


def chosen(rng: Generator, gain: tuple[float, float], sizes: tuple[int, int]) -> dict[str, float]:
    """A report on seven models: how far what a rule names is behind the best, and is the linear model truly better?"""
    shares = uneven(6, 0.8)
    dev, test = (Texts.drawn(rng, World(shares, size)) for size in sizes)
    groups, truth, arms = list[dict[str, Any]](), dict[str, float](), dict[str, Arm]()
    skill, wrong = rng.normal(0.5, 0.4) + rng.normal(0, 0.3, len(shares)), confused(rng, shares)
    for name, kind in ROWS.items():
        own = 0.0 if kind == "linear" else rng.normal(*gain) - OWN_TEXT * (kind == "static")
        model = Model(skill + own, wrong)
        truth[name] = model.truth(shares, 0.0)
        on_dev = score(METRIC, dev.gold, model.answers(rng, dev)[0])
        arms[name] = arm_of(test, model.answers(rng, test))
        parts = name.split(" + ")
        mixes = parts if len(parts) > 1 else []
        groups.append({"name": name, "kind": kind, "models": [name], "mixes": mixes, "dev": {"mean": on_dev}})
    rows: Any = groups  # the part of a summary that the choice reads
    other: str = challenger(rows)["name"]
    found = compared((other, "linear"), arms[other], arms["linear"], 1)
    report, best = recommended(rows, [found])[0]["name"], max(truth.values())
    rules = {
        "report": report,
        "linear": "linear",
        "best on dev": max(groups, key=lambda one: one["dev"]["mean"])["name"],
        "best on test": max(arms, key=lambda one: arms[one].scores[0]),
        "one standard error": other if found["chance"] > ndtr(1) else "linear",
    }
    behind = {f"behind by {rule}": best - truth[name] for rule, name in rules.items()}
    worse = truth[report] < truth["linear"]
    return behind | {"another named": report != "linear", "truly worse": worse, "chance": found["chance"]}


def cascaded(rng: Generator, noise: tuple[float, float], dev: int) -> dict[str, float]:
    """A cascade with the default tolerance: how much do new texts lose to the better model, how many are passed on?"""
    shares = uneven(6, 0.8)
    gold = rng.choice(len(shares), dev + NEW, p=shares)
    evidence = rng.gamma(2, EVIDENCE / 2, size=(len(gold), 1)) * np.eye(len(shares))[gold]
    known = np.log(shares) + evidence + OF_BOTH * rng.normal(size=evidence.shape)
    parts = [softmax(known + own * rng.normal(size=known.shape), axis=1) for own in noise]
    cascade = fitted_cascade([part[:dev] for part in parts], gold[:dev], METRIC, TOLERANCE)
    new = [part[dev:] for part in parts]
    first, second, both = (score(METRIC, gold[dev:], one.argmax(axis=1)) for one in (*new, cascade.apply(new)))
    return {"gain": second - first, "lost": max(first, second) - both, "passed on": cascade.share(new[0])}


def worlds(*, times: int = 400, seed: int = 0, file: Path = KEPT) -> str:
    """Count how often intervals hold the truth, how far the recommended model is behind the best, what cascades lose.

    Args:
        times: How many test sets of each world.
        seed: Seed of all draws.
        file: Where to keep the numbers, a line of JSON for each world.
    """
    POSITIVE.check("times", times)
    NOT_NEGATIVE.check("seed", seed)
    tried: dict[str, Callable[[Generator], dict[str, float]]] = {
        name: partial(held, world=world) for name, world in INTERVALS.items()
    }
    for (name, gain), sizes in product(GAINS.items(), SIZES):
        of = f"{name}, {sizes[0]} dev and {sizes[1]} test texts"
        tried[of] = partial(chosen, gain=gain, sizes=sizes)
    for (name, noise), dev in product(CASCADES.items(), DEV):
        tried[f"cascade, second {name}, {dev} dev texts"] = partial(cascaded, noise=noise, dev=dev)
    lines = []
    for number, (name, once) in enumerate(tried.items()):
        rows = [once(np.random.default_rng([seed, number, time])) for time in range(times)]
        means = {key: round(float(np.mean([row[key] for row in rows])), 4) for key in rows[0]}
        lines.append(json.dumps({"world": name, "times": times, **means}, ensure_ascii=False))
        print(lines[-1], flush=True)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
    return str(file)
