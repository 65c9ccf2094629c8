"""The attention weights of any encoder that `transformers` loads from a folder: ours, BERT, RoBERTa, ModernBERT."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModel

from tlm.errors import InputError
from tlm.evaluation.predict.classifier import load_pretrained, longest_input

BATCH = 8
UNUSED = ("pooler.",)  # no layer reads it, and some models are saved without it
WORD_MARKS = "Ġ▁ "  # how vocabularies mark a space before a token


@dataclass(frozen=True)
class Seen:
    """A text as an encoder saw it.

    Attributes:
        tokens: Tokens of the vocabulary without padding, [T].
        special: Whether a token is [CLS] or [SEP] (in RoBERTa <s>, </s>), [T].
        period: Whether a token is a period, [T].
        weights: Attention after the softmax, float32 [layers, heads, T, T].
    """

    tokens: list[str]
    special: NDArray[np.bool_]
    period: NDArray[np.bool_]
    weights: NDArray[np.float32]


class AttentionReader:
    """Reads attention weights. It runs only classes of the library and reads only safetensors.

    Attributes:
        layers: Number of layers.
        heads: Number of heads in a layer.
        architecture: The ``model_type`` of config.json (``bert``, ``modernbert``).
    """

    def __init__(self, folder: Path, device: str, max_length: int) -> None:
        """Load the encoder in float32. Raises InputError if the folder does not hold a complete one."""
        self.tokenizer, self.model = load_pretrained(
            folder, AutoModel, "an encoder", device, UNUSED, attn_implementation="eager"
        )
        config = self.model.config
        self.layers, self.heads = int(config.num_hidden_layers), int(config.num_attention_heads)
        self.architecture = str(config.model_type)
        self.max_length = min(max_length, longest_input(self.tokenizer, config, max_length))

    @torch.inference_mode()
    def read(self, texts: Sequence[str], pairs: Sequence[str] | None = None) -> Iterator[Seen]:
        """Yield the attention on every text (or pair), in order. Raises InputError if weights are not finite."""
        ends = [token for token in (self.tokenizer.cls_token_id, self.tokenizer.sep_token_id) if token is not None]
        shape = {"truncation": True, "max_length": self.max_length, "padding": True, "return_tensors": "pt"}
        for start in range(0, len(texts), BATCH):
            part = slice(start, start + BATCH)
            second = None if pairs is None else list(pairs[part])
            batch = self.tokenizer(list(texts[part]), second, **shape).to(self.model.device)
            found = self.model(**batch, output_attentions=True).attentions
            if not found or found[0] is None or found[0].dim() != 4:
                raise InputError(f"{self.architecture} gives no attention weights; expected a self-attention encoder")
            weights = torch.stack(list(found), dim=1).float().cpu().numpy()  # [B, layers, heads, T, T]
            if not np.isfinite(weights).all():
                raise InputError("attention weights are not finite: this model's training diverged; study another one")
            for padded, mask, of_text in zip(batch["input_ids"], batch["attention_mask"], weights, strict=True):
                kept = np.flatnonzero(mask.cpu())  # padding may be on either side
                ids = padded.cpu().numpy()[kept]
                tokens = [token.lstrip(WORD_MARKS) for token in self.tokenizer.convert_ids_to_tokens(ids.tolist())]
                period = np.array([token.rstrip(WORD_MARKS) == "." for token in tokens], dtype=bool)
                yield Seen(tokens, np.isin(ids, ends), period, of_text[..., kept[:, None], kept])
