"""Many lists that are stored in one array, one after the other: their arithmetic, cuts, and files that grow."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]

BATCH_TOKENS = 8192
HEAD: Final = "head"  # of a text that is too long, the first tokens are kept
HEAD_TAIL: Final = "head+tail"  # the first and the last ones are
CUT = "tlm_cut"  # key of config.json; without it, HEAD


def ranges(starts: Ints, lengths: Ints) -> Ints:
    """Concatenate the ranges ``starts[i], …, starts[i] + lengths[i] - 1``."""
    return np.repeat(starts - offsets_of(lengths)[:-1], lengths) + np.arange(lengths.sum())


def offsets_of(lengths: Ints) -> Ints:
    """The offsets of concatenated lists of these lengths: where each begins, and where the last one ends."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])


def skipped(counts: Ints, lengths: Ints, cut: str) -> Ints:
    """How many items are left out before each one that a cut keeps, `counts[i]` of the `lengths[i]` of each list.

    For `HEAD_TAIL`, a quarter of `counts[i]` comes from the beginning, the others from the end: BERT's 510 tokens are
    then the first 128 and the last 382, as in Sun et al. (2019), "How to Fine-Tune BERT for Text Classification?",
    section 5.3.1.
    """
    if cut != HEAD_TAIL:
        return np.zeros(1, np.int64)
    heads = -(-counts // 4)
    gaps = np.stack([np.zeros_like(counts), lengths - counts], axis=1)
    return np.repeat(gaps.ravel(), np.stack([heads, counts - heads], axis=1).ravel())


def longest_first(first: Ints, second: Ints, most: int) -> tuple[Ints, Ints]:
    """How many tokens of two texts remain, `most` together: the longer text loses tokens until both are equally long.

    As transformers does it with `truncation="longest_first"`.
    """
    short = np.minimum(np.minimum(first, second), most // 2)
    long = np.minimum(np.maximum(first, second), most - short)
    return np.where(first <= second, short, long), np.where(first <= second, long, short)


def by_length(lengths: npt.NDArray[np.int32], most: int = BATCH_TOKENS) -> Iterator[Ints]:
    """Indices 0 … n-1 in batches of similar length, of at most `most` padded tokens (or of one text)."""
    order = np.argsort(-lengths.astype(np.int64), kind="stable")
    start = 0
    while start < len(order):
        stop = start + max(1, most // int(lengths[order[start]]))
        yield order[start:stop]
        start = stop


class GrowingArray:
    """A .npy file that is written in pieces; its header is completed at the end.

    NumPy's own writers do not report a full disk as such: their OSError has no errno.
    """

    def __init__(self, path: Path, dtype: npt.DTypeLike, *of_row: int) -> None:
        self.dtype, self.rows, self._of_row = np.dtype(dtype), 0, of_row
        self._file = path.open("wb")
        self._header()

    def append(self, values: npt.NDArray[Any]) -> None:
        """Add rows of the shape `of_row` at the end."""
        self._file.write(np.ascontiguousarray(values, dtype=self.dtype).data)
        self.rows += len(values)

    def __enter__(self) -> "GrowingArray":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.seek(0)
        self._header()  # of the same size: the format pads headers so that the number of rows can grow
        self._file.close()

    def _header(self) -> None:
        described = {"descr": np.lib.format.dtype_to_descr(self.dtype), "fortran_order": False}
        np.lib.format.write_array_header_1_0(self._file, {**described, "shape": (self.rows, *self._of_row)})
