"""Decontamination: which passages hold so much of a dev or test text that training on them is training on the test.

A passage overlaps a text when at least a share of the text's distinct n-grams occurs in it. A text with fewer than
n tokens must occur whole, as a run of tokens. Tokens are lower-cased runs of letters and digits, so that entity
markers ("[[ … ]]") and punctuation do not hide a match.
"""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from tlm.progress import Meter
from tlm.retrieval.ngrams import HashSet, Ints, TokenLists, distinct, ngrams, offsets_of, spans

# A text of one or two tokens ("yes", "very good") would take every passage that happens to say so
MIN_TOKENS = 3
PASSAGES_AT_ONCE = 2000


@dataclass(frozen=True)
class Probe:
    """The n-grams, of one n, of the texts to protect, and for each n-gram the texts that have it."""

    n: int
    hashes: HashSet
    offsets: Ints
    texts: Ints


@dataclass(frozen=True)
class Overlaps:
    """For each passage the first text that it overlaps (-1: none) and the share of that text's n-grams that it has."""

    text: Ints
    share: np.ndarray[tuple[int], np.dtype[np.float64]]


def find_overlaps(passages: TokenLists, texts: TokenLists, n: int, share: float) -> Overlaps:
    """Find the passages that overlap `texts`; both must come from one `Vocabulary`.

    Args:
        passages: What may be removed.
        texts: What is protected; those with fewer than `MIN_TOKENS` tokens are not looked for.
        n: Tokens in an n-gram, at least `MIN_TOKENS`.
        share: In (0, 1]: the share of a text's distinct n-grams that makes a passage overlap it.
    """
    probes = [_probe(texts, length, n) for length in range(MIN_TOKENS, n + 1)]
    totals = np.maximum(np.bincount(probes[-1].texts, minlength=len(texts)), 1)  # n-grams; 1 for the shorter texts
    least = Fraction(share).limit_denominator(10**6)
    found = Overlaps(np.full(len(passages), -1, np.int64), np.zeros(len(passages)))
    meter = Meter("looking for dev and test texts", len(passages), "passages")
    for start in range(0, len(passages), PASSAGES_AT_ONCE):
        rows = np.arange(start, min(start + PASSAGES_AT_ONCE, len(passages)))
        chunk = passages.select(rows)
        for probe in probes:
            owners, hit, counts = _common(chunk, probe, len(texts))
            enough = counts * least.denominator >= totals[hit] * least.numerator
            _keep_first(found, start + owners[enough], hit[enough], counts[enough] / totals[hit[enough]])
        meter.advance(len(rows))
    meter.close()
    return found


def _probe(texts: TokenLists, length: int, n: int) -> Probe:
    """Texts of exactly `length` tokens, or, for `length` = n, of n and more."""
    rows = np.flatnonzero(texts.lengths >= n if length == n else texts.lengths == length)
    hashes, owners = distinct(*ngrams(texts.select(rows), length))
    order = np.lexsort((owners, hashes))
    counts = np.unique(hashes, return_counts=True)[1]
    return Probe(length, HashSet(hashes), offsets_of(counts), rows[owners[order]])


def _common(passages: TokenLists, probe: Probe, texts: int) -> tuple[Ints, Ints, Ints]:
    """(passage, text, number of distinct n-grams that both have) for all pairs that have any, passages ascending."""
    hashes, owners = ngrams(passages, probe.n)
    known, places = probe.hashes.find(hashes)
    places, owners = distinct(places, owners[known])
    lengths = probe.offsets[places + 1] - probe.offsets[places]
    pairs = np.repeat(owners, lengths) * texts + probe.texts[spans(probe.offsets[places], lengths)]
    pairs, counts = np.unique(pairs, return_counts=True)
    return pairs // max(texts, 1), pairs % max(texts, 1), counts


def _keep_first(
    found: Overlaps, passages: Ints, texts: Ints, shares: np.ndarray[tuple[int], np.dtype[np.float64]]
) -> None:
    """Enter pairs (ordered by passage, then text); the text of the lowest row stands."""
    passages, first = np.unique(passages, return_index=True)
    better = (found.text[passages] < 0) | (texts[first] < found.text[passages])
    found.text[passages[better]] = texts[first][better]
    found.share[passages[better]] = shares[first][better]
