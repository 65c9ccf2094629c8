"""A model folder in use: plain ``transformers`` classes, nothing downloaded, no code but the library's own."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModelForSequenceClassification, AutoTokenizer
from transformers.utils import logging

from tlm.errors import InputError
from tlm.progress import Meter
from tlm.training.model.located import HERE, refuse_code

BATCH_TOKENS = 8192
BATCH_ROWS = 256


class Classifier:
    """Logits and probabilities of texts or pairs, from any folder that ``AutoModelForSequenceClassification`` loads.

    Attributes:
        labels: The classes in the order of the logits; None for regression.
        max_length: Tokens of a text (or pair) that are read, special tokens included; the rest is cut.
    """

    def __init__(self, folder: Path, device: str) -> None:
        """Load the model in float32. Raises InputError if the folder does not hold a whole model."""
        tokenizer, model = _load(folder)
        self.device = torch.device(device)
        self.model = model.to(self.device).eval()
        self.tokenizer = tokenizer
        self.max_length = _max_length(tokenizer, model.config)
        self.labels = model_labels(folder)

    def logits(self, texts: Sequence[str], pairs: Sequence[str] | None = None, label: str = "") -> NDArray[np.float32]:
        """Logits, shape [n, classes] (or [n, 1]), in the order given. Batches are bucketed by length.

        Raises:
            InputError: a logit is not finite (a training that diverged).
        """
        ids = self._tokenized(texts, pairs)
        result = np.zeros((len(ids), self.model.config.num_labels), dtype=np.float32)
        meter = Meter(label or "predicting", len(ids), "texts")
        for rows in _batches([len(row["input_ids"]) for row in ids]):
            result[rows] = self._forward([ids[row] for row in rows])
            meter.advance(len(rows))
        meter.close()
        if not np.isfinite(result).all():
            raise InputError(
                "the model gives values that are not finite: its training diverged; lower the learning rate"
            )
        return result

    def _tokenized(self, texts: Sequence[str], pairs: Sequence[str] | None) -> list[dict[str, list[int]]]:
        if not texts:
            return []
        second = list(pairs) if pairs is not None else None
        found = self.tokenizer(list(texts), second, truncation=True, max_length=self.max_length)
        return [{name: found[name][row] for name in found} for row in range(len(texts))]

    @torch.inference_mode()
    def _forward(self, rows: list[dict[str, list[int]]]) -> NDArray[np.float32]:
        batch = self.tokenizer.pad(rows, padding=True, return_tensors="pt").to(self.device)
        return self.model(**batch).logits.float().cpu().numpy()  # type: ignore[no-any-return]


def model_labels(folder: Path) -> list[str] | None:
    """The classes of a model folder in the order of its logits; None for regression. Reads config.json only."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    names = config.get("id2label") or {}
    if config.get("problem_type") == "regression" or len(names) == 1:
        return None
    return [names[index] for index in sorted(names, key=int)]


def probabilities(logits: NDArray[Any]) -> NDArray[np.float64]:
    """Softmax over the classes in float64; shape [n, classes]."""
    wide = logits.astype(np.float64)
    grown = np.exp(wide - wide.max(axis=1, keepdims=True, initial=-np.inf)) if len(wide) else wide
    return grown / grown.sum(axis=1, keepdims=True) if len(wide) else grown  # type: ignore[no-any-return]


def _load(folder: Path) -> tuple[Any, Any]:
    """Tokenizer and model, in float32. The library makes up weights that a file lacks; here that is an error."""
    refuse_code(folder)
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, **HERE)
        model, found = AutoModelForSequenceClassification.from_pretrained(
            folder, use_safetensors=True, dtype=torch.float32, output_loading_info=True, **HERE
        )
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(f"{folder} does not load as a classifier: {reason}; expected a model that tlm wrote") from None
    if found["missing_keys"]:
        raise InputError(
            f"{folder} lacks weights ({', '.join(sorted(found['missing_keys'])[:3])}); fetch the model anew"
        )
    return tokenizer, model


def _batches(lengths: list[int]) -> Iterator[list[int]]:
    """Rows in batches of similar length: longest first, at most `BATCH_TOKENS` padded tokens and `BATCH_ROWS` rows."""
    order = sorted(range(len(lengths)), key=lambda row: (-lengths[row], row))
    start = 0
    while start < len(order):
        size = max(1, min(BATCH_ROWS, BATCH_TOKENS // max(1, lengths[order[start]])))
        yield order[start : start + size]
        start += size


def _max_length(tokenizer: Any, config: Any) -> int:
    positions = getattr(config, "max_position_embeddings", None) or 512
    if config.model_type in ("roberta", "xlm-roberta", "camembert"):
        positions -= config.pad_token_id + 1  # there positions start after the padding id
    return int(min(tokenizer.model_max_length, positions))
