"""Any model folder as something that predicts: an encoder of transformers or ONNX, a shallow model, or a mixture."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tlm.evaluation.mixture.weights import Weights
from tlm.evaluation.predict.encoder import model_labels
from tlm.evaluation.predict.onnx import ONNX, OnnxClassifier
from tlm.shallow.folder import FAMILY, config_of

MIXTURE = "mixture"  # the family of a folder of several models


class Predictor(Protocol):
    """A model that predicts.

    Attributes:
        labels: The classes in the order of the probabilities; None for numbers.
    """

    labels: list[str] | None

    def predict(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None, label: str = "predicting"
    ) -> NDArray[np.float64]:
        """Probabilities, shape [n, classes], or numbers, shape [n, 1], in the order of the texts."""


def open_predictor(folder: Path, device: str) -> tuple[Predictor, str]:
    """Load a model folder. Returns it with the device that it runs on.

    Raises:
        InputError: the device is not there, or the folder does not hold a whole model.
    """
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
    """Several models whose predictions are averaged with weights.

    Attributes:
        labels: The classes in the order of the probabilities; None for numbers.
        place: The device that most of the work is done on.
    """

    def __init__(self, folder: Path, config: dict[str, Any], device: str) -> None:
        """Load all models of a mixture's folder; `config` is its config.json."""
        self.labels: list[str] | None = config["labels"]
        self.weights = Weights.read(config)
        opened = [[open_predictor(folder / name, device) for name in part] for part in config["parts"]]
        self.parts = [[predictor for predictor, _ in part] for part in opened]
        self.place = next((place for part in opened for _, place in part if place != "cpu"), "cpu")

    def predict(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None, label: str = "predicting"
    ) -> NDArray[np.float64]:
        """Probabilities, shape [n, classes], or numbers, shape [n, 1], in the order of the texts."""
        found = [[model.predict(texts, pairs, label) for model in part] for part in self.parts]
        return self.weights.apply([np.mean(part, axis=0) for part in found])


def labels_of(folder: Path) -> list[str] | None:
    """The classes of a model folder in the order of its probabilities; None for numbers. Reads config.json only."""
    config = config_of(folder)
    if FAMILY in config:
        labels: list[str] | None = config["labels"]
        return labels
    return model_labels(config)
