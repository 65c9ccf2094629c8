"""Batches of texts of similar length, padded to the longest, with tokens masked; their mixture, and what they cost.

numpy only. The costs are floating-point operations of our step on real tokens; checkpoint.py has the paper's estimate.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tlm.data.ranges import Ints
from tlm.settings.sections import OWN, Model
from tlm.training.input.texts import Special, Texts

ORDER, MASK, DROPOUT, HELD_OUT, HEADS, LOW_RANK = range(6)  # purposes
EXTERNAL, INTERNAL, STAGE2, SECOND_TASK = range(4)  # streams of batches; SECOND_TASK + 1 is the third task, and so on
UNLABELLED = 1 << 20  # the stream of texts without labels


def generator(seed: int, purpose: int, *index: int) -> np.random.Generator:
    """The generator for one purpose and index (such as a stream and a step)."""
    return np.random.default_rng([seed, purpose, *index])


def number(seed: int, purpose: int, *index: int) -> int:
    """A seed of 63 bits, for torch."""
    return int(np.random.SeedSequence([seed, purpose, *index]).generate_state(1, np.uint64)[0] >> np.uint64(1))


CHUNK = 32  # batches whose texts are sorted together: enough for 97 % real tokens, few enough to stay random
NONE: Ints = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class Batch:
    """B texts padded to T tokens.

    Attributes:
        ids: Token ids, [B, T].
        lengths: Tokens of each text, special tokens included, [B].
        types: 1 for the second text of a pair, [B, T]; None without pairs.
        labels: Class indices (int64) or targets (float32), [B]; a teacher's probabilities (float32), [B, classes]; None
            for external data.
        corrupted: `ids` with masked, replaced and kept tokens, [B, T]; None if nothing is predicted.
        positions: Which tokens to predict, as ascending indices into the flattened [B·T], [M]; empty if none are.
        targets: The original ids of those tokens, [M].
        of_rows: B of the whole batch; this may be a part of it.
        of_masked: M of the whole batch.
        most: Tokens that a text may have, which T does not exceed.
    """

    ids: Ints
    lengths: Ints
    types: Ints | None = None
    labels: NDArray[Any] | None = None
    corrupted: Ints | None = None
    positions: Ints = field(default_factory=lambda: NONE)
    targets: Ints = field(default_factory=lambda: NONE)
    of_rows: int = 0
    of_masked: int = 0
    most: int = 0

    @property
    def tokens(self) -> int:
        """The number of tokens, without padding."""
        return int(self.lengths.sum())

    @property
    def padded(self) -> int:
        """The number of tokens as the paper counts them: with every text padded to the full length."""
        return len(self.lengths) * self.most

    def masked_by_row(self) -> Ints:
        """Return the number of tokens to predict in each text, [B]."""
        rows, width = self.ids.shape
        return np.bincount(self.positions // width, minlength=rows)

    def queries(self) -> tuple[Ints, Ints]:
        """The `queries` [B, Q] and `query_indices` [M] of `encoder.Inputs`."""
        rows, width = self.ids.shape
        masked = self.masked_by_row()
        first_tokens = np.arange(0, rows * width, width)
        queries = np.repeat(first_tokens[:, None], 1 + masked.max(), axis=1)
        row = self.positions // width
        in_earlier_rows = np.cumsum(masked) - masked
        column = 1 + np.arange(len(row)) - in_earlier_rows[row]  # column 0 is the first token's
        queries[row, column] = self.positions
        return queries, row * queries.shape[1] + column

    def widened(self, multiple: int) -> "Batch":
        """The same batch with T a multiple of so many tokens, or `most`; unchanged where no text is padded."""
        width = self.ids.shape[1]
        more = min(-width % multiple, self.most - width)
        if more <= 0 or self.tokens == self.ids.size:
            return self
        pad = self.ids[self.lengths.argmin(), -1]

        def wide(values: Ints | None, filler: int) -> Any:
            return None if values is None else np.pad(values, ((0, 0), (0, more)), constant_values=filler)

        positions = self.positions + self.positions // width * more
        ids, types, corrupted = wide(self.ids, pad), wide(self.types, 0), wide(self.corrupted, pad)
        return replace(self, ids=ids, types=types, corrupted=corrupted, positions=positions)


def collate(texts: Texts, rows: Ints, labels: NDArray[Any] | None = None) -> Batch:
    """The texts `rows` as a batch, cut to `texts.max_length`: ``[CLS] a [SEP]``, or a pair ``[CLS] a [SEP] b [SEP]``.

    There are ``texts.special.between`` separators between the texts of a pair.
    """
    first, second = texts.kept(rows)
    lengths = texts.lengths[rows].astype(np.int64)
    ids = np.full((len(rows), int(lengths.max())), texts.special.pad, dtype=np.int64)
    every = np.arange(len(rows))
    ids[:, 0] = texts.special.cls
    ids[every, lengths - 1] = texts.special.sep
    texts.first.copy_to(ids, rows, first, np.ones_like(first), texts.cut)
    types = None
    if texts.second is not None:
        between = texts.special.between
        for offset in range(1, between + 1):
            ids[every, first + offset] = texts.special.sep
        texts.second.copy_to(ids, rows, second, first + 1 + between, texts.cut)
        column = np.arange(ids.shape[1])
        types = ((column > first[:, None] + between) & (column < lengths[:, None])).astype(np.int64)
    chosen = None if labels is None else labels[rows]
    return Batch(ids, lengths, types, chosen, of_rows=len(rows), most=texts.max_length)


class Masking:
    """BERT's corruption: a share of the tokens is predicted; 80 % of them are masked, 10 % replaced, 10 % kept."""

    def __init__(
        self, share: float, vocab_size: int, special: Special, continues: NDArray[np.bool_] | None = None
    ) -> None:
        """`continues` says which tokens continue a word, [vocab_size]: a word's pieces then have one fate."""
        self.share, self.mask_id, self.continues = share, special.mask, continues
        self._ordinary = np.ones(vocab_size, dtype=bool)
        self._ordinary[special.ids] = False
        self._replacements = np.flatnonzero(self._ordinary)

    def __call__(self, batch: Batch, random: np.random.Generator) -> Batch:
        """Return `batch` with corrupted ids, positions and targets. Special tokens are never predicted or drawn."""
        flat = batch.ids.ravel()
        candidates = np.flatnonzero(self._ordinary[flat])
        draw = self._drawn(flat, candidates, random)
        chosen = draw < self.share
        positions, fate = candidates[chosen], draw[chosen] / self.share  # fate is uniform in [0, 1)
        corrupted = flat.copy()
        corrupted[positions[fate < 0.8]] = self.mask_id
        replaced = positions[(fate >= 0.8) & (fate < 0.9)]
        corrupted[replaced] = random.choice(self._replacements, len(replaced))
        whole, targets = corrupted.reshape(batch.ids.shape), flat[positions]
        return replace(batch, corrupted=whole, positions=positions, targets=targets, of_masked=len(positions))

    def _drawn(self, flat: Ints, candidates: Ints, random: np.random.Generator) -> NDArray[np.float64]:
        """A number of [0, 1) for each candidate, or for each word of them."""
        if self.continues is None:
            return random.random(len(candidates))
        begins = ~self.continues[flat[candidates]] | (np.diff(candidates, prepend=-1) != 1)
        return np.asarray(random.random(np.count_nonzero(begins))[np.cumsum(begins) - 1])


def split(batch: Batch, parts: int) -> list[Batch]:
    """Split `batch` by rows into at most `parts`, as many as it has rows; each part knows the size of the whole."""
    if parts == 1:
        return [batch]
    return [_part(batch, rows) for rows in np.array_split(np.arange(len(batch.lengths)), parts) if len(rows)]


def _part(batch: Batch, rows: Ints) -> Batch:
    """The consecutive `rows` of a batch."""
    by_row = {name: getattr(batch, name) for name in ("ids", "lengths", "types", "labels", "corrupted")}
    chosen: dict[str, Any] = {name: values[rows] for name, values in by_row.items() if values is not None}
    width = batch.ids.shape[1]
    start, stop = rows[0] * width, (rows[-1] + 1) * width
    low, high = np.searchsorted(batch.positions, [start, stop])
    positions, targets = batch.positions[low:high] - start, batch.targets[low:high]
    return replace(batch, **chosen, positions=positions, targets=targets)


class Stream:
    """Endless batches of texts: each text once an epoch, in a new order. Any batch can be computed directly.

    Attributes:
        texts: The texts.
        rows: Which of them there are, [n].
        lengths: Their lengths, [n].
    """

    def __init__(self, texts: Texts, rows: Ints, size: int, seed: int, number: int) -> None:
        """Batches of `size` texts; `number` is one of those above: each stream has an order of its own."""
        self.texts, self.rows, self.lengths = texts, rows, texts.lengths[rows]
        self.size, self.seed, self.number = size, seed, number
        self._epoch = lru_cache(maxsize=1)(self._shuffled)

    @property
    def per_epoch(self) -> int:
        """Batches in an epoch. They have `size` texts; in the epoch's last chunk they may all have fewer."""
        return -(-len(self.rows) // self.size)

    def batch(self, index: int, labels: NDArray[Any] | None = None) -> Batch:
        """Batch `index` (from 0, counted over all epochs), with those of `labels`, which are of all texts."""
        return collate(self.texts, self.rows_of(index), labels)

    def rows_of(self, index: int) -> Ints:
        """The rows of batch `index`."""
        epoch, batch = divmod(index, self.per_epoch)
        places, starts, order = self._epoch(epoch)
        place = order[batch]
        return np.asarray(self.rows[places[starts[place] : starts[place + 1]]])

    def _shuffled(self, epoch: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Places in `rows`, batch after batch, where each batch starts, and the order of the batches.

        They take some 4 bytes a text.
        """
        random, count = generator(self.seed, ORDER, self.number, epoch), len(self.rows)
        places = np.arange(count, dtype=np.int32 if count < 1 << 31 else np.int64)
        starts = np.zeros(self.per_epoch + 1, dtype=places.dtype)
        random.shuffle(places)  # as `permutation` does, which makes 64-bit numbers
        for start in range(0, count, CHUNK * self.size):
            chunk = places[start : start + CHUNK * self.size]
            chunk[:] = chunk[np.argsort(self.lengths[chunk], kind="stable")]
            parts = np.array_split(chunk, -(-len(chunk) // self.size))
            first = start // self.size + 1
            starts[first : first + len(parts)] = start + np.cumsum([len(part) for part in parts])
        return places, starts, random.permutation(self.per_epoch).astype(places.dtype)


class External:
    """Batches of one source each; every source has as many of them as its share of all texts."""

    def __init__(self, passages: Texts | None, unlabelled: tuple[Texts, Ints], batch: int, seed: int) -> None:
        """`unlabelled` are texts of the task with the rows that have no label; there may be none."""
        self.sources: list[Stream] = []
        if passages is not None:
            self.sources.append(Stream(passages, np.arange(len(passages)), batch, seed, EXTERNAL))
        if len(unlabelled[1]):
            self.sources.append(Stream(*unlabelled, batch, seed, UNLABELLED))

    def __bool__(self) -> bool:
        return bool(self.sources)

    def batch(self, index: int, labels: Sequence[NDArray[Any]] = ()) -> Batch:
        """Batch `index` (from 0); `labels`: for each source, the labels of all its texts."""
        source, index = self._place(index)
        return self.sources[source].batch(index, labels[source] if labels else None)

    def _place(self, index: int) -> tuple[int, int]:
        """The source of a batch, and the number of its batches before that one."""
        if len(self.sources) < 2:
            return 0, index
        first, second = (len(source.rows) for source in self.sources)
        all_texts = first + second
        before, after = index * second // all_texts, (index + 1) * second // all_texts
        return (1, before) if after > before else (0, index - before)


@dataclass(frozen=True)
class Interleaving:
    """The mixture of stage 1 (paper, section 3.2): one internal step, on task data, follows every rho1 external steps.

    Attributes:
        rho1: External steps for each internal one. 0: all steps are internal; ``inf``: all are external.
    """

    rho1: int | Literal["inf"]

    def is_internal(self, step: int) -> bool:
        """Whether `step` (from 0) takes a batch of task data."""
        return self.rho1 != "inf" and (step + 1) % (self.rho1 + 1) == 0

    def internal_before(self, step: int) -> int:
        """Return the number of internal steps among the first `step` ones."""
        return 0 if self.rho1 == "inf" else step // (self.rho1 + 1)

    def index(self, step: int) -> int:
        """Return the number of the batch that `step` takes: of the steps of the same kind before it."""
        internal = self.internal_before(step)
        return internal if self.is_internal(step) else step - internal


BACKWARD = 3  # forward and backward pass together, in forward passes


@dataclass(frozen=True)
class FlopCount:
    """Counts the operations of a model's matrix products; a multiplication and an addition count as two.

    The count is exact for the encoders written here, which compute only some positions of the last layer (encoder.py).
    For others it is an estimate: that of a BERT of the same shape that computes all positions.

    Attributes:
        model: The shape of the encoder.
        vocab_size: Entries of the vocabulary.
        labels: Classes.
    """

    model: Model
    vocab_size: int
    labels: int

    def of(self, batch: Batch, *, tokens: bool, classes: bool) -> int:
        """The forward and backward pass of `batch`, without padding, that predicts `tokens`, `classes` or both."""
        model, width = self.model, self.model.hidden
        lengths, read, before = batch.lengths, batch.tokens, model.layers - 1  # layers before the last one
        classified, predicted = len(lengths) * classes, len(batch.positions) * tokens
        modern = model.architecture == "modernbert"
        if (classes and modern) or model.architecture not in OWN:  # the last layer computes all positions
            queries, finished = lengths, read
        else:  # it computes the first token of each text and the tokens to predict
            queries, finished = 1 + batch.masked_by_row() * tokens, classified + predicted
        projections = 2 * width * width * (read * (3 * before + 2) + int(queries.sum()))
        attention = 2 * 2 * width * int(lengths @ (lengths * before + queries))
        matrices = 3 if modern else 2  # of the feed-forward network, which is gated in ModernBERT
        after_attention = 2 * width * (width + matrices * model.intermediate) * (read * before + finished)
        heads = 2 * width * ((width + self.vocab_size) * predicted + (width + self.labels) * classified)
        return BACKWARD * (projections + attention + after_attention + heads)
