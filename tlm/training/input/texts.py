"""Texts as token ids, ready to be made into batches: memory-mapped from a `tokens` artifact, or held in memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tlm.artifacts.artifact import Artifact

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Special:
    """Ids of the special tokens, and how many of the separators stand between the two texts of a pair (RoBERTa: 2)."""

    pad: int
    unk: int
    cls: int
    sep: int
    mask: int
    between: int = 1

    @classmethod
    def of(cls, tokenizer: Artifact) -> "Special":
        """Those of a `tokenizer` artifact."""
        ids = {role: int(tokenizer.details[f"{role}_id"]) for role in ("pad", "unk", "cls", "sep", "mask")}
        return cls(**ids, between=int(tokenizer.details.get("between", 1)))

    @property
    def ids(self) -> list[int]:
        """Of all of them."""
        return [self.pad, self.unk, self.cls, self.sep, self.mask]


class Ragged:
    """n rows of different lengths in one array: row i is ``ids[offsets[i] : offsets[i + 1]]``."""

    def __init__(self, ids: NDArray[Any], offsets: Ints) -> None:
        self.ids, self.offsets = ids, offsets

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]]) -> "Ragged":
        """From lists."""
        offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
        return cls(np.array([i for row in rows for i in row], dtype=np.int64), offsets)

    @classmethod
    def open(cls, tokens: Artifact, prefix: str = "") -> "Ragged":
        """From a `tokens` artifact, memory-mapped; `prefix` is ``pair_`` for second texts."""
        ids, offsets = (
            np.load(tokens.path(f"{prefix}{name}.npy"), mmap_mode="r", allow_pickle=False)
            for name in ("ids", "offsets")
        )
        return cls(ids, offsets)

    @property
    def lengths(self) -> Ints:
        """Of every row, [n]."""
        return np.diff(self.offsets)

    def lengths_of(self, rows: Ints) -> Ints:
        """Of the rows `rows`."""
        return np.asarray(self.offsets[rows + 1] - self.offsets[rows])

    def head(self, rows: int) -> "Ragged":
        """The first `rows` rows."""
        return Ragged(self.ids, self.offsets[: rows + 1])

    def copy_to(self, target: Ints, rows: Ints, counts: Ints, at: Ints) -> None:
        """Write the first ``counts[i]`` ids of row ``rows[i]`` into ``target[i]`` from column ``at[i]`` on."""
        line = np.repeat(np.arange(len(rows)), counts)
        within = np.arange(len(line)) - np.repeat(np.cumsum(counts) - counts, counts)
        target[line, within + np.repeat(at, counts)] = self.ids[within + np.repeat(self.offsets[rows], counts)]


class Texts:
    """n texts, or n pairs of texts, and how they are cut: as `transformers` does (the longer of a pair first).

    Attributes:
        lengths: Tokens of each text or pair as a model sees it: cut, special tokens included, [n].
    """

    def __init__(self, first: Ragged, second: Ragged | None, max_length: int, special: Special) -> None:
        self.first, self.second, self.max_length, self.special = first, second, max_length, special
        a, b = self._kept(first.lengths, None if second is None else second.lengths)
        self.lengths: NDArray[np.int32] = (a + b + self._added).astype(np.int32)

    @classmethod
    def open(cls, tokens: Artifact, max_length: int) -> "Texts":
        """All rows of a `tokens` artifact."""
        second = Ragged.open(tokens, "pair_") if tokens.details["pair"] else None
        return cls(Ragged.open(tokens), second, max_length, Special.of(tokens.input("tokenizer")))

    def __len__(self) -> int:
        return len(self.lengths)

    def kept(self, rows: Ints) -> tuple[Ints, Ints]:
        """Tokens kept of the first and the second text of `rows`."""
        second = None if self.second is None else self.second.lengths_of(rows)
        return self._kept(self.first.lengths_of(rows), second)

    def _kept(self, first: Ints, second: Ints | None) -> tuple[Ints, Ints]:
        room = self.max_length - self._added
        if second is None:
            return np.minimum(first, room), np.zeros_like(first)
        first_is_short = first <= second
        short = np.minimum(np.minimum(first, second), room // 2)
        long = np.minimum(np.maximum(first, second), room - short)
        return np.where(first_is_short, short, long), np.where(first_is_short, long, short)

    @property
    def _added(self) -> int:
        """Special tokens of each text or pair."""
        return 2 if self.second is None else 2 + self.special.between
