"""Texts kept on disk between two passes: which of them repeat an earlier one is known only after the first."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tlm.data.ranges import Ints
from tlm.data.shards import Shards
from tlm.data.text import fold

ROWS = 10_000  # at a time
STAGED_FILES = "staged-*.parquet"
_RECORD = np.dtype([("digest", "S16"), ("row", "<i8")])


class Stage:
    """Rows with a column `text` in the files staged-00000.parquet… of a folder, and the digests of their texts.

    Texts are the same if they are equal by `fold`. Their digests are distributed to the files digests-000.bin… by the
    first two bytes, so that one file at a time can be sorted in memory.

    Attributes:
        count: Number of rows.
        tables: Number of rows by file.
        digests: The files with the digests.
    """

    def __init__(self, folder: Path, rows: Iterable[tuple[Any, ...]], schema: pa.Schema, buckets: int = 64) -> None:
        """Write all rows; `schema` has a column ``text``, and `buckets` is a power of two up to 65,536."""
        self.count = 0
        self.digests = [folder / f"digests-{bucket:03d}.bin" for bucket in range(buckets)]
        self._folder = folder
        rows, shards = iter(rows), Shards(folder, "staged", compression="lz4")
        with ExitStack() as stack:
            files = [stack.enter_context(path.open("wb")) for path in self.digests]
            while portion := list(islice(rows, ROWS)):
                table = pa.table(list(zip(*portion, strict=True)), schema=schema)
                shards.add(table)
                self._note(table["text"].to_pylist(), files)
        self.tables = shards.close()

    def _note(self, texts: Sequence[str], files: Sequence[BinaryIO]) -> None:
        digests = [hashlib.blake2b(fold(text).encode(), digest_size=16).digest() for text in texts]
        records = np.empty(len(digests), _RECORD)
        records["digest"] = digests
        records["row"] = np.arange(self.count, self.count + len(digests))
        self.count += len(digests)
        buckets = np.frombuffer(b"".join(digests), "<u2")[::8] % len(files)
        for bucket in np.unique(buckets):
            files[bucket].write(records[buckets == bucket].tobytes())

    def path(self, name: str) -> Path:
        """The path of one of `tables`."""
        return self._folder / name

    def repeated(self) -> Ints:
        """The rows whose text an earlier row has, ascending."""
        return np.sort(np.concatenate([repeated([path])[0] for path in self.digests]))


def repeated(bucket: Sequence[Path]) -> list[Ints]:
    """For each of several stages, in their order, the rows whose text an earlier row has, of this or an earlier stage.

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
    tables: Mapping[str, int], path: Callable[[str], Path], repeats: Ints, start: int = 0, stop: int | None = None
) -> Iterator[pa.Table]:
    """Stream staged rows without the repeated ones, at most 10,000 at a time; of those, from `start` to `stop`.

    Args:
        tables: Number of rows by file.
        path: The path of a file; called only for those that are needed.
        repeats: Which rows repeat an earlier one, ascending.
        start: How many of the others to leave out.
        stop: After how many of the others to end; None: at the end.
    """
    row = kept = 0
    for name, rows in tables.items():
        end = kept + rows - _count(repeats, row, row + rows)
        if end > start and (stop is None or kept < stop):
            for table in _distinct(path(name), repeats, row):
                left = max(0, start - kept)
                right = len(table) if stop is None else min(len(table), stop - kept)
                if right > left:
                    yield table.slice(left, right - left)
                kept += len(table)
        row, kept = row + rows, end


def _distinct(path: Path, repeats: Ints, row: int) -> Iterator[pa.Table]:
    """Stream the rows of a file without the repeated ones; `row` is the number of its first one."""
    with pq.ParquetFile(path) as table:
        for batch in table.iter_batches(ROWS, use_threads=False):  # threads keep memory of their own
            mask = np.ones(len(batch), np.bool_)
            mask[repeats[np.searchsorted(repeats, row) : np.searchsorted(repeats, row + len(batch))] - row] = False
            row += len(batch)
            yield pa.Table.from_batches([batch]).filter(pa.array(mask))


def _count(ascending: Ints, start: int, stop: int) -> int:
    """How many of the numbers are in ``start, …, stop - 1``."""
    return int(np.searchsorted(ascending, stop) - np.searchsorted(ascending, start))
