"""What all architectures share: the step computes only what the losses need.

Left out are logits of tokens that are not predicted, and in the last layer all but keys and values at positions that
neither head reads. That is exact. Parameters are named as in `transformers`, so that its classes load what we save; its
own modules are not used where we have the architecture, because importing them takes longer than a small training
(foreign.py has those that we have not).
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tlm.training.input.batches import Batch


@dataclass(frozen=True)
class Inputs:
    """A `Batch` on the device.

    Attributes:
        positions: As the batch has them, [M]; of length 0 if nothing is to be predicted.
        queries: The flat positions that heads read if they do not read all, of each text its first and those to
            predict, filled up with the first, [B, Q].
        places: Where the positions to predict stand in the flattened `queries`, [M].
        mask: True where there is a token, [B, 1, 1, T]; None if nothing is padded.
    """

    ids: Tensor
    lengths: Tensor
    positions: Tensor
    queries: Tensor
    places: Tensor
    mask: Tensor | None
    types: Tensor | None
    labels: Tensor | None
    corrupted: Tensor | None
    targets: Tensor | None
    of_rows: int
    of_masked: int


def to_device(batch: Batch, device: torch.device) -> Inputs:
    """Copy a batch to the device."""

    def moved(array: Any) -> Tensor:
        return torch.from_numpy(array).to(device, non_blocking=True)

    def perhaps(array: Any) -> Tensor | None:
        return None if array is None else moved(array)

    ids, lengths = moved(batch.ids), moved(batch.lengths)
    queries, places = batch.queries()
    padded = batch.tokens < batch.ids.size
    mask = (torch.arange(ids.shape[1], device=device) < lengths[:, None])[:, None, None, :] if padded else None
    return Inputs(
        ids, lengths, moved(batch.predicted), moved(queries), moved(places), mask, perhaps(batch.types),
        perhaps(batch.labels), perhaps(batch.corrupted), perhaps(batch.targets), batch.of_rows, batch.of_masked,
    )  # fmt: skip


class Layer(nn.Module):
    """A transformer layer in two halves. States are flat: [B·T, hidden]."""

    @abstractmethod
    def attend(self, hidden: Tensor, shape: torch.Size, mask: Tensor | None, queries: Tensor | None = None) -> Tensor:
        """What attention gathers for each position, before its output projection; `shape` is (B, T).

        With `queries`, flat positions [B, Q], it is for those alone.
        """

    @abstractmethod
    def finish(self, hidden: Tensor, context: Tensor) -> Tensor:
        """The rest, position by position: it may be given any choice of rows."""


class Body(nn.Module):
    """The classifier that is exported, and what it lets a head that predicts tokens read."""

    head_names: tuple[str, ...]  # how the parameters of the classification head begin
    config: dict[str, Any]  # as in config.json

    @abstractmethod
    def read(self, inputs: Inputs, ids: Tensor, tokens: bool, classes: bool) -> tuple[Tensor | None, Tensor | None]:
        """Final states of the tokens to predict [M, hidden] and class logits [B, labels], each if asked for."""

    @abstractmethod
    def embedding(self) -> Tensor:
        """The matrix of token embeddings, [vocabulary, its width]."""

    @abstractmethod
    def token_head(self) -> nn.Module:
        """A fresh head that predicts tokens: (states [M, hidden], `embedding`) to logits [M, vocabulary]."""


class LayeredBody(Body):
    """Embeddings, layers and a classification head of our own: each position is computed only as far as it is read."""

    pools_all: bool  # whether the classifier reads all states, or that of [CLS] alone

    @abstractmethod
    def embed(self, ids: Tensor, types: Tensor | None) -> Tensor:
        """What enters the first layer, flat."""

    @abstractmethod
    def layers(self) -> list[Layer]:
        """All layers in order."""

    @abstractmethod
    def final(self, hidden: Tensor) -> Tensor:
        """What leaves the encoder, given what leaves the last layer."""

    @abstractmethod
    def classify(self, states: Tensor, inputs: Inputs) -> Tensor:
        """Class logits [B, labels] from the final states of all positions, or of [CLS]: see `pools_all`."""

    @abstractmethod
    def token_transform(self) -> nn.Module:
        """A fresh transform for the head that predicts tokens."""

    def token_head(self) -> nn.Module:
        """See `Body.token_head`."""
        return MlmHead(self.token_transform(), len(self.embedding()))

    def read(self, inputs: Inputs, ids: Tensor, tokens: bool, classes: bool) -> tuple[Tensor | None, Tensor | None]:
        """See `Body.read`."""
        *before, last = self.layers()
        hidden = self.embed(ids, inputs.types)
        for layer in before:
            hidden = layer.finish(hidden, layer.attend(hidden, ids.shape, inputs.mask))
        if classes and self.pools_all:
            states = self.final(last.finish(hidden, last.attend(hidden, ids.shape, inputs.mask)))
            token_states = states.index_select(0, inputs.positions) if tokens else None
            return token_states, self.classify(states, inputs)
        queries = inputs.queries if tokens else inputs.queries[:, :1]
        context = last.attend(hidden, ids.shape, inputs.mask, queries)
        token_states = class_logits = None
        if tokens:
            rows = hidden.index_select(0, inputs.positions), context.index_select(0, inputs.places)
            token_states = self.final(last.finish(*rows))
        if classes:
            rows = hidden[:: ids.shape[1]], context[:: queries.shape[1]]
            class_logits = self.classify(self.final(last.finish(*rows)), inputs)
        return token_states, class_logits


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
    """The exported classifier (`body`) and beside it the head that predicts masked tokens (`mlm`)."""

    def __init__(self, body: Body) -> None:
        super().__init__()
        self.body = body
        self.mlm = body.token_head()

    def forward(self, inputs: Inputs, ids: Tensor, tokens: bool, classes: bool) -> tuple[Tensor | None, Tensor | None]:
        """Logits of the tokens to predict [M, vocabulary] and of the classes [B, labels], each if asked for.

        Args:
            inputs: The batch.
            ids: What the encoder reads: ``inputs.ids`` or ``inputs.corrupted``.
            tokens: Predict the tokens at ``inputs.positions``.
            classes: Classify.
        """
        states, class_logits = self.body.read(inputs, ids, tokens, classes)
        return None if states is None else self.mlm(states, self.body.embedding()), class_logits


def attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float) -> Tensor:
    """Scaled dot-product attention of [B, T, heads, width] tensors; the result is flat, [B·T, heads·width]."""
    query, key, value = (part.transpose(1, 2) for part in (query, key, value))
    context = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)
    return context.transpose(1, 2).flatten(2).flatten(0, 1)
