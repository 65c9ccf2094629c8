"""BM25 as Lucene computes it, in single precision and with its lossy document lengths.

A document's score is the sum over query terms of ``w - w / (1 + tf / norm)``, where ``w = (k1 + 1) idf`` (the factor
k1 + 1 is Elasticsearch's), ``idf = ln(1 + (N - df + 0.5) / (df + 0.5))`` and ``norm = k1 (1 - b + b length / mean)``.
N counts documents with at least one term; the mean is over them and exact. A document's own length is not: Lucene keeps
it in one byte with four significant bits (SmallFloat.intToByte4).
"""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.integer]

_EXACT = 24  # lengths up to here, and a few above, are kept exactly


def _kept_lengths() -> npt.NDArray[np.int64]:
    """The lengths that Lucene's byte can hold, ascending, int64[256]."""
    codes = np.arange(256 - _EXACT)
    shift = np.maximum(codes // 8 - 1, 0)
    floats = np.where(codes < 8, codes, (codes % 8 + 8) << shift)
    return np.concatenate([np.arange(_EXACT), _EXACT + floats])


LENGTHS = _kept_lengths()


def kept_length(lengths: Ints) -> npt.NDArray[np.int64]:
    """Lengths in terms as they come back out of Lucene's byte: the greatest that it holds and is not longer."""
    return LENGTHS[np.searchsorted(LENGTHS, lengths, side="right") - 1]


def term_weights(document_frequency: Ints, documents: int, k1: float) -> Floats:
    """``(k1 + 1) idf`` for each term, from the number of documents that have it."""
    df = document_frequency.astype(np.float64)
    idf = np.log(1 + (documents - df + 0.5) / (df + 0.5)).astype(np.float32)
    return (np.float32(1) + np.float32(k1)) * idf


def inverse_norms(lengths: Ints, k1: float, b: float) -> Floats:
    """``1 / norm`` for each document, from the lengths of all documents of the index in terms."""
    filled = int(np.count_nonzero(lengths))
    mean = np.float32(int(lengths.sum()) / max(filled, 1))
    kept = kept_length(lengths).astype(np.float32)
    with np.errstate(divide="ignore", invalid="ignore"):  # an empty index, k1 = 0 or b = 1: no posting reads these
        share = np.float32(b) * kept / mean
        return np.float32(1) / (np.float32(k1) * ((np.float32(1) - np.float32(b)) + share))


def impacts(weights: Floats, frequencies: Ints, inverse_norm: Floats) -> Floats:
    """What each posting adds to its document's score, from its term's weight and frequency and its document's norm."""
    return weights - weights / (np.float32(1) + frequencies.astype(np.float32) * inverse_norm)
