"""Any model folder as something that predicts: an encoder of transformers or ONNX, a shallow model, or a mixture.

A mixture weighs what its parts predict. In a cascade, a fast model answers where it is sure, and passes the other texts
on to a better one.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product, takewhile
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tlm.data.tasks.metrics import UNFITTED, Floats, Texts, fitted_thresholds, held_out, score, sum_in_order
from tlm.errors import InputError, reason
from tlm.evaluation.predict.encoder import ONNX, OnnxClassifier, model_labels, model_thresholds
from tlm.shallow.folder import AGAIN, FAMILY, config_of
from tlm.shallow.temperature import TINY, fitted_temperature, loss, tempered

EQUAL = 100  # equal weights count as much as this many examples of dev
TEMPERATURES = (1.0, 0.7, 1.4, 0.5, 2.0, 0.35, 2.8, 0.25, 4.0, 0.18, 5.6, 0.125, 8.0)  # among equals, the first wins
STEPS = 10  # weights are tenths
MOST_PARTS = 4
LEAST_FITTED = 3  # examples that a line is fitted to
DIGITS = 12  # losses that agree in them are equal: the rest is rounding

Line = tuple[float, float]  # slope and intercept
AS_IT_IS: Line = (1.0, 0.0)


@dataclass(frozen=True)
class Weights:
    """The weights that combine the parts of a mixture.

    Attributes:
        temperatures: Each part's probabilities p become p^(1/T), normalised; above 1 it is trusted less.
        shares: Weight of each part, 0 or more; they add up to 1.
        lines: Each part's numbers x become slope · x + intercept. Empty for classes and in older mixtures.
        thresholds: Of each label's mixed probability, where a text may have several; else empty.
        temperature: That of the mixed probabilities, because their mean is too unsure; 1 in older mixtures.
    """

    temperatures: tuple[float, ...]
    shares: tuple[float, ...]
    lines: tuple[Line, ...] = ()
    thresholds: tuple[float, ...] = ()
    temperature: float = 1.0

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> "Weights":
        """The weights whose `state` this is."""
        lines = tuple((slope, intercept) for slope, intercept in values.get("lines", ()))
        thresholds, temperature = tuple(values.get("thresholds", ())), values.get("temperature", 1.0)
        return cls(tuple(values["temperatures"]), tuple(values["shares"]), lines, thresholds, temperature)

    def state(self) -> dict[str, Any]:
        """The weights as JSON values."""
        return {name: values for name, values in asdict(self).items() if values}

    def apply(self, parts: Sequence[Floats]) -> Floats:
        """Mix predictions of the parts, each of shape [n, classes] (or [n, 1] for numbers)."""
        on_lines = _on_lines(parts, self.lines)
        several = bool(self.thresholds)
        parts = [_tempered(part, t, several) for part, t in zip(on_lines, self.temperatures, strict=True)]
        mixed: Floats = np.sum([share * part for share, part in zip(self.shares, parts, strict=True)], axis=0)
        return mixed if self.temperature == 1 else tempered(mixed, self.temperature)


def fitted(parts: Sequence[Floats], gold: Floats | NDArray[np.int64], own: Sequence[float] = ()) -> Weights:
    """The best weights on a grid, drawn towards equal ones: they have the share n / (n + `EQUAL`).

    Each part gets the temperature (numbers: the line) that is best for it alone. Among equals, the shares that are
    nearest to equal win. Then the mixture gets a temperature, or where a text may have several labels, thresholds.

    Args:
        parts: Predictions of each part, shape [n, classes], or [n, 1] for numbers.
        gold: Class ordinals, or numbers, shape [n]; 0/1 of several labels, shape [n, classes].
        own: The temperature that each part's probabilities have already, by default 1; the mixture is as without it.
    """
    count, several = len(parts), gold.ndim == 2
    unfitted = (UNFITTED,) * parts[0].shape[1] if several else ()
    if not len(gold):
        return Weights((1.0,) * count, (1 / count,) * count, thresholds=unfitted)
    lines = tuple(_line(part[:, 0], gold) for part in parts) if parts[0].shape[1] == 1 else ()
    on_lines = _on_lines(parts, lines)
    own = own or (1.0,) * count
    temperatures = tuple(_best_temperature(part, already, gold) for part, already in zip(on_lines, own, strict=True))
    at_best = [_tempered(part, best, several) for part, best in zip(on_lines, temperatures, strict=True)]
    trust = len(gold) / (len(gold) + EQUAL)
    shares = tuple(trust * share + (1 - trust) / count for share in _best_shares(at_best, gold))
    weights = Weights(temperatures, shares, lines, unfitted)
    if several:
        return replace(weights, thresholds=tuple(fitted_thresholds(weights.apply(parts), gold).tolist()))
    return weights if lines else replace(weights, temperature=fitted_temperature(weights.apply(parts), gold))


def _best_temperature(part: Floats, already: float, gold: NDArray[Any]) -> float:
    """The temperature at which a part has the least loss; its probabilities have the temperature `already`."""
    return min((t / already for t in TEMPERATURES), key=lambda t: loss(_tempered(part, t, gold.ndim == 2), gold))


def _best_shares(parts: Sequence[Floats], gold: NDArray[Any]) -> tuple[float, ...]:
    """The shares with which the mean of the parts has the least loss; among equal losses, the most even shares."""
    count = len(parts)
    tenths = (shares for shares in product(range(STEPS + 1), repeat=count) if sum(shares) == STEPS)
    by_evenness = sorted(tenths, key=lambda shares: sum_in_order((share / STEPS - 1 / count) ** 2 for share in shares))
    candidates = [tuple(share / sum(shares) for share in shares) for shares in [(1 / count,) * count, *by_evenness]]

    def rounded_loss(shares: tuple[float, ...]) -> float:
        return float(f"{loss(Weights((1.0,) * count, shares).apply(parts), gold):.{DIGITS}g}")

    return min(candidates, key=rounded_loss)


AT_LEAST = "at_least"  # in the config.json of a cascade
ABOVE_ALL = 2.0  # no probability reaches it
MOST_TRIED = 100  # thresholds


@dataclass(frozen=True)
class Cascade:
    """How two models answer one after the other. The answer to a text is exactly that of one of them.

    Attributes:
        at_least: The first one's answer is taken if its probability is not below this.
    """

    at_least: float

    def passed(self, first: Floats) -> NDArray[np.bool_]:
        """Whether each text is passed on, from the first one's probabilities, shape [n, classes]."""
        return first.max(axis=1) < self.at_least  # type: ignore[no-any-return]

    def share(self, first: Floats) -> float:
        """The share of texts that are passed on; 1 if there are no texts."""
        return float(self.passed(first).mean()) if len(first) else 1.0

    def apply(self, parts: Sequence[Floats]) -> Floats:
        """The answers, from the probabilities of both for all texts, each of shape [n, classes]."""
        first, second = parts
        return np.where(self.passed(first)[:, np.newaxis], second, first)

    def state(self) -> dict[str, Any]:
        """The cascade as JSON values."""
        return asdict(self)


def fitted_cascade(parts: Sequence[Floats], gold: NDArray[np.int64], metric: str, tolerance: float) -> Cascade:
    """A cascade that scores at most `tolerance` less than the better model alone, and passes on few texts.

    Thresholds are 0, up to `MOST_TRIED` middles between probabilities of the first one's answers, and `ABOVE_ALL`.
    If 0 is too low, they are tried from the highest down, until the score is too low. The lowest threshold that scores
    enough is often lucky, and does worse on new texts.

    Args:
        parts: Probabilities of both, each of shape [n, classes].
        gold: Class ordinals; shape [n].
        metric: Name of the task's metric.
        tolerance: The score that may be lost; 0.005 is half a point.
    """
    if not len(gold):
        return Cascade(ABOVE_ALL)
    steps = np.unique(parts[0].max(axis=1))
    middles = (steps[1:] + steps[:-1]) / 2
    tried = middles[np.unique(np.linspace(0, len(middles) - 1, MOST_TRIED).astype(int))] if len(middles) else middles
    least = max(score(metric, gold, part.argmax(axis=1)) for part in parts) - tolerance

    def enough(at_least: float) -> bool:
        return score(metric, gold, Cascade(at_least).apply(parts).argmax(axis=1)) >= least

    if enough(0.0):
        return Cascade(0.0)
    return Cascade([*takewhile(enough, [ABOVE_ALL, *reversed(tried.tolist())])][-1])


def combined(values: Mapping[str, Any]) -> Weights | Cascade:
    """The way to combine the parts of a mixture whose `state` this is."""
    return Cascade(values[AT_LEAST]) if AT_LEAST in values else Weights.read(values)


Fit = Callable[[Sequence[Floats], NDArray[Any]], Weights | Cascade]


def cross_fitted(parts: Sequence[Floats], gold: Floats, group: NDArray[np.int64], fit: Fit = fitted) -> Floats:
    """Predictions of a mixture for the examples that its weights are fitted on: each from weights of the other groups.

    Args:
        parts: Predictions of each part, shape [n, classes], or [n, 1] for numbers.
        gold: Class ordinals, or numbers; shape [n].
        group: Group of each example; shape [n]. Groups are not divided.
        fit: Finds the weights, or the threshold of a cascade.
    """
    mixed = np.zeros_like(parts[0])
    for others, own in held_out(group):
        weights = fit([part[others] for part in parts], gold[others])
        mixed[own] = weights.apply([part[own] for part in parts])
    return mixed


def _line(numbers: Floats, gold: NDArray[Any]) -> Line:
    """The line of least squares through a part's numbers and the gold ones, both of shape [n].

    It rises, or is level. If the lines through all other examples predict each example no better than the part does,
    the part's numbers stay as they are.
    """
    if len(gold) < LEAST_FITTED:
        return AS_IT_IS
    x, y = numbers - numbers.mean(), gold - gold.mean()
    slope = max(0.0, float(x @ y / (x @ x))) if x.any() else 0.0
    leverage = 1 / len(gold) + (x * x / (x @ x) if slope else 0.0)
    left_out = (y - slope * x) / np.maximum(1 - leverage, TINY)  # the error without this example, in closed form
    if left_out @ left_out >= np.sum((numbers - gold) ** 2):
        return AS_IT_IS
    return slope, float(gold.mean() - slope * numbers.mean())


def _on_lines(parts: Sequence[Floats], lines: Sequence[Line]) -> Sequence[Floats]:
    """Numbers on the lines of their parts; without lines, what the parts give."""
    return [slope * part + at for part, (slope, at) in zip(parts, lines, strict=True)] if lines else parts


def _tempered(part: Floats, temperature: float, several: bool = False) -> Floats:
    """Probabilities at a temperature, of `several` labels each by itself; numbers stay as they are."""
    if temperature == 1 or part.shape[1] == 1:
        return part
    if several:
        powers = np.maximum(part, TINY) ** (1 / temperature)
        return powers / (powers + np.maximum(1 - part, TINY) ** (1 / temperature))  # type: ignore[no-any-return]
    return tempered(np.maximum(part, TINY), temperature)


PART = re.compile(r"\d+-\d+")  # the folder of a model in a mixture
MIXTURE = "mixture"  # the family of a folder of several models


class Predictor(Protocol):
    """A model that predicts.

    Attributes:
        labels: The classes in the order of the probabilities; None for numbers.
        thresholds: Of each label's probability, where a text may have several; else None.
    """

    labels: list[str] | None
    thresholds: list[float] | None

    def predict(self, texts: Texts, pairs: Texts | None = None, label: str = "predicting") -> Floats:
        """Probabilities, shape [n, classes], or numbers, shape [n, 1], in the order of the texts."""


def open_predictor(folder: Path, device: str) -> tuple[Predictor, str]:
    """Load a model folder. Returns it with the device that it runs on.

    Raises:
        InputError: the device is not there, or the folder does not hold a whole model.
    """
    try:
        return _opened(folder, device)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise InputError(f"{folder} is no complete model ({type(error).__name__}: {reason(error)}); {AGAIN}") from error


def _opened(folder: Path, device: str) -> tuple[Predictor, str]:
    config = config_of(folder)
    if config.get(FAMILY) == MIXTURE:
        mixture = Mixture(folder, config, device)
        return mixture, mixture.place
    if FAMILY in config:
        from tlm.shallow.models import ShallowPredictor

        return ShallowPredictor(folder), "cpu"
    if ONNX in config:
        return OnnxClassifier(folder), "cpu"
    from tlm.evaluation.predict.classifier import Classifier
    from tlm.training.device import resolve_device

    place = resolve_device(device)
    return Classifier(folder, place), place


class Mixture:
    """Several models whose predictions are averaged with weights, or a cascade of two.

    Attributes:
        labels: The classes in the order of the probabilities; None for numbers.
        thresholds: Of each label's probability, where a text may have several; else None.
        place: The device that most of the work is done on.
    """

    def __init__(self, folder: Path, config: dict[str, Any], device: str) -> None:
        """Load all models of a mixture's folder; `config` is its config.json."""
        self.labels: list[str] | None = config["labels"]
        self.weights = combined(config)
        self.thresholds: list[float] | None = config.get("thresholds")
        if any(not PART.fullmatch(name) for part in config["parts"] for name in part):
            raise InputError(f"{folder}: its config.json names models elsewhere; expected names such as 0-0; {AGAIN}")
        opened = [[open_predictor(folder / name, device) for name in part] for part in config["parts"]]
        self.parts = [[predictor for predictor, _ in part] for part in opened]
        self.place = next((place for part in opened for _, place in part if place != "cpu"), "cpu")

    def predict(self, texts: Texts, pairs: Texts | None = None, label: str = "predicting") -> Floats:
        """Probabilities, shape [n, classes], or numbers, shape [n, 1], in the order of the texts."""
        if not isinstance(self.weights, Cascade):
            return self.weights.apply(self.of_parts(texts, pairs, label))
        first, second = self.parts
        found = _mean(first, texts, pairs, label)
        rows = np.flatnonzero(self.weights.passed(found)).tolist()
        if rows:
            found[rows] = _mean(second, [texts[row] for row in rows], pairs and [pairs[row] for row in rows], label)
        return found

    def of_parts(self, texts: Texts, pairs: Texts | None = None, label: str = "predicting") -> list[Floats]:
        """What each part predicts, the mean of its models, before the weights."""
        return [_mean(part, texts, pairs, label) for part in self.parts]


def _mean(models: list[Predictor], texts: Texts, pairs: Texts | None, label: str) -> Floats:
    return np.mean([model.predict(texts, pairs, label) for model in models], axis=0)  # type: ignore[no-any-return]


def labels_of(folder: Path) -> tuple[list[str] | None, bool]:
    """The classes of a model folder in the order of its probabilities; None for numbers. Reads config.json only.

    Also whether a text may have several of them.
    """
    config = config_of(folder)
    if FAMILY in config:
        return config["labels"], "thresholds" in config
    return model_labels(config), model_thresholds(config) is not None
