"""Shallow models by their family: read one from its folder, and predict with one thread."""

from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController, threadpool_limits  # type: ignore[import-untyped]

from tlm.data.tasks.metrics import Floats, Texts
from tlm.errors import InputError
from tlm.shallow import published, static, tfidf
from tlm.shallow.folder import FAMILY, config_of

Model = tfidf.Tfidf | static.StaticModel | published.EmbeddingsModel
FAMILIES: dict[str, type[Model]] = {tfidf.FAMILY: tfidf.Tfidf, static.FAMILY: static.StaticModel}
FAMILIES[published.FAMILY] = published.EmbeddingsModel


def one_thread() -> Any:
    """Run a ``with`` block with one thread, in which floats are added up in the same order on all machines.

    It limits the libraries that are loaded by now, so this module imports all that shallow models compute with.
    """
    return threadpool_limits(1)


class ShallowPredictor:
    """Predictions of a shallow model, the same on every number of cores.

    Attributes:
        family: That of the model, a key of `FAMILIES`.
        labels: The classes in the order of the probabilities; None for numbers.
        thresholds: Of each label, where a text may have several; else None.
    """

    def __init__(self, folder: Path) -> None:
        """Read the model."""
        self.family: str = config_of(folder)[FAMILY]
        if self.family not in FAMILIES:
            raise InputError(f"{folder} holds a model of the family '{self.family}'; expected {', '.join(FAMILIES)}")
        self.model = FAMILIES[self.family].read(folder)
        self.labels, self.thresholds = self.model.labels, self.model.linear.thresholds
        self._libraries = ThreadpoolController()  # found once: looking for them takes longer than to predict a text

    def predict(self, texts: Texts, pairs: Texts | None = None, label: str = "") -> Floats:
        """Probabilities, shape [n, classes], or numbers, shape [n, 1], in the order of the texts."""
        if not texts:
            return np.zeros((0, len(self.labels or [""])))
        with self._libraries.limit(limits=1):
            return self.model.predict(texts, pairs)
