"""What the embeddings of tokens may start as: PPMI-SVD vectors of the texts to train on (arXiv 2407.12514)."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tlm.data.ranges import Ints
from tlm.shallow.models import one_thread
from tlm.shallow.static import neighbour_vectors
from tlm.training.input.texts import Texts

PPMI_SVD = "ppmi-svd"
MOST_TOKENS = 20_000_000  # of more, texts at even distances are read: memory and time are bounded
SMALLEST = 1e-6  # share of the largest spread below which a dimension is noise


def token_vectors(
    sources: Sequence[tuple[Texts, Ints]], vocab_size: int, dimensions: int
) -> tuple[Ints, NDArray[np.float32]]:
    """Vectors of the tokens that occur in texts, with mean 0 and deviation 1 in every dimension.

    Args:
        sources: Texts, and which of their rows are read.
        vocab_size: Number of tokens.
        dimensions: Length of a vector. There are fewer dimensions if texts are few.

    Returns:
        The ids of the tokens, shape [n], and their vectors, shape [n, dimensions].
    """
    ids, lengths = _read(sources)
    if not len(ids):
        return ids, np.zeros((0, dimensions), np.float32)
    with one_thread():
        vectors = neighbour_vectors(ids.astype(np.int32), lengths, vocab_size, dimensions)
    seen = np.unique(ids).astype(np.int64)
    vectors = vectors[seen] - vectors[seen].mean(axis=0)
    spread = vectors.std(axis=0)
    real = spread > SMALLEST * spread.max(initial=0)
    return seen, (vectors[:, real] / spread[real]).astype(np.float32)


def _read(sources: Sequence[tuple[Texts, Ints]]) -> tuple[Ints, Ints]:
    """The tokens of all texts, one after the other, and how many each text has."""
    parts = [(ragged, rows) for texts, rows in sources for ragged in (texts.first, texts.second) if ragged is not None]
    total = sum(int(ragged.lengths_of(rows).sum()) for ragged, rows in parts)
    stride = max(1, -(-total // MOST_TOKENS))
    chosen = [(ragged, rows[::stride]) for ragged, rows in parts]
    lengths = [ragged.lengths_of(rows) for ragged, rows in chosen]
    ids = [ragged.take(rows, counts) for (ragged, rows), counts in zip(chosen, lengths, strict=True)]
    return np.concatenate(ids), np.concatenate(lengths)
