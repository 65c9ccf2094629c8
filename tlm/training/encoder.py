"""The model: transformers' modules hold the parameters, the step is ours and computes only what the losses need.

What is not needed: logits of tokens that are not predicted, and everything after the last layer's attention at
positions that neither the masked-language model nor the classifier reads. Leaving both out is exact.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import BertForSequenceClassification, ModernBertForSequenceClassification
from transformers.models.bert.modeling_bert import BertPredictionHeadTransform
from transformers.models.modernbert.modeling_modernbert import ModernBertPredictionHead, apply_rotary_pos_emb

from tlm.training.batches import Batch


@dataclass(frozen=True)
class Inputs:
    """A `Batch` on the device; `mask` is True where there is a token, [B, 1, 1, T], None if nothing is padded."""

    ids: Tensor
    lengths: Tensor
    mask: Tensor | None
    types: Tensor | None
    labels: Tensor | None
    corrupted: Tensor | None
    positions: Tensor | None
    targets: Tensor | None
    of_rows: int
    of_masked: int


def to_device(batch: Batch, device: torch.device) -> Inputs:
    """Copy a batch to the device."""

    def moved(array: Any) -> Tensor | None:
        return None if array is None else torch.from_numpy(array).to(device, non_blocking=True)

    ids, lengths = moved(batch.ids), moved(batch.lengths)
    assert ids is not None
    assert lengths is not None
    padded = batch.tokens < batch.ids.size
    mask = (torch.arange(ids.shape[1], device=device) < lengths[:, None])[:, None, None, :] if padded else None
    return Inputs(
        ids, lengths, mask, moved(batch.types), moved(batch.labels), moved(batch.corrupted),
        moved(batch.positions), moved(batch.targets), batch.of_rows, batch.of_masked,
    )  # fmt: skip


class MlmHead(nn.Module):
    """Predicts tokens from states [M, hidden]: the architecture's transform, then the embedding matrix and a bias."""

    def __init__(self, transform: nn.Module, vocab_size: int) -> None:
        super().__init__()
        self.transform = transform
        self.bias = nn.Parameter(torch.zeros(vocab_size))

    def forward(self, states: Tensor, embedding: Tensor) -> Tensor:
        """Logits [M, vocabulary]."""
        return F.linear(self.transform(states), embedding, self.bias)


class Encoder(nn.Module):
    """The classifier that is exported (`body`) and beside it the head that predicts masked tokens (`mlm`)."""

    pooled_stride: int | None  # the classifier reads every so many-th flat position: 1 is all, None is [CLS]
    head_names: tuple[str, ...]  # how the parameters of the classification head begin

    def __init__(self, body: Any, transform: nn.Module) -> None:
        super().__init__()
        self.body = body
        self.mlm = MlmHead(transform.apply(body._init_weights), body.config.vocab_size)

    def forward(self, inputs: Inputs, ids: Tensor, tokens: bool, classes: bool) -> tuple[Tensor | None, Tensor | None]:
        """Logits of the tokens to predict [M, vocabulary] and of the classes [B, labels], each if asked for.

        Args:
            inputs: The batch.
            ids: What the encoder reads: ``inputs.ids`` or ``inputs.corrupted``.
            tokens: Predict the tokens at ``inputs.positions``.
            classes: Classify.
        """
        hidden, context = self.attended(inputs, ids)
        states = token_logits = class_logits = None
        if classes:
            pooled = slice(None, None, self.pooled_stride or ids.shape[1])
            states = self.finish(hidden[pooled], context[pooled])
            class_logits = self.classify(states, inputs)
        if tokens:
            if states is None or self.pooled_stride != 1:
                token_states = self.finish(hidden[inputs.positions], context[inputs.positions])
            else:
                token_states = states[inputs.positions]
            token_logits = self.mlm(token_states, self.body.get_input_embeddings().weight)
        return token_logits, class_logits

    @abstractmethod
    def attended(self, inputs: Inputs, ids: Tensor) -> tuple[Tensor, Tensor]:
        """What enters the last layer, and what its attention gathers before projection; both flat, [B·T, hidden]."""

    @abstractmethod
    def finish(self, hidden: Tensor, context: Tensor) -> Tensor:
        """The rest of the last layer, position by position: final states, as many rows as given."""

    @abstractmethod
    def classify(self, states: Tensor, inputs: Inputs) -> Tensor:
        """Class logits [B, labels] from the final states that `pooled_stride` chose."""


class BertEncoder(Encoder):
    """BERT: post-norm, learned positions, the classifier reads [CLS] through the pooler."""

    pooled_stride = None
    head_names = ("bert.pooler.", "classifier.")

    def __init__(self, config: Any) -> None:
        transform: nn.Module = BertPredictionHeadTransform(config)  # type: ignore[no-untyped-call]
        super().__init__(BertForSequenceClassification(config), transform)

    def attended(self, inputs: Inputs, ids: Tensor) -> tuple[Tensor, Tensor]:
        """See `Encoder.attended`."""
        bert = self.body.bert
        hidden = bert.embeddings(ids, token_type_ids=inputs.types)
        *before, last = bert.encoder.layer
        for layer in before:
            hidden = layer(hidden, inputs.mask)
        context = last.attention.self(hidden, inputs.mask)[0]
        return hidden.flatten(0, 1), context.flatten(0, 1)

    def finish(self, hidden: Tensor, context: Tensor) -> Tensor:
        """See `Encoder.finish`."""
        last = self.body.bert.encoder.layer[-1]
        return last.feed_forward_chunk(last.attention.output(context, hidden))  # type: ignore[no-any-return]

    def classify(self, states: Tensor, inputs: Inputs) -> Tensor:
        """See `Encoder.classify`."""
        pooled = self.body.bert.pooler(states[:, None])
        return self.body.classifier(self.body.dropout(pooled))  # type: ignore[no-any-return]


class ModernBertEncoder(Encoder):
    """ModernBERT, global attention only: pre-norm, rotary positions, the classifier reads the mean of all states."""

    pooled_stride = 1
    head_names = ("head.", "classifier.")

    def __init__(self, config: Any) -> None:
        super().__init__(ModernBertForSequenceClassification(config), ModernBertPredictionHead(config))

    def attended(self, inputs: Inputs, ids: Tensor) -> tuple[Tensor, Tensor]:
        """See `Encoder.attended`."""
        model = self.body.model
        hidden = model.embeddings(ids)
        places = torch.arange(ids.shape[1], device=ids.device)[None]
        rotary = model.rotary_emb(hidden, places, "full_attention")
        *before, last = model.layers
        for layer in before:
            hidden = layer(hidden, attention_mask=inputs.mask, position_embeddings=rotary)
        context = _attend(last.attn, last.attn_norm(hidden), inputs.mask, rotary)
        return hidden.flatten(0, 1), context.flatten(0, 1)

    def finish(self, hidden: Tensor, context: Tensor) -> Tensor:
        """See `Encoder.finish`."""
        last = self.body.model.layers[-1]
        hidden = hidden + last.attn.out_drop(last.attn.Wo(context))
        hidden = hidden + last.mlp(last.mlp_norm(hidden))
        return self.body.model.final_norm(hidden)  # type: ignore[no-any-return]

    def classify(self, states: Tensor, inputs: Inputs) -> Tensor:
        """See `Encoder.classify`."""
        grid = states.view(*inputs.ids.shape, -1)
        if inputs.mask is not None:
            grid = grid * inputs.mask[:, 0, 0, :, None]
        mean = grid.sum(dim=1) / inputs.lengths[:, None]
        return self.body.classifier(self.body.drop(self.body.head(mean)))  # type: ignore[no-any-return]


def _attend(attention: Any, states: Tensor, mask: Tensor | None, rotary: tuple[Tensor, Tensor]) -> Tensor:
    """`ModernBertAttention.forward` up to its output projection."""
    shape = (*states.shape[:2], 3, -1, attention.head_dim)
    query, key, value = (part.transpose(1, 2) for part in attention.Wqkv(states).view(shape).unbind(dim=2))
    query, key = apply_rotary_pos_emb(query, key, *rotary)
    dropout = attention.attention_dropout if attention.training else 0.0
    context = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)
    return context.transpose(1, 2).flatten(2)
