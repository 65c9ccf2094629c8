"""Texts as arrays of token numbers, and 64-bit hashes of their n-grams, which the filters of subsets count."""

from array import array
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from tlm.data.ranges import Ints, offsets_of, ranges
from tlm.data.text import compared, tokens

Hashes = npt.NDArray[np.uint64]
Keys = TypeVar("Keys", Ints, Hashes)

_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # odd, so that multiplying is reversible


class Vocabulary:
    """Numbers tokens in order of first appearance."""

    def __init__(self) -> None:
        self._numbers: defaultdict[str, int] = defaultdict()
        self._numbers.default_factory = self._numbers.__len__
        self._closed_at: int | None = None

    def close(self) -> None:
        """Stop learning, so that memory does not grow with the texts: `encode` forgets new tokens when it returns.

        Within one call a new token has a number of its own; the next call may give the same number to another token.
        """
        self._closed_at = len(self._numbers)

    def encode(self, texts: Iterable[str]) -> "TokenLists":
        """Number the tokens of each text as it is compared with others (`tlm.data.text.compared`)."""
        return self.encode_both(texts)[1]

    def encode_both(self, texts: Iterable[str]) -> tuple["TokenLists", "TokenLists"]:
        """Number the tokens of each text as it is, and as it is compared with others. Few texts have others then."""
        number_of, ids, lengths = self._numbers.__getitem__, array("i"), array("q")
        others, other_rows, other_lengths = array("i"), array("q"), array("q")
        for row, text in enumerate(texts):
            found = tokens(text)
            ids.extend(map(number_of, found))
            lengths.append(len(found))
            if (plain := compared(text)) != text:
                found = tokens(plain)
                others.extend(map(number_of, found))
                other_rows.append(row)
                other_lengths.append(len(found))
        while self._closed_at is not None and len(self._numbers) > self._closed_at:
            self._numbers.popitem()
        words, more = (
            TokenLists.of(_ints(own), _longs(each)) for own, each in ((ids, lengths), (others, other_lengths))
        )
        return words, words.with_others(_longs(other_rows), more)


@dataclass(frozen=True)
class TokenLists:
    """Token numbers of many texts; text i is ``ids[starts[i]:starts[i] + lengths[i]]``.

    Attributes:
        ids: The token numbers of these texts, and perhaps of others.
        starts: Where each text begins.
        lengths: Number of tokens of each text.
    """

    ids: npt.NDArray[np.int32]
    starts: Ints
    lengths: Ints

    @classmethod
    def of(cls, ids: npt.NDArray[np.int32], lengths: Ints) -> "TokenLists":
        """Texts of these lengths, one after the other."""
        return cls(ids, offsets_of(lengths)[:-1], lengths)

    def __len__(self) -> int:
        return len(self.lengths)

    def select(self, rows: Ints) -> "TokenLists":
        """The texts at `rows`, in that order; their tokens are not copied."""
        return TokenLists(self.ids, self.starts[rows], self.lengths[rows])

    def with_others(self, rows: Ints, others: "TokenLists") -> "TokenLists":
        """The same with other tokens for the texts at `rows`."""
        if not len(rows):
            return self
        starts, lengths = self.starts.copy(), self.lengths.copy()
        starts[rows], lengths[rows] = len(self.ids) + others.starts, others.lengths
        return TokenLists(np.concatenate([self.ids, others.ids]), starts, lengths)

    def packed(self) -> "TokenLists":
        """The same with the tokens of these texts alone, one after the other; copied unless they are so already."""
        alone = TokenLists.of(self.ids, self.lengths)
        if len(self.ids) == self.lengths.sum() and np.array_equal(self.starts, alone.starts):
            return self
        return TokenLists.of(self.ids[ranges(self.starts, self.lengths)], self.lengths)


def ngrams(texts: TokenLists, n: int) -> tuple[Hashes, Ints]:
    """Hash every run of `n` tokens within a text. Returns the hashes, in order, and the row of each one's text.

    The hash is a polynomial over mixed token numbers modulo 2**64. Among 10**8 different n-grams, the expected number
    of collisions is below 0.001.
    """
    texts = texts.packed()
    windows = max(0, len(texts.ids) - n + 1)
    mixed = _mixed(texts.ids)
    hashes = np.ones(windows, np.uint64)
    for place in range(n):
        hashes = hashes * _FACTOR + mixed[place : place + windows]
    counts = np.maximum(texts.lengths - n + 1, 0)
    inside = ranges(texts.starts, counts)
    return hashes[inside], np.repeat(np.arange(len(texts)), counts)


def shingles(texts: TokenLists, n: int) -> tuple[Hashes, Ints]:
    """Hash n-grams as `ngrams` does, and each text of fewer than `n` tokens as a whole; those come last."""
    found = [ngrams(texts, n)]
    for length in range(n):
        rows = np.flatnonzero(texts.lengths == length)
        hashes = ngrams(texts.select(rows), length)[0] if length else np.zeros(len(rows), np.uint64)
        found.append((hashes, rows))
    return np.concatenate([hashes for hashes, _ in found]), np.concatenate([owners for _, owners in found])


def ascending(values: Keys) -> Keys:
    """The distinct values, ascending. With counts np.unique sorts; else it hashes, which is slower for many values."""
    return np.unique(values, return_counts=True)[0]


def distinct(values: Keys, owners: Ints) -> tuple[Keys, Ints]:
    """The distinct pairs of value and owner, ordered by owner, then value."""
    order = np.lexsort((values, owners))
    values, owners = values[order], owners[order]
    first = np.ones(len(values), bool)
    first[1:] = (values[1:] != values[:-1]) | (owners[1:] != owners[:-1])
    return values[first], owners[first]


class HashSet:
    """A sorted set of hashes. A table of their first bits rules out most hashes that are not in the set."""

    def __init__(self, hashes: Hashes) -> None:
        self.values = ascending(hashes)
        bits = min(26, max(8, (8 * len(self.values)).bit_length()))
        self._shift = np.uint64(64 - bits)
        self._table = np.zeros(2**bits, bool)
        self._table[self.values >> self._shift] = True

    def find(self, hashes: Hashes) -> tuple[Ints, Ints]:
        """Return the indices of those `hashes` that are in the set, ascending, and their positions in `values`."""
        possible = np.flatnonzero(self._table[hashes >> self._shift])
        places = np.searchsorted(self.values, hashes[possible])
        places[places == len(self.values)] = 0
        equal = self.values[places] == hashes[possible]
        return possible[equal], places[equal]


def _ints(values: "array[int]") -> npt.NDArray[np.int32]:
    return np.frombuffer(values, np.int32)


def _longs(values: "array[int]") -> Ints:
    return np.frombuffer(values, np.int64)


def _mixed(ids: npt.NDArray[np.int32]) -> Hashes:
    """Hash token numbers by splitmix64's finalizer, so that close numbers get unrelated hashes."""
    value = (ids.astype(np.uint64) + np.uint64(1)) * _FACTOR
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))
