"""ModernBERT with global attention: pre-norm, rotary positions, gated feed-forward networks (Warner et al. 2024).

The classifier reads the mean of all states.
"""

import math
from collections import OrderedDict
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tlm.settings.sections import Model
from tlm.training.model.encoder import Inputs, Layer, LayeredBody, attention

EPSILON = 1e-5
INITIAL = 0.02
CUTOFF = 2.0  # initial weights come from a normal distribution truncated at so many standard deviations
ROTARY_BASE = 10_000.0  # the published models use 160,000, for texts of thousands of tokens


def _truncated_normal(weight: Tensor, deviation: float) -> None:
    nn.init.trunc_normal_(weight, std=deviation, a=-CUTOFF * deviation, b=CUTOFF * deviation)


def _linear(inward: int, outward: int, deviation: float, bias: bool = False) -> nn.Linear:
    layer = nn.Linear(inward, outward, bias=bias)
    _truncated_normal(layer.weight, deviation)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


def _norm(width: int) -> nn.LayerNorm:
    return nn.LayerNorm(width, eps=EPSILON, bias=False)


def _outward(config: dict[str, Any]) -> float:
    """The standard deviation of initial weights that write into the residual stream."""
    return INITIAL / math.sqrt(2.0 * config["num_hidden_layers"])


class Rotary(nn.Module):
    """Rotary positions (Su et al. 2021): rotates queries and keys by angles that grow with the position.

    A pair of numbers is rotated as one complex number, in a single pass over memory; on a CPU, memory is what limits a
    small model. `transformers` pairs number i of a head with i + width/2, but the parts of a complex number are
    adjacent. Attention gives the same result for any order of a head's numbers that queries and keys share, so the
    rows of the projection are reordered. The module has no parameters.

    Attributes:
        order: The rows of the projection to queries, keys and values, ordered so that pairs are adjacent.
    """

    order: Tensor
    turns: Tensor

    def __init__(self, heads: int, width: int, base: float, positions: int) -> None:
        super().__init__()
        speeds = base ** -(torch.arange(0, width, 2, dtype=torch.float32) / width)
        angles = torch.arange(positions, dtype=torch.float32)[:, None] * speeds
        turn = torch.polar(torch.ones_like(angles), angles)
        turns = torch.stack([turn, turn, torch.ones_like(turn)], dim=1)  # values stay as they are
        self.register_buffer("turns", turns[:, :, None].repeat(1, 1, heads, 1), persistent=False)
        rows = torch.arange(3 * heads * width).view(3, heads, width)
        rows[:2] = rows[:2].view(2, heads, 2, -1).transpose(2, 3).reshape(2, heads, width)
        self.register_buffer("order", rows.flatten(), persistent=False)

    def forward(self, states: Tensor, parts: slice | int = slice(None), positions: Tensor | None = None) -> Tensor:
        """The rotated states, in the same shape and type.

        Args:
            states: Queries, keys and values, or some of them, [B, T, parts, heads, width].
            parts: Which of the three they are; with one number, `states` is [B, T, heads, width].
            positions: The position of each state in its text, [B, T]; by default 0, 1, …
        """
        turns = self.turns[: states.shape[1], parts] if positions is None else self.turns[:, parts][positions]
        pairs = torch.view_as_complex(states.float().view(*states.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * turns).flatten(-2).to(states.dtype)


class ModernBertLayer(Layer):
    """Attention, then a gated feed-forward network. Both read normalised states, except the first attention."""

    def __init__(self, config: dict[str, Any], rotary: Rotary, first: bool) -> None:
        super().__init__()
        width, inner, outward = config["hidden_size"], config["intermediate_size"], _outward(config)
        self.heads, self.dropout = config["num_attention_heads"], config["attention_dropout"]
        self.rotary = rotary
        self.attn_norm = nn.Identity() if first else _norm(width)
        self.attn = nn.ModuleDict({"Wqkv": _linear(width, 3 * width, INITIAL), "Wo": _linear(width, width, outward)})
        self.mlp_norm = _norm(width)
        self.mlp = nn.ModuleDict({"Wi": _linear(width, 2 * inner, INITIAL), "Wo": _linear(inner, width, outward)})

    def attend(self, hidden: Tensor, shape: torch.Size, mask: Tensor | None, queries: Tensor | None = None) -> Tensor:
        """Attend from all positions, or from `queries`, to all positions."""
        hidden = self.attn_norm(hidden)
        parts: Any = self.attn
        weight = parts["Wqkv"].weight.index_select(0, self.rotary.order)
        if queries is None:
            states = F.linear(hidden, weight).view(*shape, 3, self.heads, -1)
            query, key, value = self.rotary(states).unbind(dim=2)
        else:
            of_queries, of_others = weight.tensor_split((hidden.shape[1],))
            states = F.linear(hidden, of_others).view(*shape, 2, self.heads, -1)
            key, value = self.rotary(states, slice(1, 3)).unbind(dim=2)
            states = F.linear(hidden.index_select(0, queries.flatten()), of_queries)
            query = self.rotary(states.view(*queries.shape, self.heads, -1), 0, queries % shape[1])
        return attention(query, key, value, mask, self.dropout if self.training else 0.0)

    def finish(self, hidden: Tensor, context: Tensor) -> Tensor:
        """Project the context, add it, and run the feed-forward network."""
        hidden = hidden + F.dropout(self.attn["Wo"](context), self.dropout, self.training)
        inner, gate = self.mlp["Wi"](self.mlp_norm(hidden)).chunk(2, dim=-1)
        return hidden + self.mlp["Wo"](F.dropout(F.gelu(inner) * gate, self.dropout, self.training))  # type: ignore[no-any-return]


class ModernBertBody(LayeredBody):
    """A body with the parameters of `transformers.ModernBertForSequenceClassification`."""

    classifier_name = "ModernBertForSequenceClassification"
    pools_all = True
    head_names = ("head.", "classifier.")
    fixed: ClassVar[dict[str, Any]] = {
        "classifier_pooling": "mean", "classifier_activation": "gelu", "hidden_activation": "gelu", "norm_eps": EPSILON,
        **dict.fromkeys(("attention_bias", "mlp_bias", "norm_bias", "classifier_bias"), False),
    }  # fmt: skip
    dropouts = ("embedding_dropout", "attention_dropout", "mlp_dropout", "classifier_dropout")
    mlm_names: ClassVar[dict[str, str]] = {"transform": "head", "bias": "decoder.bias"}

    @staticmethod
    def shape(model: Model) -> dict[str, Any]:
        """Return the entries of config.json that only ModernBERT has."""
        rotary = {"rope_type": "default", "rope_theta": ROTARY_BASE}
        return {
            "layer_types": ["full_attention"] * model.layers,
            "rope_parameters": {"full_attention": rotary, "sliding_attention": rotary},
            "initializer_range": INITIAL, "initializer_cutoff_factor": CUTOFF,
        }  # fmt: skip

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        self.config, width = config, config["hidden_size"]
        heads, base = config["num_attention_heads"], config["rope_parameters"]["full_attention"]["rope_theta"]
        rotary = Rotary(heads, width // heads, base, config["max_position_embeddings"])
        table = nn.Embedding(config["vocab_size"], width)
        _truncated_normal(table.weight, INITIAL)
        layers = [ModernBertLayer(config, rotary, first=number == 0) for number in range(config["num_hidden_layers"])]
        embeddings = nn.ModuleDict({"tok_embeddings": table, "norm": _norm(width)})
        parts = {"embeddings": embeddings, "layers": nn.ModuleList(layers), "final_norm": _norm(width)}
        self.model: Any = nn.ModuleDict(parts)
        self.head = self.token_transform()
        self.classifier = _linear(width, len(config["id2label"]), width**-0.5, bias=True)

    def embed(self, ids: Tensor, types: Tensor | None) -> Tensor:
        """Embed and normalise tokens. ModernBERT has no token types: only [SEP] separates the texts of a pair."""
        part = self.model["embeddings"]
        hidden = part["norm"](part["tok_embeddings"](ids))
        return F.dropout(hidden, self.config["embedding_dropout"], self.training).flatten(0, 1)

    def layers(self) -> list[Layer]:
        """The layers, in order."""
        return list(self.model["layers"])

    def final(self, hidden: Tensor) -> Tensor:
        """The states after the final norm."""
        return self.model["final_norm"](hidden)  # type: ignore[no-any-return]

    def classify(self, states: Tensor, inputs: Inputs) -> Tensor:
        """Class logits, [B, labels], from the mean of the states of all tokens."""
        grid = states.view(*inputs.ids.shape, -1)
        if inputs.mask is not None:
            grid = grid * inputs.mask[:, 0, 0, :, None]
        pooled = self.head(grid.sum(dim=1) / inputs.lengths[:, None])
        return self.classifier(F.dropout(pooled, self.config["classifier_dropout"], self.training))  # type: ignore[no-any-return]

    def embedding(self) -> Tensor:
        """The token embeddings, [vocabulary, width]."""
        return self.model["embeddings"]["tok_embeddings"].weight  # type: ignore[no-any-return]

    def token_transform(self) -> nn.Module:
        """Dense, GELU, norm: what `transformers` calls ``head``, in both the classifier and the token predictor."""
        width = self.config["hidden_size"]
        dense = _linear(width, width, _outward(self.config))
        return nn.Sequential(OrderedDict(dense=dense, gelu=nn.GELU(), norm=_norm(width)))
