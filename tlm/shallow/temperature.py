"""A temperature, with which probabilities of classes say how often they are right (Guo and others, ICML 2017)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tlm.data.tasks.metrics import Floats

TRIED = tuple(2 ** (step / 4) for step in sorted(range(-8, 13), key=abs))  # among equals, the first wins
DOUBT = 20  # a temperature of 1 counts as much as this many examples
TINY = 1e-12


def tempered(chances: Floats, temperature: float) -> Floats:
    """Probabilities p, shape [n, classes], become p^(1/T), normalised. The likeliest class stays the likeliest."""
    powers: Floats = chances ** (1 / temperature)
    return powers / powers.sum(axis=1, keepdims=True)  # type: ignore[no-any-return]


def fitted_temperature(chances: Floats, gold: NDArray[Any]) -> float:
    """The temperature at which the classes are likeliest; the fewer examples, the nearer to 1.

    Args:
        chances: Probabilities of examples that they were not fitted to, shape [n, classes].
        gold: Class ordinals, shape [n].
    """
    best = min(TRIED, key=lambda temperature: loss(tempered(chances, temperature), gold))
    return round(float(best ** (len(gold) / (len(gold) + DOUBT))), 3)


def loss(predicted: Floats, gold: Floats | NDArray[np.int64]) -> float:
    """Mean log-loss of probabilities, shape [n, classes], or mean squared error of numbers, shape [n, 1].

    Of several labels, `gold` is 0/1 of shape [n, classes], and the loss is a mean over texts and labels.
    """
    if gold.ndim == 2:
        return float(-np.mean(np.log(np.maximum(np.where(gold, predicted, 1 - predicted), TINY))))
    if predicted.shape[1] == 1:
        return float(np.mean((predicted[:, 0] - gold) ** 2))
    return float(-np.mean(np.log(np.maximum(predicted[np.arange(len(gold)), gold.astype(np.int64)], TINY))))
