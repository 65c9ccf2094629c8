"""BM25 as Lucene computes it: in single precision and with rounded document lengths.

A document's score is the sum over the query's terms of ``w - w / (1 + tf / norm)``, where ``w = (k1 + 1) idf`` (the
factor k1 + 1 is Elasticsearch's), ``idf = ln(1 + (N - df + 0.5) / (df + 0.5))`` and
``norm = k1 (1 - b + b length / mean)``. N is the number of documents with at least one term, and the mean is their
exact mean length. The length of a single document is rounded: Lucene stores it in one byte with four significant bits
(SmallFloat.intToByte4).
"""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.integer]

_EXACT = 24  # lengths up to this one, and a few above it, are stored exactly


def _stored_lengths() -> npt.NDArray[np.int64]:
    """The lengths that Lucene's byte can represent, ascending, int64[256]."""
    codes = np.arange(256 - _EXACT)
    shift = np.maximum(codes // 8 - 1, 0)
    floats = np.where(codes < 8, codes, (codes % 8 + 8) << shift)
    return np.concatenate([np.arange(_EXACT), _EXACT + floats])


LENGTHS = _stored_lengths()


def stored_length(lengths: Ints) -> npt.NDArray[np.int64]:
    """Round lengths as Lucene's byte does: down to the nearest one that it can represent."""
    return LENGTHS[np.searchsorted(LENGTHS, lengths, side="right") - 1]


def term_weights(document_frequency: Ints, documents: int, k1: float) -> Floats:
    """Compute ``(k1 + 1) idf`` of each term from the number of documents that contain it."""
    df = document_frequency.astype(np.float64)
    idf = np.log(1 + (documents - df + 0.5) / (df + 0.5)).astype(np.float32)
    return (np.float32(1) + np.float32(k1)) * idf


def inverse_norms(lengths: Ints, k1: float, b: float) -> Floats:
    """Compute ``1 / norm`` of each document from the lengths, in terms, of all documents of the index."""
    filled = int(np.count_nonzero(lengths))
    mean = np.float32(int(lengths.sum()) / max(filled, 1))
    stored = stored_length(lengths).astype(np.float32)
    with np.errstate(divide="ignore", invalid="ignore"):  # empty index, k1 = 0 or b = 1: no posting uses these
        share = np.float32(b) * stored / mean
        return np.float32(1) / (np.float32(k1) * ((np.float32(1) - np.float32(b)) + share))


def impacts(weights: Floats, frequencies: Ints, inverse_norm: Floats) -> Floats:
    """Compute what each posting adds to its document's score, from term weight, term frequency and document norm."""
    return weights - weights / (np.float32(1) + frequencies.astype(np.float32) * inverse_norm)
