"""Predict with a model folder: plain ``transformers`` classes, no download, no code from the folder."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax
from transformers import AutoModelForSequenceClassification, AutoTokenizer
from transformers.utils import logging

from tlm.data.marks import with_spans_first
from tlm.errors import InputError, reason
from tlm.progress import Meter
from tlm.shallow.folder import config_of
from tlm.training.model.build import marks_of
from tlm.training.model.located import HERE, refuse_code
from tlm.training.scoring import by_length


class Classifier:
    """Logits of texts or pairs, from any folder that ``AutoModelForSequenceClassification`` loads.

    Attributes:
        labels: The classes in the order of the logits; None for regression.
        max_length: Longest input in tokens, special tokens included; the rest of a text (or pair) is cut.
        marks: The marks around the spans that are put first in each text, where the model was trained so.
    """

    def __init__(self, folder: Path, device: str) -> None:
        """Load the model in float32. Raises InputError if the folder does not hold a whole model."""
        self.tokenizer, self.model = load_pretrained(folder, AutoModelForSequenceClassification, "a classifier", device)
        self.max_length = longest_input(self.tokenizer, self.model.config)
        config = config_of(folder)
        self.labels, self.marks = model_labels(config), marks_of(config)

    def predict(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None, label: str = "predicting"
    ) -> NDArray[np.float64]:
        """Probabilities, shape [n, classes], or numbers, shape [n, 1], in the order of the texts."""
        logits = self.logits(texts, pairs, label)
        return logits.astype(np.float64) if self.labels is None else probabilities(logits)

    @torch.inference_mode()
    def logits(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None, label: str = "predicting"
    ) -> NDArray[np.float32]:
        """Logits, shape [n, classes] (or [n, 1]), in the order of the texts. Texts of similar length share a batch.

        Raises:
            InputError: a logit is not finite (a training that diverged).
        """
        result = np.zeros((len(texts), self.model.config.num_labels), dtype=np.float32)
        if not texts:
            return result
        first = [with_spans_first(text, self.marks) for text in texts]
        second = list(pairs) if pairs is not None else None
        tokens = self.tokenizer(first, second, truncation=True, max_length=self.max_length)
        meter = Meter(label, len(texts), "texts")
        for rows in by_length(np.array([len(ids) for ids in tokens["input_ids"]])):
            inputs = {name: [values[row] for row in rows] for name, values in tokens.items()}
            batch = self.tokenizer.pad(inputs, return_tensors="pt").to(self.model.device)
            result[rows] = self.model(**batch).logits.float().cpu().numpy()
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


def load_pretrained(
    folder: Path, kind: Any, what: str, device: str, unused: tuple[str, ...] = (), **options: Any
) -> tuple[Any, Any]:
    """Load a tokenizer and a model in float32. Missing weights, which the library would make up, are an error.

    Args:
        folder: The model folder; only safetensors are read, and no code.
        kind: Class of the library that loads the model, such as ``AutoModel``.
        what: What is expected, for the error message: a classifier, an encoder.
        device: Where to put the model.
        unused: Weights that may be missing, by the beginning of their names.
        options: More arguments for ``from_pretrained``.
    """
    refuse_code(folder)
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    verbosity = logging.get_verbosity()  # type: ignore[no-untyped-call]
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]  # no warning about a head that is not needed
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, **HERE)
        model, found = kind.from_pretrained(
            folder, use_safetensors=True, dtype=torch.float32, output_loading_info=True, **HERE, **options
        )
    except (OSError, ValueError, KeyError) as error:
        raise InputError(
            f"{folder} does not load as {what}: {reason(error)}; expected config.json, a tokenizer and safetensors as "
            "`save_pretrained` writes them"
        ) from None
    finally:
        logging.set_verbosity(verbosity)  # type: ignore[no-untyped-call]
    missing = sorted(name for name in found["missing_keys"] if not name.startswith(unused))
    if missing:
        raise InputError(f"{folder} lacks weights ({', '.join(missing[:3])}); download the model again")
    return tokenizer, model.to(device).eval()


def longest_input(tokenizer: Any, config: Any, default: int = 512) -> int:
    """The longest input of a model in tokens; `default` if its positions have no limit."""
    positions = getattr(config, "max_position_embeddings", None) or default
    if config.model_type in ("roberta", "xlm-roberta", "camembert"):
        positions -= config.pad_token_id + 1  # their positions start after the padding id
    return int(min(tokenizer.model_max_length, positions))
