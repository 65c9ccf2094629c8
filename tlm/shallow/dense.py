"""A linear model of dense features: standardised, with the regularisation chosen."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tlm.data.tasks.split import Split
from tlm.progress import say
from tlm.shallow.folder import Arrays
from tlm.shallow.linear import Linear
from tlm.shallow.tuning import DENSE_STRENGTHS, Search
from tlm.shallow.words import joined


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

    centre: NDArray[np.float64]
    scale: NDArray[np.float64]
    linear: Linear
    chosen: dict[str, Any]
    tried: int = 0

    @classmethod
    def fit(
        cls, features: NDArray[np.float64], train: Split, dev: Split, metric: str, labels: list[str] | None, name: str
    ) -> "Dense":
        """Choose the regularisation, and fit the choice on `train`.

        Args:
            features: Features of the examples of train, then of dev; shape [train + dev, features].
            train: The examples to fit on.
            dev: More examples to choose by.
            metric: What to choose by.
            labels: The classes; None for numbers.
            name: What the features are, for the log.
        """
        count = len(train.texts)
        centre, scale = features[:count].mean(axis=0), features[:count].std(axis=0)
        scale[scale < 1e-9] = 1.0
        both = (features - centre) / scale
        search = Search(train, dev, metric, labels)
        search.consider(name, [(both[seen], both[unseen]) for seen, unseen in search.folds], DENSE_STRENGTHS)
        best = search.best
        assert best is not None, "dense features are never empty"
        linear = Linear.fit(both[:count], train.gold, search.classes, best.strength, best.balanced)
        chosen = {"class weights": "balanced" if best.balanced else "none", "C": best.strength}
        say(f"{name}: {metric} {best.score:.4f} in cross-validation and on dev, with {chosen}")
        return cls(centre, scale, linear, chosen, search.tried)

    def predict(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        """Probabilities, shape [n, classes]; or numbers, shape [n, 1]."""
        return self.linear.predict((features - self.centre) / self.scale)

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """What a folder keeps of the model: values and arrays."""
        arrays: Arrays = {"centre": self.centre, "scale": self.scale}
        arrays |= {"weights": self.linear.weights, "bias": self.linear.bias}
        return {"softmax": self.linear.softmax, "chosen": self.chosen}, arrays

    @classmethod
    def restored(cls, config: dict[str, Any], arrays: Arrays) -> "Dense":
        """The model that `state` told of; `config` also has its labels."""
        linear = Linear(arrays["weights"], arrays["bias"], len(config["labels"] or []), config["softmax"])
        return cls(arrays["centre"], arrays["scale"], linear, config["chosen"])


def as_trained(
    texts: Sequence[str], pairs: Sequence[str] | None, *, pair: bool
) -> tuple[Sequence[str], Sequence[str] | None]:
    """Texts as a model was trained on them: pairs get empty second texts, single texts are joined with theirs."""
    if pair:
        return texts, pairs or [""] * len(texts)
    return joined(texts, pairs), None


def of_pairs(first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.float64]:
    """Features of pairs from those of their texts: both, their product and their difference."""
    return np.hstack([first, second, first * second, np.abs(first - second)])
