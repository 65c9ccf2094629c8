"""Arithmetic of many lists that are stored in one array, one after the other."""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]


def ranges(starts: Ints, lengths: Ints) -> Ints:
    """Concatenate the ranges ``starts[i], …, starts[i] + lengths[i] - 1``."""
    return np.repeat(starts - offsets_of(lengths)[:-1], lengths) + np.arange(lengths.sum())


def offsets_of(lengths: Ints) -> Ints:
    """The offsets of concatenated lists of these lengths: where each begins, and where the last one ends."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
