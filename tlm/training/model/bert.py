"""BERT: post-norm, learned positions; the classifier reads [CLS] through the pooler (Devlin et al. 2019)."""

from collections import OrderedDict
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tlm.settings.sections import Model
from tlm.training.model.encoder import Inputs, Layer, LayeredBody, attention

EPSILON = 1e-12
INITIAL = 0.02


def _linear(inward: int, outward: int) -> nn.Linear:
    layer = nn.Linear(inward, outward)
    nn.init.normal_(layer.weight, std=INITIAL)
    nn.init.zeros_(layer.bias)
    return layer


def _embedding(rows: int, width: int) -> nn.Embedding:
    table = nn.Embedding(rows, width)
    nn.init.normal_(table.weight, std=INITIAL)
    return table


def _residual(inward: int, width: int) -> nn.ModuleDict:
    return nn.ModuleDict({"dense": _linear(inward, width), "LayerNorm": nn.LayerNorm(width, eps=EPSILON)})


class BertLayer(Layer):
    """Attention, then a feed-forward network; each is added to its input, and the sum is normalised."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        width, inner = config["hidden_size"], config["intermediate_size"]
        self.heads, self.dropout = config["num_attention_heads"], config["hidden_dropout_prob"]
        read = nn.ModuleDict({name: _linear(width, width) for name in ("query", "key", "value")})
        self.attention = nn.ModuleDict({"self": read, "output": _residual(width, width)})
        self.intermediate = nn.ModuleDict({"dense": _linear(width, inner)})
        self.output = _residual(inner, width)

    def attend(self, hidden: Tensor, shape: torch.Size, mask: Tensor | None, queries: Tensor | None = None) -> Tensor:
        """Attend from all positions, or from `queries`, to all positions."""
        parts: Any = self.attention["self"]
        key, value = (parts[name](hidden).view(*shape, self.heads, -1) for name in ("key", "value"))
        if queries is not None:
            hidden, shape = hidden.index_select(0, queries.flatten()), queries.shape
        query = parts["query"](hidden).view(*shape, self.heads, -1)
        return attention(query, key, value, mask, self.dropout if self.training else 0.0)

    def finish(self, hidden: Tensor, context: Tensor) -> Tensor:
        """Project the context, add it, and run the feed-forward network."""
        hidden = self._add(self.attention["output"], context, hidden)
        return self._add(self.output, F.gelu(self.intermediate["dense"](hidden)), hidden)

    def _add(self, part: Any, states: Tensor, hidden: Tensor) -> Tensor:
        change = F.dropout(part["dense"](states), self.dropout, self.training)
        return part["LayerNorm"](hidden + change)  # type: ignore[no-any-return]


class BertBody(LayeredBody):
    """A body with the parameters of `transformers.BertForSequenceClassification`."""

    classifier_name = "BertForSequenceClassification"
    head_names = ("bert.pooler.", "classifier.")
    fixed: ClassVar[dict[str, Any]] = {"hidden_act": "gelu", "layer_norm_eps": EPSILON}
    dropouts = ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout")
    mlm_names: ClassVar[dict[str, str]] = {"transform": "cls.predictions.transform", "bias": "cls.predictions.bias"}

    @staticmethod
    def shape(model: Model) -> dict[str, Any]:
        """Return the entries of config.json that only BERT has."""
        return {"type_vocab_size": model.token_types, "initializer_range": INITIAL}

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        self.config, width = config, config["hidden_size"]
        rows = {"word": "vocab_size", "position": "max_position_embeddings", "token_type": "type_vocab_size"}
        tables = {f"{name}_embeddings": _embedding(config[size], width) for name, size in rows.items()}
        embeddings = nn.ModuleDict({**tables, "LayerNorm": nn.LayerNorm(width, eps=EPSILON)})
        layers = nn.ModuleList(BertLayer(config) for _ in range(config["num_hidden_layers"]))
        pooler = nn.ModuleDict({"dense": _linear(width, width)})
        encoder = nn.ModuleDict({"layer": layers})
        self.bert: Any = nn.ModuleDict({"embeddings": embeddings, "encoder": encoder, "pooler": pooler})
        self.classifier = _linear(width, len(config["id2label"]))

    def embed(self, ids: Tensor, types: Tensor | None) -> Tensor:
        """Add the embeddings of tokens, positions and token types, and normalise."""
        tables = self.bert["embeddings"]
        position = tables["position_embeddings"].weight[: ids.shape[1]]
        type_table = tables["token_type_embeddings"]
        kind = type_table.weight[0] if types is None or len(type_table.weight) == 1 else type_table(types)
        hidden = tables["LayerNorm"](tables["word_embeddings"](ids) + kind + position)
        return F.dropout(hidden, self.config["hidden_dropout_prob"], self.training).flatten(0, 1)

    def layers(self) -> list[Layer]:
        """The layers, in order."""
        return list(self.bert["encoder"]["layer"])

    def classify(self, states: Tensor, inputs: Inputs) -> Tensor:
        """Class logits, [B, labels], from the states of [CLS]."""
        pooled = self.bert["pooler"]["dense"](states).tanh()
        return self.classifier(F.dropout(pooled, self.config["classifier_dropout"], self.training))  # type: ignore[no-any-return]

    def embedding(self) -> Tensor:
        """The token embeddings, [vocabulary, width]."""
        return self.bert["embeddings"]["word_embeddings"].weight  # type: ignore[no-any-return]

    def token_transform(self) -> nn.Module:
        """Dense, GELU, norm: the parameters of `transformers`' ``cls.predictions.transform``."""
        width = self.config["hidden_size"]
        norm = nn.LayerNorm(width, eps=EPSILON)
        return nn.Sequential(OrderedDict(dense=_linear(width, width), gelu=nn.GELU(), LayerNorm=norm))
