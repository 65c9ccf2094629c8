"""Rows on disk, and which of them repeat the text of an earlier one, in constant memory."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import islice
from math import inf
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tlm.data.passages import write_shards
from tlm.data.ranges import Ints
from tlm.data.text import fold

ROWS = 10_000  # at a time
STAGED_FILES = "staged-*.parquet"
DIGESTS = "digests-{:03d}.bin"
_RECORD = np.dtype([("digest", "S16"), ("row", "<i8")])


def stage(folder: Path, rows: Iterable[tuple[Any, ...]], schema: pa.Schema, buckets: int = 64) -> dict[str, int]:
    """Write rows to the files staged-00000.parquet… of a folder, and the digests of their texts to digests-000.bin….

    Texts are the same if they are equal by `fold`. Their digests are distributed by the first two bytes, so that one
    file at a time can be sorted in memory.

    Args:
        folder: Where the files are written.
        rows: The rows.
        schema: Their columns, with one called ``text``.
        buckets: The number of files for digests, a power of two up to 65,536.

    Returns:
        The number of rows by file.
    """
    with ExitStack() as stack:
        files = [stack.enter_context((folder / DIGESTS.format(bucket)).open("wb")) for bucket in range(buckets)]
        return write_shards(folder, "staged", _tables(rows, schema, files), compression="lz4")


def _tables(rows: Iterable[tuple[Any, ...]], schema: pa.Schema, files: Sequence[BinaryIO]) -> Iterator[pa.Table]:
    """Make tables of rows, and write the digests of their texts."""
    rows, first = iter(rows), 0
    while portion := list(islice(rows, ROWS)):
        table = pa.table(list(zip(*portion, strict=True)), schema=schema)
        _note(table["text"].to_pylist(), first, files)
        first += len(table)
        yield table


def _note(texts: Sequence[str], first: int, files: Sequence[BinaryIO]) -> None:
    """Write the digests of texts, whose rows are numbered from `first` on."""
    digests = [hashlib.blake2b(fold(text).encode(), digest_size=16).digest() for text in texts]
    records = np.empty(len(digests), _RECORD)
    records["digest"], records["row"] = digests, np.arange(first, first + len(digests))
    buckets = np.frombuffer(b"".join(digests), "<u2")[::8] % len(files)
    for bucket in np.unique(buckets):
        files[bucket].write(records[buckets == bucket].tobytes())


def repeats_in(folder: Path) -> Ints:
    """The rows of a stage whose text an earlier row has, ascending."""
    return np.sort(np.concatenate([repeated([path])[0] for path in folder.glob("digests-*.bin")]))


def repeated(bucket: Sequence[Path]) -> list[Ints]:
    """Find, for each of several stages, the rows whose text an earlier row of this or an earlier stage has.

    Args:
        bucket: The same file of digests of each stage.
    """
    records = [np.fromfile(path, _RECORD) for path in bucket]
    digests = np.concatenate([part["digest"] for part in records])
    repeats = np.ones(len(digests), np.bool_)
    repeats[np.unique(digests, return_index=True)[1]] = False  # the index of the first
    ends = np.cumsum([len(part) for part in records])
    return [part["row"][mask] for part, mask in zip(records, np.split(repeats, ends[:-1]), strict=True)]


def distinct(
    tables: Mapping[str, int], path: Callable[[str], Path], repeats: Ints, start: int = 0, stop: float = inf
) -> Iterator[pa.Table]:
    """Stream staged rows from `start` to `stop`, without the repeated ones, at most 10,000 at a time.

    Args:
        tables: Number of rows by file.
        path: The path of a file; called only for the files that are needed.
        repeats: Which rows repeat an earlier one, ascending.
        start: How many of the others to leave out.
        stop: After how many of the others to end.
    """
    row = kept = 0  # how many rows are before the file, and how many of them stay
    for name, rows in tables.items():
        first, last = np.searchsorted(repeats, (row, row + rows))
        stays = np.ones(rows, np.bool_)
        stays[repeats[first:last] - row] = False
        numbers = kept - 1 + np.cumsum(stays)  # of a row that stays: how many such rows are before it
        row, kept = row + rows, kept + rows - int(last - first)
        stays &= (start <= numbers) & (numbers < stop)
        if stays.any():
            yield from _filtered(path(name), stays)


def _filtered(path: Path, stays: NDArray[np.bool_]) -> Iterator[pa.Table]:
    """Stream the rows of a file that stay."""
    with pq.ParquetFile(path) as table:
        for batch in table.iter_batches(ROWS, use_threads=False):  # threads keep memory of their own
            yield pa.Table.from_batches([batch]).filter(pa.array(stays[: len(batch)]))
            stays = stays[len(batch) :]
