"""Arithmetic of many lists that are stored in one array, one after the other, and of their lengths."""

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]

BATCH_TOKENS = 8192


def ranges(starts: Ints, lengths: Ints) -> Ints:
    """Concatenate the ranges ``starts[i], …, starts[i] + lengths[i] - 1``."""
    return np.repeat(starts - offsets_of(lengths)[:-1], lengths) + np.arange(lengths.sum())


def offsets_of(lengths: Ints) -> Ints:
    """The offsets of concatenated lists of these lengths: where each begins, and where the last one ends."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])


def by_length(lengths: npt.NDArray[np.int32], most: int = BATCH_TOKENS) -> Iterator[Ints]:
    """Indices 0 … n-1 in batches of similar length, of at most `most` padded tokens (or of one text)."""
    order = np.argsort(-lengths.astype(np.int64), kind="stable")
    start = 0
    while start < len(order):
        stop = start + max(1, most // int(lengths[order[start]]))
        yield order[start:stop]
        start = stop
