"""Decontamination: find passages that hold so much of a dev or test text that training on them spoils the test.

A passage overlaps a text if it has a large enough share of the text's distinct n-grams, or if the text has a large
enough share of the passage's. The first rule finds short texts, such as a sentence within a passage. The second finds
long ones, such as a document that the corpus holds in pieces, none of which has much of it. A text or passage of fewer
than n tokens overlaps if it occurs whole, as a run of tokens: a short text in a passage, or a short passage in a text.
Tokens are lower-cased runs of letters and digits, so entity markers ("[[ … ]]") and punctuation do not hide a match.
"""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from tlm.data.ranges import Ints, offsets_of, ranges
from tlm.progress import Meter
from tlm.retrieval.subset.ngrams import HashSet, TokenLists, distinct, ngrams

# A text of one or two tokens ("yes", "very good") would remove every passage that happens to contain it
MIN_TOKENS = 3
PASSAGES_AT_ONCE = 2000

Shares = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Overlaps:
    """Which passages overlap a text.

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


class _NgramIndex:
    """The n-grams of texts, and the texts that have each one.

    Indexes the texts of exactly `n` tokens, or with `longer` also those of more.
    """

    def __init__(self, texts: TokenLists, n: int, *, longer: bool = False) -> None:
        rows = np.flatnonzero(texts.lengths >= n if longer else texts.lengths == n)
        hashes, owners = distinct(*ngrams(texts.select(rows), n))
        order = np.lexsort((owners, hashes))
        self.n, self.texts = n, len(texts)
        self.hashes = HashSet(hashes)
        self.offsets = offsets_of(np.unique(hashes, return_counts=True)[1])
        self.owners = rows[owners[order]]  # of hash i: owners[offsets[i]:offsets[i + 1]]

    def common(self, passages: TokenLists) -> tuple[Ints, Ints, Ints]:
        """Count the distinct n-grams that passages share with texts.

        Returns passage, text and count of all pairs that share any, passages ascending.
        """
        if not len(self.owners):
            return (np.zeros(0, np.int64),) * 3
        hashes, owners = ngrams(passages, self.n)
        known, places = self.hashes.find(hashes)
        places, owners = distinct(places, owners[known])
        lengths = self.offsets[places + 1] - self.offsets[places]
        pairs = np.repeat(owners, lengths) * self.texts + self.owners[ranges(self.offsets[places], lengths)]
        pairs, counts = np.unique(pairs, return_counts=True)
        return pairs // self.texts, pairs % self.texts, counts


class OverlapFinder:
    """Finds the passages that overlap protected texts.

    Args:
        texts: The protected texts; those with fewer than `MIN_TOKENS` tokens are not looked for.
        n: Tokens in an n-gram, at least `MIN_TOKENS`.
        text_share: In (0, 1]: a passage overlaps a text if it has at least this share of the text's distinct n-grams.
        passage_share: In (0, 1]: it also does if at least this share of its own distinct n-grams is in the text.
    """

    def __init__(self, texts: TokenLists, n: int, text_share: float, passage_share: float) -> None:
        self.texts, self.n, self.text_share, self.passage_share = texts, n, text_share, passage_share
        self.short = [_NgramIndex(texts, length) for length in range(MIN_TOKENS, n)]
        self.long = _NgramIndex(texts, n, longer=True)
        self.totals = np.bincount(self.long.owners, minlength=len(texts))  # distinct n-grams of each text

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
            for index in self.short:
                owners, texts, _ = index.common(chunk)
                found.enter(rows[owners], texts, 1, of_passage=False)
            self._enter_long(found, chunk, rows)
            meter.advance(len(chunk))
        for length in range(MIN_TOKENS, self.n):  # the other way round: short passages, looked for in the texts
            texts, owners, _ = _NgramIndex(passages, length).common(self.texts)
            found.enter(owners, texts, 1, of_passage=True)
        meter.close()
        return found

    def _enter_long(self, found: Overlaps, passages: TokenLists, rows: Ints) -> None:
        """Enter the pairs of a passage (at `rows`) and a text of n or more tokens that share enough n-grams."""
        owners, texts, counts = self.long.common(passages)
        of_text, of_passage = self.totals[texts], _totals(passages, owners, self.n)
        by_text = _enough(counts, of_text, self.text_share)
        enough = by_text | _enough(counts, of_passage, self.passage_share)
        share = counts / np.where(by_text, of_text, of_passage)
        found.enter(rows[owners[enough]], texts[enough], share[enough], ~by_text[enough])


def _enough(counts: Ints, totals: Ints, share: float) -> Flags:
    """Where a count is at least `share` of the total, without rounding."""
    least = Fraction(share).limit_denominator(10**6)
    return counts * least.denominator >= totals * least.numerator


def _totals(passages: TokenLists, rows: Ints, n: int) -> Ints:
    """Count the distinct n-grams of the passages `rows`, which may repeat."""
    some, places = np.unique(rows, return_inverse=True)
    _, owners = distinct(*ngrams(passages.select(some), n))
    return np.bincount(owners, minlength=len(some))[places]
