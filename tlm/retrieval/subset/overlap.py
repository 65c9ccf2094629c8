"""Decontamination: which passages hold so much of a dev or test text that training on them is training on the test.

A passage overlaps a text when it holds a large enough share of the text's distinct n-grams, or when a large enough
share of its own distinct n-grams is in the text. The first finds short texts, such as a sentence inside a passage. The
second finds long ones, such as a document that the corpus holds in pieces: no piece has much of it. Whatever has fewer
than n tokens overlaps when it occurs whole, as a run of tokens: a short text in a passage, or a short passage in a
text. Tokens are lower-cased runs of letters and digits, so entity markers ("[[ … ]]") and punctuation hide no match.
"""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from tlm.progress import Meter
from tlm.retrieval.subset.ngrams import HashSet, Ints, TokenLists, distinct, ngrams, offsets_of, spans

# A text of one or two tokens ("yes", "very good") would remove every passage that happens to say so
MIN_TOKENS = 3
PASSAGES_AT_ONCE = 2000

Shares = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Probe:
    """The n-grams, of one n, of the texts to protect, and for each n-gram the texts that have it."""

    n: int
    hashes: HashSet
    offsets: Ints
    texts: Ints


@dataclass(frozen=True)
class Overlaps:
    """For each passage the first text that it overlaps (-1: none), and the share by which it does.

    `of_passage` tells whose n-grams the share is of: the passage's, or, if that share was enough, the text's.
    """

    text: Ints
    share: Shares
    of_passage: Flags

    def enter(self, passages: Ints, texts: Ints, share: Shares | float, of_passage: Flags | bool) -> None:
        """Enter overlapping pairs, the texts of each passage ascending; of several texts the lowest stands."""
        passages, first = np.unique(passages, return_index=True)
        better = (self.text[passages] < 0) | (texts[first] < self.text[passages])
        passages, first = passages[better], first[better]
        self.text[passages] = texts[first]
        self.share[passages] = np.broadcast_to(share, texts.shape)[first]
        self.of_passage[passages] = np.broadcast_to(of_passage, texts.shape)[first]


def find_overlaps(passages: TokenLists, texts: TokenLists, n: int, text_share: float, passage_share: float) -> Overlaps:
    """Find the passages that overlap `texts`; both must come from one `Vocabulary`.

    Args:
        passages: What may be removed; those with fewer than `MIN_TOKENS` tokens overlap nothing.
        texts: What is protected; those with fewer than `MIN_TOKENS` tokens are not looked for.
        n: Tokens in an n-gram, at least `MIN_TOKENS`.
        text_share: In (0, 1]: a passage overlaps a text if it has at least this share of the text's distinct n-grams.
        passage_share: In (0, 1]: it also does if at least this share of its own distinct n-grams is in the text.
    """
    size = len(passages)
    found = Overlaps(np.full(size, -1, np.int64), np.zeros(size), np.zeros(size, bool))
    *short, long = (_probe(texts, length, n) for length in range(MIN_TOKENS, n + 1))
    totals = np.bincount(long.texts, minlength=len(texts))
    meter = Meter("looking for dev and test texts", size, "passages")
    for start in range(0, size, PASSAGES_AT_ONCE):
        chunk = passages.select(np.arange(start, min(start + PASSAGES_AT_ONCE, size)))
        for probe in short:
            owners, hit, _ = _common(chunk, probe, len(texts))
            found.enter(start + owners, hit, 1, of_passage=False)
        owners, hit, share, of_passage = _overlapping(chunk, long, totals, text_share, passage_share)
        found.enter(start + owners, hit, share, of_passage)
        meter.advance(len(chunk))
    for length in range(MIN_TOKENS, n):  # the other way round: short passages, looked for in the texts
        hit, owners, _ = _common(texts, _probe(passages, length, n), size)
        found.enter(owners, hit, 1, of_passage=True)
    meter.close()
    return found


def _overlapping(
    passages: TokenLists, probe: Probe, totals: Ints, text_share: float, passage_share: float
) -> tuple[Ints, Ints, Shares, Flags]:
    """(passage, text, share, whether it is the passage's) for all pairs with a large enough share of n-grams.

    `totals` has the number of distinct n-grams of each text.
    """
    owners, hit, counts = _common(passages, probe, len(totals))
    of_text, of_passage = totals[hit], _totals(passages, owners, probe.n)
    by_text = _enough(counts, of_text, text_share)
    rows = np.flatnonzero(by_text | _enough(counts, of_passage, passage_share))
    share = counts / np.where(by_text, of_text, of_passage)
    return owners[rows], hit[rows], share[rows], ~by_text[rows]


def _enough(counts: Ints, totals: Ints, share: float) -> Flags:
    """Where a count is at least `share` of the total, without rounding."""
    least = Fraction(share).limit_denominator(10**6)
    return counts * least.denominator >= totals * least.numerator


def _probe(texts: TokenLists, length: int, n: int) -> Probe:
    """Texts of exactly `length` tokens, or, for `length` = n, of n and more."""
    rows = np.flatnonzero(texts.lengths >= n if length == n else texts.lengths == length)
    hashes, owners = distinct(*ngrams(texts.select(rows), length))
    order = np.lexsort((owners, hashes))
    counts = np.unique(hashes, return_counts=True)[1]
    return Probe(length, HashSet(hashes), offsets_of(counts), rows[owners[order]])


def _totals(passages: TokenLists, rows: Ints, n: int) -> Ints:
    """How many distinct n-grams each of the passages `rows` has (rows may repeat); the others are not counted."""
    some, places = np.unique(rows, return_inverse=True)
    _, owners = distinct(*ngrams(passages.select(some), n))
    return np.bincount(owners, minlength=len(some))[places]


def _common(passages: TokenLists, probe: Probe, texts: int) -> tuple[Ints, Ints, Ints]:
    """(passage, text, number of distinct n-grams that both have) for all pairs that have any, passages ascending."""
    hashes, owners = ngrams(passages, probe.n)
    known, places = probe.hashes.find(hashes)
    places, owners = distinct(places, owners[known])
    lengths = probe.offsets[places + 1] - probe.offsets[places]
    pairs = np.repeat(owners, lengths) * texts + probe.texts[spans(probe.offsets[places], lengths)]
    pairs, counts = np.unique(pairs, return_counts=True)
    return pairs // max(texts, 1), pairs % max(texts, 1), counts
