"""Shallow models by their family: read one from its folder, and predict with one thread."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from tlm.errors import InputError
from tlm.shallow import static, tfidf
from tlm.shallow.folder import FAMILY, config_of

FAMILIES: dict[str, type[tfidf.Tfidf | static.Static]] = {tfidf.FAMILY: tfidf.Tfidf, static.FAMILY: static.Static}


class ShallowPredictor:
    """Predictions of a shallow model, the same on every number of cores.

    Attributes:
        labels: The classes in the order of the probabilities; None for numbers.
    """

    def __init__(self, folder: Path) -> None:
        """Read the model."""
        family = config_of(folder)[FAMILY]
        if family not in FAMILIES:
            raise InputError(f"{folder} holds a model of the family '{family}'; expected {', '.join(FAMILIES)}")
        self.model = FAMILIES[family].read(folder)
        self.labels = self.model.labels

    def predict(self, texts: Sequence[str], pairs: Sequence[str] | None = None, label: str = "") -> NDArray[np.float64]:
        """Probabilities, shape [n, classes], or numbers, shape [n, 1], in the order of the texts."""
        if not texts:
            return np.zeros((0, len(self.labels or [""])))
        with threadpool_limits(1):  # floats are added up in the same order
            return self.model.predict(texts, pairs)
