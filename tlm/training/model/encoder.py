"""The code that all architectures share: a step computes only what its losses need.

It leaves out the logits of tokens that are not predicted. In the last layer it computes only keys and values at
positions that neither head reads. The losses are exactly the same. Parameters are named as in `transformers`, so that
its classes load what we save. For the architectures written here its modules are not used, because importing them takes
longer than a small training; foreign.py uses them for all others.

`Tuning` is what a step does differently on a CPU and on a GPU, to save time. No loss changes by more than rounding.
What it does on a GPU was not measured before there was one: `python -m research gpu` measures steps without it.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn

from tlm.errors import Interrupted
from tlm.settings.sections import Model

READABLE = 0o644
NEARLY_LINEAR = 0.1  # factor of states, which have deviations of about 1


def write_tensors(tensors: dict[str, Tensor], path: Path) -> None:
    """Write `tensors`. Raises Interrupted if that fails, as on a full disk."""
    plain = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    try:
        save_file(plain, path, metadata={"format": "pt"})
    except (OSError, SafetensorError) as error:
        reason = f"{path.name} could not be written ({error})"
        raise Interrupted(f"{reason}; free some space, then repeat the command") from None
    path.chmod(READABLE)  # the library writes files that only the owner can read, but a pod may run as any user


@dataclass(frozen=True)
class Inputs:
    """A `Batch` on the device: B texts of T tokens; M tokens are predicted.

    Attributes:
        ids: Token ids, [B, T].
        lengths: Tokens of each text, special tokens included, [B].
        positions: Which tokens to predict, as indices into the flattened [B·T], [M]; empty if none are.
        queries: Which positions the last layer computes, as indices into the flattened [B·T]: in each row the text's
            first token, then those to predict, padded with the first, [B, Q].
        query_indices: Where the tokens to predict are in the flattened `queries`, [M].
        mask: True where there is a token, [B, 1, 1, T]; None if nothing is padded.
        types: 1 for the second text of a pair, [B, T]; None without pairs.
        labels: Class indices (int64) or targets (float32), [B]; a teacher's probabilities, or 0 and 1 for several
            labels (float32), [B, classes]; None for external data.
        corrupted: `ids` with masked, replaced and kept tokens, [B, T]; None if nothing is predicted.
        targets: The original ids of the tokens to predict, [M].
        of_rows: B of the whole batch; this may be a part of it.
        of_masked: M of the whole batch.
    """

    ids: Tensor
    lengths: Tensor
    positions: Tensor
    queries: Tensor
    query_indices: Tensor
    targets: Tensor
    of_rows: int
    of_masked: int
    mask: Tensor | None = None
    types: Tensor | None = None
    labels: Tensor | None = None
    corrupted: Tensor | None = None


def common_shape(model: Model, vocab_size: int) -> dict[str, Any]:
    """Return the entries of config.json for the shape that most architectures call alike."""
    return {
        "vocab_size": vocab_size, "hidden_size": model.hidden, "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads, "intermediate_size": model.intermediate,
        "max_position_embeddings": model.reach,
    }  # fmt: skip


class Layer(nn.Module):
    """A transformer layer in two halves. States are flat: [B·T, hidden]."""

    @abstractmethod
    def attend(self, hidden: Tensor, shape: torch.Size, mask: Tensor | None, queries: Tensor | None = None) -> Tensor:
        """The result of attention for each position, before the output projection.

        Args:
            hidden: States, flat.
            shape: (B, T).
            mask: As in `Inputs`.
            queries: Compute only these positions, [B, Q] as in `Inputs`; by default all.
        """

    @abstractmethod
    def finish(self, hidden: Tensor, context: Tensor) -> Tensor:
        """The rest of the layer. It works on each position alone, so any subset of the rows may be given."""


class Body(nn.Module):
    """The classifier that is exported, and its states for a head that predicts tokens.

    Attributes:
        head_names: Prefixes of the names of the classification head's parameters.
        mlm_names: What the library's ``…ForMaskedLM`` calls the parts of the MLM head that have other names here.
        config: The content of config.json.
    """

    head_names: tuple[str, ...]
    mlm_names: ClassVar[dict[str, str]] = {}
    config: dict[str, Any]

    def classification_head(self) -> nn.ModuleList:
        """The modules of the classification head."""
        return nn.ModuleList(self.get_submodule(name.removesuffix(".")) for name in self.head_names)

    def head_state(self) -> dict[str, Tensor]:
        """The part of the state that is the classification head's."""
        return {name: value for name, value in self.state_dict().items() if name.startswith(self.head_names)}

    @property
    def output(self) -> nn.Linear:
        """The last layer of the classification head, which has a bias in all architectures."""
        return [part for part in self.classification_head().modules() if isinstance(part, nn.Linear)][-1]

    @abstractmethod
    def read(self, inputs: Inputs, ids: Tensor, tokens: bool, classes: bool) -> tuple[Tensor | None, Tensor | None]:
        """Final states of the tokens to predict, [M, hidden], and class logits, [B, labels]; each only if asked for."""

    @abstractmethod
    def embedding(self) -> Tensor:
        """The token embeddings, [vocabulary, width]."""

    @abstractmethod
    def token_head(self) -> nn.Module:
        """A fresh head that maps (states [M, hidden], `embedding`) to logits [M, vocabulary]."""


class LayeredBody(Body):
    """A body of embeddings, layers and a classification head, which computes each position only as far as it is read.

    Attributes:
        pools_all: Whether the classifier reads the states of all positions, or only that of [CLS].
        classifier_name: The name of the library's class of the same parameters.
        fixed: Entries of config.json that the code implements.
        dropouts: Names of the dropouts in config.json.
    """

    classifier_name: str
    pools_all = False
    fixed: ClassVar[dict[str, Any]]
    dropouts: tuple[str, ...]

    @staticmethod
    @abstractmethod
    def shape(model: Model) -> dict[str, Any]:
        """Return the entries of config.json for the shape, besides those of `common_shape` and `fixed`."""

    @abstractmethod
    def embed(self, ids: Tensor, types: Tensor | None) -> Tensor:
        """The input of the first layer, flat."""

    @abstractmethod
    def layers(self) -> list[Layer]:
        """All layers in order."""

    def final(self, hidden: Tensor) -> Tensor:
        """The encoder's output, given the last layer's: the same states, where there is no final norm."""
        return hidden

    @abstractmethod
    def classify(self, states: Tensor, inputs: Inputs) -> Tensor:
        """Class logits, [B, labels], from the final states that `pools_all` says."""

    @abstractmethod
    def token_transform(self) -> nn.Module:
        """A fresh transform for the head that predicts tokens."""

    def token_head(self) -> nn.Module:
        """The transform of this architecture, then the embeddings and a bias."""
        return MlmHead(self.token_transform(), len(self.embedding()))

    def read(self, inputs: Inputs, ids: Tensor, tokens: bool, classes: bool) -> tuple[Tensor | None, Tensor | None]:
        """Run all layers, the last one only at the positions that are read."""
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
            rows = hidden.index_select(0, inputs.positions), context.index_select(0, inputs.query_indices)
            token_states = self.final(last.finish(*rows))
        if classes:
            rows = hidden[:: ids.shape[1]], context[:: queries.shape[1]]
            class_logits = self.classify(self.final(last.finish(*rows)), inputs)
        return token_states, class_logits


class MlmHead(nn.Module):
    """Predicts tokens: the architecture's transform, then the embedding matrix and a bias."""

    def __init__(self, transform: nn.Module, vocab_size: int) -> None:
        super().__init__()
        self.transform = transform
        self.bias = nn.Parameter(torch.zeros(vocab_size))

    @torch.no_grad()
    def begin_as_identity(self, log_frequencies: Tensor) -> None:
        """Compare the states themselves with the embeddings, and expect tokens as often as they are.

        GELU is nearly linear that close to 0; the norm restores the size of the states.
        """
        dense: Any = self.transform.dense
        dense.weight.copy_(NEARLY_LINEAR * torch.eye(len(dense.weight)))
        if dense.bias is not None:
            dense.bias.zero_()
        self.bias.copy_(log_frequencies)

    def forward(self, states: Tensor, embedding: Tensor) -> Tensor:
        """Logits, [M, vocabulary], from states [M, hidden]; on a GPU more of them, -inf, which change no loss."""
        bias: Tensor = self.bias
        more = -len(embedding) % tuning(embedding.device).vocabulary_multiple
        if more:
            embedding, bias = F.pad(embedding, (0, 0, 0, more)), F.pad(bias, (0, more), value=-math.inf)
        return F.linear(self.transform(states), embedding, bias)


class Encoder(nn.Module):
    """The exported classifier (`body`) and the head that predicts masked tokens (`mlm`)."""

    def __init__(self, body: Body) -> None:
        super().__init__()
        self.body = body
        self.mlm = body.token_head()

    def forward(self, inputs: Inputs, ids: Tensor, tokens: bool, classes: bool) -> tuple[Tensor | None, Tensor | None]:
        """Logits of the tokens to predict, [M, vocabulary], and of the classes, [B, labels]; each only if asked for.

        Args:
            inputs: The batch.
            ids: The ids to read: ``inputs.ids`` or ``inputs.corrupted``.
            tokens: Predict the tokens at ``inputs.positions``.
            classes: Classify.
        """
        states, class_logits = self.body.read(inputs, ids, tokens, classes)
        return None if states is None else self.mlm(states, self.body.embedding()), class_logits


def attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float) -> Tensor:
    """Scaled dot-product attention of [B, T, heads, width] tensors; the result is flat, [B·T, heads·width]."""
    query, key, value = (part.transpose(1, 2) for part in (query, key, value))
    with attention_format(query.device) as cast:
        context = F.scaled_dot_product_attention(cast(query), cast(key), cast(value), mask, dropout)
    return context.transpose(1, 2).flatten(2).flatten(0, 1)


@contextmanager
def attention_format(device: torch.device) -> Iterator[Callable[[Any], Any]]:
    """Suspend autocast where attention is computed in fp32; gives the cast of its arguments, whatever they are."""
    if tuning(device).half_attention or not torch.is_autocast_enabled(device.type):
        yield lambda given: given
        return
    with torch.autocast(device.type, enabled=False):
        yield lambda given: given.float() if torch.is_tensor(given) and given.is_floating_point() else given


@dataclass(frozen=True)
class Tuning:
    """The habits of a step on one kind of device.

    Attributes:
        length_multiple: Batches with padding are as wide as a multiple of this: fewer shapes, aligned attention masks.
        vocabulary_multiple: The logits of tokens are as many as a multiple of this: aligned matrix products.
        pinned: Batches are copied from page-locked memory; from other memory the copy waits for the device.
        ahead: A thread makes the next batch while a step runs, mostly in the backward pass, which leaves Python free.
        half_attention: Attention is computed in bf16 where the rest is. For texts of 40 tokens, torch's kernel for CPUs
            takes four times as long in bf16 as in fp32; at 512 tokens they are equal.
    """

    length_multiple: int = 1
    vocabulary_multiple: int = 1
    pinned: bool = False
    ahead: bool = False
    half_attention: bool = False


PLAIN = Tuning()
GPU = Tuning(length_multiple=8, vocabulary_multiple=64, pinned=True, ahead=True, half_attention=True)
OF_KIND = {"cuda": GPU}  # which is patched to measure or test other habits


def tuning(device: torch.device) -> Tuning:
    """The habits on a device."""
    return OF_KIND.get(device.type, PLAIN)


@contextmanager
def tf32() -> Iterator[None]:
    """Let a GPU round the factors of fp32 products to TF32 in the block; elsewhere nothing changes."""
    products = torch.backends.cuda.matmul
    before, products.allow_tf32 = products.allow_tf32, True
    try:
        yield
    finally:
        products.allow_tf32 = before
