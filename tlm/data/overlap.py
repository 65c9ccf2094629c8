"""Decontamination: find passages that hold so much of a dev or test text that training on them spoils the test.

A passage overlaps a text if it has a large enough share of the text's distinct n-grams, or if the text has a large
enough share of the passage's. The first rule finds short texts, such as a sentence within a passage. The second finds
long ones, such as a document that the corpus holds in pieces, each with little of it. A text or passage of fewer
than n tokens overlaps if it occurs whole, as a run of tokens: a short text in a passage, or a short passage in a text.
Tokens are lower-cased runs of letters and digits of texts without marks around spans ("[[ … ]]", "<e1> … </e1>") and
without invisible characters, so none of these hides a match.
"""

from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from tlm.data.ranges import Ints, offsets_of, ranges
from tlm.data.text import compared, is_plain, is_unspaced, tokens
from tlm.progress import Meter
from tlm.settings.options import MIN_TOKENS, Filters

Hashes = npt.NDArray[np.uint64]
Keys = TypeVar("Keys", Ints, Hashes)

_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # odd, so that multiplying is reversible


class Vocabulary:
    """The numbers of tokens, in order of first appearance."""

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
        number_of, ids = self._numbers.__getitem__, array("i")
        starts, lengths, compared_starts, compared_lengths = (array("q") for _ in range(4))
        for text in texts:
            words, start = tokens(text), len(ids)
            ids.extend(map(number_of, words))
            starts.append(start)
            lengths.append(len(words))
            plain = compared(text)
            if plain != text:
                words, start = tokens(plain), len(ids)
                ids.extend(map(number_of, words))
            compared_starts.append(start)
            compared_lengths.append(len(words))
        while self._closed_at is not None and len(self._numbers) > self._closed_at:
            self._numbers.popitem()
        all_ids = np.asarray(ids)
        as_is = TokenLists(all_ids, np.asarray(starts), np.asarray(lengths))
        return as_is, TokenLists(all_ids, np.asarray(compared_starts), np.asarray(compared_lengths))


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
        """Texts of these lengths, one after the other; `ids` are not copied."""
        return cls(ids, offsets_of(lengths)[:-1], lengths)

    def __len__(self) -> int:
        return len(self.lengths)

    def select(self, rows: Ints) -> "TokenLists":
        """The texts at `rows`, in that order; their tokens are not copied."""
        return TokenLists(self.ids, self.starts[rows], self.lengths[rows])

    def packed(self) -> "TokenLists":
        """Drop the tokens of other texts, so that these stand one after the other; copied only where necessary."""
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
    windows, mixed = max(0, len(texts.ids) - n + 1), _mixed(texts.ids)
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
        found.append((ngrams(texts.select(rows), length)[0] if length else np.zeros(len(rows), np.uint64), rows))
    hashes, owners = map(np.concatenate, zip(*found, strict=True))
    return hashes, owners


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


def _mixed(ids: npt.NDArray[np.int32]) -> Hashes:
    """Hash token numbers by splitmix64's finalizer, so that close numbers get unrelated hashes."""
    value = (ids.astype(np.uint64) + np.uint64(1)) * _FACTOR
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


AT_ONCE = 100_000  # texts whose words memory holds
PASSAGES_AT_ONCE = 2000

Shares = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Overlaps:
    """The passages that overlap a text.

    Attributes:
        text: For each passage the first text that it overlaps; -1 if there is none.
        share: The share of n-grams that they have in common.
        of_passage: Whether that is a share of the passage's n-grams; if not, of the text's.
    """

    text: Ints
    share: Shares
    of_passage: Flags

    def enter(self, passages: Ints, texts: Ints, share: Shares | float, of_passage: Flags | bool) -> None:
        """Enter overlapping pairs, ordered by text within a passage. Of several texts a passage keeps the first."""
        passages, first = np.unique(passages, return_index=True)
        better = (self.text[passages] < 0) | (texts[first] < self.text[passages])
        passages, first = passages[better], first[better]
        self.text[passages] = texts[first]
        self.share[passages] = np.broadcast_to(share, texts.shape)[first]
        self.of_passage[passages] = np.broadcast_to(of_passage, texts.shape)[first]


def overlapping(texts: Sequence[str], protected: Iterable[str]) -> Flags:
    """Whether each text overlaps one of the protected ones, by the default shares, shape [n]."""
    vocabulary = Vocabulary()
    finder = OverlapFinder(vocabulary.encode(protected), Filters.ngram, Filters.overlap_share, Filters.passage_share)
    vocabulary.close()
    parts = (vocabulary.encode(texts[start : start + AT_ONCE]) for start in range(0, len(texts), AT_ONCE))
    return np.concatenate([np.zeros(0, bool), *(finder.find(words).text >= 0 for words in parts)])


RUN, LEAST_RUNS, ROWS = 3, 6, 256  # words of a run; runs of a text that counts; texts whose table memory holds
MORE = 8  # runs that a text of a script without spaces must have beside: 16 letters, or eight words, have 14
COMMON, LEAST_COMMON = 0.05, 20  # share of the others, and others, above which a run that they have counts for nothing


def near_copies(
    texts: Sequence[str], others: Sequence[str], second: tuple[Sequence[str], Sequence[str]] | None = None
) -> Flags:
    """Whether at least half of the different runs of three words of each text are in one of the others; shape [n].

    So a text with a changed word is a near copy, and one of 20 words with three. They must have six such runs in
    common, as short texts share a phrase by chance: "What is the capital of France?" does not repeat the same question
    about Peru. A character of a script without spaces is half a word. Runs that many of the others have, as of a
    disclaimer, do not count: they make no copy, and would take most of the time. Of pairs, `second` has the second
    texts and those of the others: both texts of a near copy are near copies of those of one other pair.
    """
    found = _alike(texts, others)
    if second:
        found = (first.multiply(other) for first, other in zip(found, _alike(*second), strict=True))
    return np.concatenate([np.zeros(0, bool), *(part.sum(axis=1) > 0 for part in found)])


def _alike(texts: Sequence[str], others: Sequence[str]) -> Iterator[Any]:
    """Which of the others each text is a near copy of, in parts: sparse tables, [texts, 1 + others]."""
    from scipy.sparse import csr_array, hstack

    vocabulary = Vocabulary()
    runs, owners = _runs_of(vocabulary.encode(texts))
    vocabulary.close()
    known = HashSet(runs)
    columns = np.searchsorted(known.values, runs)
    has = csr_array((np.ones(len(runs), np.int32), (owners, columns)), (len(texts), len(known.values)))
    parts = [csr_array((len(known.values), 1), dtype=np.int32)]  # of no text, as there may be no others
    for start in range(0, len(others), AT_ONCE):
        words = vocabulary.encode(others[start : start + AT_ONCE])
        runs, owners = _runs_of(words)
        there, places = known.find(runs)
        shape = len(known.values), len(words)
        parts.append(csr_array((np.ones(len(there), np.int32), (places, owners[there])), shape))
    have = hstack(parts, format="csr")
    rare = np.flatnonzero(np.diff(have.indptr) <= max(LEAST_COMMON, COMMON * len(others)))
    has, have = has[:, rare], have[rare]
    for start in range(0, len(texts), ROWS):
        own = has[start : start + ROWS]
        counts, common = own.sum(axis=1), own @ have
        enough = counts >= [LEAST_RUNS + MORE * _unspaced(text) for text in texts[start : start + ROWS]]
        least = np.where(enough, np.maximum(LEAST_RUNS, counts / 2), np.inf)
        common.data = common.data >= np.repeat(least, np.diff(common.indptr))
        yield common


def _unspaced(text: str) -> float:
    """The share of the words of a text that are letters of a script without spaces."""
    return 0 if is_plain(text) else sum(map(is_unspaced, words := tokens(text))) / max(1, len(words))


def _runs_of(words: TokenLists) -> tuple[Hashes, Ints]:
    """The different runs of texts that have enough of them, and the row of each one's text."""
    runs, owners = distinct(*ngrams(words, RUN))
    enough = np.bincount(owners, minlength=len(words))[owners] >= LEAST_RUNS
    return runs[enough], owners[enough]


class _First:
    """The first text that has each of some n-grams, because a passage overlaps that one."""

    def __init__(self, hashes: Hashes, texts: Ints) -> None:
        self.hashes = HashSet(hashes)
        self.texts = texts[np.unique(hashes, return_index=True)[1]]

    def find(self, hashes: Hashes) -> tuple[Ints, Ints]:
        """Return the indices of those `hashes` that a text has, ascending, and the first such text of each."""
        known, places = self.hashes.find(hashes)
        return known, self.texts[places]


class _Long:
    """The n-grams of the texts of `n` or more tokens, and the texts that have each one.

    Where many passages and texts share a disclaimer, say, there are very many pairs. So passages that have the same of
    these n-grams are looked up together, and each keeps only the first text that they suffice for.
    """

    def __init__(self, texts: TokenLists, n: int, text_share: float, passage_share: float) -> None:
        rows = np.flatnonzero(texts.lengths >= n)
        hashes, owners = distinct(*ngrams(texts.select(rows), n))
        order = np.lexsort((owners, hashes))
        self.n, self.passage_share = n, passage_share
        self.hashes = HashSet(hashes)
        self.offsets = offsets_of(np.unique(hashes, return_counts=True)[1])
        self.owners = rows[owners[order]]  # of hash i: owners[offsets[i]:offsets[i + 1]]
        self.totals = np.bincount(self.owners, minlength=len(texts))  # distinct n-grams of each text
        self.least = _least(self.totals, text_share)

    def enter(self, found: Overlaps, passages: TokenLists, rows: Ints) -> None:
        """Enter for each passage (at `rows`) the first text that it shares enough n-grams with."""
        hashes, owners = ngrams(passages, self.n)
        known, places = self.hashes.find(hashes)
        sharing, owners = np.unique(owners[known], return_inverse=True)
        if not len(sharing):
            return
        totals = np.bincount(distinct(*ngrams(passages.select(sharing), self.n))[1])  # distinct n-grams of each passage
        least = _least(totals, self.passage_share)
        places, owners = distinct(places, owners)
        alike: dict[bytes, list[int]] = {}  # passages with the same n-grams of texts
        for passage, own in enumerate(np.split(places, offsets_of(np.bincount(owners))[1:-1])):
            alike.setdefault(own.tobytes(), []).append(passage)
        for shared, group in alike.items():
            texts, counts = self._having(np.frombuffer(shared, np.int64))
            members = np.array(group)
            # Places of the first text that suffices by each rule; the number of texts, if none does
            by_text = counts >= self.least[texts]
            first_by_passage = np.searchsorted(np.maximum.accumulate(counts), least[members])
            first = np.minimum(first_by_passage, np.append(by_text, True).argmax())
            overlaps = first < len(texts)
            members, first = members[overlaps], first[overlaps]
            if len(members):
                share = counts[first] / np.where(by_text[first], self.totals[texts[first]], totals[members])
                found.enter(rows[sharing[members]], texts[first], share, ~by_text[first])

    def _having(self, places: Ints) -> tuple[Ints, Ints]:
        """The texts that have one of these n-grams, ascending, and how many each has."""
        starts = self.offsets[places]
        counts = np.bincount(self.owners[ranges(starts, self.offsets[places + 1] - starts)])
        texts = np.flatnonzero(counts)
        return texts, counts[texts]


class OverlapFinder:
    """Finds the passages that overlap protected texts.

    Args:
        texts: The protected texts; those with fewer than `MIN_TOKENS` tokens are not looked for.
        n: Tokens in an n-gram, at least `MIN_TOKENS`.
        text_share: In (0, 1]: a passage overlaps a text if it has at least this share of the text's distinct n-grams.
        passage_share: In (0, 1]: it also does if at least this share of its own distinct n-grams is in the text.
    """

    def __init__(self, texts: TokenLists, n: int, text_share: float, passage_share: float) -> None:
        self.texts = texts
        self.short: dict[int, _First] = {}  # by length, the texts that are looked for as a whole
        for length in range(MIN_TOKENS, n):
            rows = np.flatnonzero(texts.lengths == length)
            self.short[length] = _First(ngrams(texts.select(rows), length)[0], rows)
        self.long = _Long(texts, n, text_share, passage_share)

    def find(self, passages: TokenLists) -> Overlaps:
        """Find the passages that overlap a text.

        Args:
            passages: From the texts' `Vocabulary`; those with fewer than `MIN_TOKENS` tokens overlap nothing.
        """
        size = len(passages)
        found = Overlaps(np.full(size, -1, np.int64), np.zeros(size), np.zeros(size, bool))
        meter = Meter("looking for dev and test texts", size, "passages")
        for rows in np.split(np.arange(size), range(PASSAGES_AT_ONCE, size, PASSAGES_AT_ONCE)):
            chunk = passages.select(rows).packed()
            for length, short in self.short.items():
                hashes, owners = ngrams(chunk, length)
                known, texts = short.find(hashes)
                texts, owners = distinct(texts, owners[known])
                found.enter(rows[owners], texts, 1, of_passage=False)
            self.long.enter(found, chunk, rows)
            meter.advance(len(chunk))
        for length in self.short:
            self._enter_short(found, passages, length)
        meter.close()
        return found

    def _enter_short(self, found: Overlaps, passages: TokenLists, length: int) -> None:
        """Enter the passages of `length` tokens that stand whole in a text."""
        rows = np.flatnonzero(passages.lengths == length)
        if not len(rows):
            return
        hashes, _ = ngrams(passages.select(rows), length)  # one for each passage
        of_texts, owners = ngrams(self.texts, length)
        there, _ = HashSet(hashes).find(of_texts)
        known, texts = _First(of_texts[there], owners[there]).find(hashes)
        found.enter(rows[known], texts, 1, of_passage=True)


def _least(totals: Ints, share: float) -> Ints:
    """The smallest count that is at least `share` of each total, without rounding."""
    part = Fraction(share).limit_denominator(10**6)
    return -(-totals * part.numerator // part.denominator)
