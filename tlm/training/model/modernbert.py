"""ModernBERT, global attention only: pre-norm, rotary positions, gated feed-forward parts (Warner et al. 2024).

The classifier reads the mean of all states.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tlm.settings import Model
from tlm.training.model.encoder import Inputs, Layer, LayeredBody, attention
from tlm.training.model.rotary import Rotary

EPSILON = 1e-5
INITIAL = 0.02
CUT = 2.0  # initial weights are drawn from a normal distribution cut at so many standard deviations
ROTARY_BASE = 10_000.0  # ModernBERT's own, 160,000, is made for texts of thousands of tokens
FIXED: dict[str, Any] = {  # in config.json: what is written out below
    "classifier_pooling": "mean",
    "classifier_activation": "gelu",
    "hidden_activation": "gelu",
    "norm_eps": EPSILON,
    **dict.fromkeys(("attention_bias", "mlp_bias", "norm_bias", "classifier_bias"), False),
}


def modernbert_config(model: Model, vocab_size: int) -> dict[str, Any]:
    """The part of config.json that gives the shape."""
    rotary = {"rope_type": "default", "rope_theta": ROTARY_BASE}
    return {
        "architectures": ["ModernBertForSequenceClassification"],
        "model_type": "modernbert",
        "vocab_size": vocab_size,
        "hidden_size": model.hidden,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "intermediate_size": model.intermediate,
        "max_position_embeddings": model.reach,
        "layer_types": ["full_attention"] * model.layers,
        "rope_parameters": {"full_attention": rotary, "sliding_attention": rotary},
        "initializer_range": INITIAL,
        "initializer_cutoff_factor": CUT,
        **FIXED,
    }


def modernbert_dropout(share: float) -> dict[str, float]:
    """The part of config.json that sets dropout."""
    return dict.fromkeys(("embedding_dropout", "attention_dropout", "mlp_dropout", "classifier_dropout"), share)


def _cut_normal(weight: Tensor, deviation: float) -> None:
    nn.init.trunc_normal_(weight, std=deviation, a=-CUT * deviation, b=CUT * deviation)


def _linear(inward: int, outward: int, deviation: float, bias: bool = False) -> nn.Linear:
    layer = nn.Linear(inward, outward, bias=bias)
    _cut_normal(layer.weight, deviation)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


def _norm(width: int) -> nn.LayerNorm:
    return nn.LayerNorm(width, eps=EPSILON, bias=False)


def _outward(config: dict[str, Any]) -> float:
    """Deviation of what writes into the residual stream."""
    return INITIAL / math.sqrt(2.0 * config["num_hidden_layers"])


class ModernBertLayer(Layer):
    """Attention and gated feed-forward part, each reading normalised states; the first layer reads them as they are."""

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
        """See `Layer.attend`."""
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
        """See `Layer.finish`."""
        hidden = hidden + F.dropout(self.attn["Wo"](context), self.dropout, self.training)
        inner, gate = self.mlp["Wi"](self.mlp_norm(hidden)).chunk(2, dim=-1)
        return hidden + self.mlp["Wo"](F.dropout(F.gelu(inner) * gate, self.dropout, self.training))  # type: ignore[no-any-return]


class ModernBertBody(LayeredBody):
    """Its parameters are those of `transformers.ModernBertForSequenceClassification`."""

    pools_all = True
    head_names = ("head.", "classifier.")

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        self.config, width = config, config["hidden_size"]
        heads, base = config["num_attention_heads"], config["rope_parameters"]["full_attention"]["rope_theta"]
        rotary = Rotary(heads, width // heads, base, config["max_position_embeddings"])
        table = nn.Embedding(config["vocab_size"], width)
        _cut_normal(table.weight, INITIAL)
        layers = [ModernBertLayer(config, rotary, first=number == 0) for number in range(config["num_hidden_layers"])]
        self.model: Any = nn.ModuleDict(
            {
                "embeddings": nn.ModuleDict({"tok_embeddings": table, "norm": _norm(width)}),
                "layers": nn.ModuleList(layers),
                "final_norm": _norm(width),
            }
        )
        self.head = self.token_transform()
        self.classifier = _linear(width, len(config["id2label"]), width**-0.5, bias=True)

    def embed(self, ids: Tensor, types: Tensor | None) -> Tensor:
        """See `LayeredBody.embed`. ModernBERT does not tell the two texts of a pair apart but by [SEP]."""
        part = self.model["embeddings"]
        hidden = part["norm"](part["tok_embeddings"](ids))
        return F.dropout(hidden, self.config["embedding_dropout"], self.training).flatten(0, 1)

    def layers(self) -> list[Layer]:
        """See `LayeredBody.layers`."""
        return list(self.model["layers"])

    def final(self, hidden: Tensor) -> Tensor:
        """See `LayeredBody.final`."""
        return self.model["final_norm"](hidden)  # type: ignore[no-any-return]

    def classify(self, states: Tensor, inputs: Inputs) -> Tensor:
        """See `LayeredBody.classify`."""
        grid = states.view(*inputs.ids.shape, -1)
        if inputs.mask is not None:
            grid = grid * inputs.mask[:, 0, 0, :, None]
        pooled = self.head(grid.sum(dim=1) / inputs.lengths[:, None])
        return self.classifier(F.dropout(pooled, self.config["classifier_dropout"], self.training))  # type: ignore[no-any-return]

    def embedding(self) -> Tensor:
        """See `Body.embedding`."""
        return self.model["embeddings"]["tok_embeddings"].weight  # type: ignore[no-any-return]

    def token_transform(self) -> nn.Module:
        """See `LayeredBody.token_transform`."""
        return ModernBertTransform(self.config["hidden_size"], _outward(self.config))


class ModernBertTransform(nn.Module):
    """Dense, GELU, norm: what `transformers` calls ``head``, both in the classifier and in the token predictor."""

    def __init__(self, width: int, deviation: float) -> None:
        super().__init__()
        self.dense, self.norm = _linear(width, width, deviation), _norm(width)

    def forward(self, states: Tensor) -> Tensor:
        """Same shape."""
        return self.norm(F.gelu(self.dense(states)))  # type: ignore[no-any-return]
