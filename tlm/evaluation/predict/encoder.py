"""Predict with an encoder, whatever computes it: what config.json says, and batches of texts of similar length."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from tlm.data.marks import marks_in, with_spans_first
from tlm.data.ranges import BATCH_TOKENS, by_length
from tlm.errors import InputError
from tlm.progress import Meter


class EncoderPredictor(ABC):
    """Logits and probabilities of texts or pairs.

    Attributes:
        labels: The classes in the order of the logits; None for regression.
        max_length: Longest input in tokens, special tokens included; the rest of a text (or pair) is cut.
        marks: The marks around the spans that are put first in each text, where the model was trained so.
        batch_tokens: Most padded tokens in a batch of several texts.
    """

    batch_tokens = BATCH_TOKENS

    def __init__(self, config: dict[str, Any], max_length: int) -> None:
        """Take the classes and marks from the model's config.json."""
        self.labels, self.marks, self.max_length = model_labels(config), marks_in(config), max_length

    @abstractmethod
    def tokenize(self, texts: list[str], pairs: list[str] | None) -> Mapping[str, list[list[int]]]:
        """What the model reads of each text, cut to `max_length`, by the name of the input."""

    @abstractmethod
    def compute(self, inputs: dict[str, list[list[int]]]) -> NDArray[np.float32]:
        """Logits of a batch, which is to be padded, shape [n, classes] (or [n, 1])."""

    def read(self, texts: Sequence[str], pairs: Sequence[str] | None = None) -> Mapping[str, list[list[int]]]:
        """What the model reads of each text, its spans put first where it was trained so."""
        first = [with_spans_first(text, self.marks) for text in texts]
        return self.tokenize(first, list(pairs) if pairs is not None else None)

    def predict(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None, label: str = "predicting"
    ) -> NDArray[np.float64]:
        """Probabilities, shape [n, classes], or numbers, shape [n, 1], in the order of the texts."""
        logits = self.logits(texts, pairs, label)
        return logits.astype(np.float64) if self.labels is None else probabilities(logits)

    def logits(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None, label: str = "predicting"
    ) -> NDArray[np.float32]:
        """Logits, shape [n, classes] (or [n, 1]), in the order of the texts. Texts of similar length share a batch.

        Raises:
            InputError: a logit is not finite (a training that diverged).
        """
        result = np.zeros((len(texts), len(self.labels or [""])), dtype=np.float32)
        if not texts:
            return result
        tokens = self.read(texts, pairs)
        meter = Meter(label, len(texts), "texts")
        for rows in by_length(np.array([len(ids) for ids in tokens["input_ids"]]), self.batch_tokens):
            result[rows] = self.compute({name: [values[row] for row in rows] for name, values in tokens.items()})
            meter.advance(len(rows))
        meter.close()
        if not np.isfinite(result).all():
            raise InputError(
                "the model gives values that are not finite: its training diverged; lower the learning rate"
            )
        return result


def model_labels(config: dict[str, Any]) -> list[str] | None:
    """The classes of a config.json in the order of its logits; None for regression."""
    names = config.get("id2label") or {}
    if config.get("problem_type") == "regression" or len(names) == 1:
        return None
    return [names[index] for index in sorted(names, key=int)]


def probabilities(logits: NDArray[Any]) -> NDArray[np.float64]:
    """Softmax over the classes in float64; shape [n, classes]."""
    return softmax(logits.astype(np.float64), axis=1)  # type: ignore[no-any-return]
