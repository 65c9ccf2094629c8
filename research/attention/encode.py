"""The attention weights of any encoder that `transformers` loads from a folder: ours, BERT, RoBERTa, ModernBERT.

A head looks, for each token, at the key that gets the most attention. A head is

* **positional** if for at least 90 % of the tokens this key is a neighbour, the token before or after. (Voita et al.
  2019, "Analyzing Multi-Head Self-Attention", ask for one fixed offset, in practice -1 or +1; the paper asks for
  adjacent tokens.)
* **vertical** if for more than 90 % of the tokens it is [CLS], [SEP] or a period, which shows as columns. (Kovaleva
  et al. 2019, "Revealing the Dark Secrets of BERT": such heads may carry little information about the text.)

[CLS] and [SEP] count as keys but not as queries, because they stand for no word; padding counts as neither. Keys that
tie for the maximum share the token equally, so a head with uniform attention is of neither kind. A token beside
[CLS], [SEP] or a period may count for both kinds.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModel

from tlm.errors import InputError
from tlm.evaluation.predict.classifier import load_pretrained, longest_input

PLACES = ("previous", "next", "itself", "special", "period", "elsewhere")  # exclusive: the first that fits
SHARES = ("adjacent", "vertical", *PLACES)
KINDS = ("positional", "vertical", "other")

Bools = NDArray[np.bool_]


def looks(weights: NDArray[Any], special: Bools, period: Bools) -> NDArray[np.float64]:
    """Count how many tokens of a text look where, for each head.

    Args:
        weights: Attention without padding, [..., T, T]: rows are queries, columns are keys.
        special: Whether a token is [CLS] or [SEP], [T].
        period: Whether a token is a period, [T].

    Returns:
        [..., 8] in the order of `SHARES`: ``adjacent`` is previous + next; ``vertical`` counts [CLS], [SEP] and periods
        wherever they stand; the others are exclusive and add up to the number of query tokens.
    """
    queries = np.flatnonzero(~special)
    rows = weights[..., queries, :]
    best = (rows == rows.max(axis=-1, keepdims=True)).astype(np.float64)
    best /= best.sum(axis=-1, keepdims=True)
    offset = np.arange(len(special)) - queries[:, None]
    conditions = [offset == -1, offset == 1, offset == 0, special[None], period[None]]
    place = np.select(conditions, list(range(5)), default=PLACES.index("elsewhere"))  # [queries, T]
    counts = [np.where(place == number, best, 0.0).sum(axis=(-1, -2)) for number in range(len(PLACES))]
    vertical = best[..., special | period].sum(axis=(-1, -2))
    return np.stack([counts[0] + counts[1], vertical, *counts], axis=-1)


def kind_of(shares: dict[str, float], threshold: float) -> str:
    """The kind of a head with these shares of tokens, which are named as in `SHARES`."""
    if shares["adjacent"] >= threshold:
        return "positional"
    return "vertical" if shares["vertical"] > threshold else "other"


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
