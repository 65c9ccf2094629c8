"""Predict with a model folder: plain ``transformers`` classes, no download, no code from the folder."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from transformers import AutoModelForSequenceClassification, AutoTokenizer
from transformers.utils import logging

from tlm.data.ranges import HEAD
from tlm.errors import InputError, reason
from tlm.evaluation.predict.encoder import EncoderPredictor, Tokens
from tlm.shallow.folder import config_of, refuse_code
from tlm.training.input.located import HERE
from tlm.training.model.encoder import tf32


class Classifier(EncoderPredictor):
    """A folder that ``AutoModelForSequenceClassification`` loads.

    Attributes:
        model: The model, in float32.
        tokenizer: Its tokenizer.
    """

    def __init__(self, folder: Path, device: str) -> None:
        """Load the model. Raises InputError if the folder does not hold a whole one."""
        self.tokenizer, self.model = load_pretrained(folder, AutoModelForSequenceClassification, "a classifier", device)
        longest = longest_input(self.tokenizer, self.model.config)
        cuts = self.tokenizer.is_fast and self.tokenizer.truncation_side == "right"
        uncut = Tokenizer.from_str(self.tokenizer.backend_tokenizer.to_str()) if cuts else None
        super().__init__(config_of(folder), longest, self.tokenizer.model_input_names, uncut)

    def tokenize(self, texts: list[str], pairs: list[str] | None) -> Tokens:
        """Tokenize texts or pairs."""
        if (pairs is None and self.cut == HEAD) or self.uncut is None:
            return self.tokenizer(texts, pairs, truncation=True, max_length=self.max_length)  # type: ignore[no-any-return]
        return super().tokenize(texts, pairs)

    @torch.inference_mode()
    @tf32()
    def compute(self, inputs: Tokens) -> NDArray[np.float32]:
        """Logits of a batch."""
        batch = self.tokenizer.pad(inputs, return_tensors="pt").to(self.model.device)
        logits: NDArray[np.float32] = self.model(**batch).logits.float().cpu().numpy()
        return logits


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
        model, loaded = kind.from_pretrained(
            folder, use_safetensors=True, dtype=torch.float32, output_loading_info=True, **HERE, **options
        )
    except (OSError, ValueError, KeyError) as error:
        expected = "expected config.json, a tokenizer and safetensors as `save_pretrained` writes them"
        raise InputError(f"{folder} does not load as {what}: {reason(error)}; {expected}") from None
    finally:
        logging.set_verbosity(verbosity)  # type: ignore[no-untyped-call]
    missing = sorted(name for name in loaded["missing_keys"] if not name.startswith(unused))
    if missing:
        names = ", ".join(missing[:3])
        raise InputError(f"{folder} lacks weights of {what} ({names}); fine-tune it as one, or download it again")
    return tokenizer, model.to(device).eval()


# Types of models, by how their names begin, whose positions start after the padding id
AFTER_PADDING = ("camembert", "data2vec-text", "esm", "ibert", "longformer", "mpnet", "roberta", "xlm-roberta", "xmod")


def longest_input(tokenizer: Any, config: Any, default: int = 512) -> int:
    """The longest input of a model in tokens; `default` if its positions have no limit."""
    positions = getattr(config, "max_position_embeddings", None) or default
    if config.model_type.startswith(AFTER_PADDING):
        positions -= config.pad_token_id + 1
    return int(min(tokenizer.model_max_length, positions))
