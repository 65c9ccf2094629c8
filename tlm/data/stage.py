"""Texts kept on disk between two passes: which of them repeat an earlier one is known only after the first."""

import hashlib
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from tlm.data.text import fold

ROWS = 10_000  # in a table
_RECORD = np.dtype([("digest", "S16"), ("ordinal", "<i8")])


class Stage:
    """Collects tables with a column `text` in `folder`, then finds the first of each text in little memory.

    Texts are the same if they are equal by `fold`. Their digests are distributed to files by the first byte, and each
    file is sorted in memory.

    Attributes:
        count: Rows added so far.
        paths: The tables, in parquet.
    """

    def __init__(self, folder: Path, buckets: int = 64) -> None:
        self.count = 0
        self.paths: list[Path] = []
        self._folder = folder
        self._buckets = [(folder / f"digests-{bucket:03d}").open("w+b") for bucket in range(buckets)]  # a power of two

    def fill(self, rows: Iterable[tuple[Any, ...]], schema: pa.Schema) -> None:
        """Append rows, in tables of 10,000. `schema` has a column ``text``."""
        rows = iter(rows)
        while portion := list(islice(rows, ROWS)):
            self._add(pa.table(list(zip(*portion, strict=True)), schema=schema))

    def _add(self, table: pa.Table) -> None:
        self.paths.append(self._folder / f"staged-{len(self.paths):05d}.parquet")
        pq.write_table(table, self.paths[-1], compression="lz4")
        texts = table["text"].to_pylist()
        digests = [hashlib.blake2b(fold(text).encode(), digest_size=16).digest() for text in texts]
        records = np.empty(len(digests), _RECORD)
        records["digest"] = digests
        records["ordinal"] = np.arange(self.count, self.count + len(digests))
        self.count += len(digests)
        bucket = np.frombuffer(b"".join(digests), np.uint8)[::16] % len(self._buckets)
        for number, file in enumerate(self._buckets):
            file.write(records[bucket == number].tobytes())

    def firsts(self) -> npt.NDArray[np.bool_]:
        """Tell for each row whether no earlier one has the same text. Nothing can be added afterwards."""
        first = np.zeros(self.count, np.bool_)
        for file in self._buckets:
            with file:
                file.seek(0)
                records = np.fromfile(file, _RECORD)
            _, index = np.unique(records["digest"], return_index=True)  # of the first, as ordinals ascend
            first[records["ordinal"][index]] = True
        return first
