"""Cascades: a fast model answers where it is sure, and passes the other texts on to a better one."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tlm.data.tasks.metrics import score

AT_LEAST = "at_least"  # in the config.json of a cascade
ABOVE_ALL = 2.0  # no probability reaches it
MOST_TRIED = 100  # thresholds

Floats = NDArray[np.float64]


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


def fitted(parts: Sequence[Floats], gold: NDArray[np.int64], metric: str, tolerance: float) -> Cascade:
    """The cascade that passes on the fewest texts and scores at most `tolerance` less than the better model alone.

    Thresholds are 0, up to `MOST_TRIED` middles between probabilities of the first one's answers, and `ABOVE_ALL`.

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
    found = map(Cascade, [0.0, *tried.tolist(), ABOVE_ALL])
    return next(one for one in found if score(metric, gold, one.apply(parts).argmax(axis=1)) >= least)
