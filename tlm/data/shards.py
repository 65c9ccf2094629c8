"""Parquet shards whose bytes depend only on the rows, not on the portions in which the rows were added."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

GROUP_ROWS = 10_000
GROUPS = 10


def numbered(table: pa.Table, first: int) -> pa.Table:
    """The same rows, with their numbers from `first` as first column, `doc`."""
    return table.add_column(0, "doc", pa.array(np.arange(first, first + len(table))))


class Shards:
    """Writes ``<name>-00000.parquet``… into `folder`, each with `groups` row groups of `group_rows` rows.

    With `first`, it begins with the shard of that number, because earlier ones are written elsewhere.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        groups: int = GROUPS,
        group_rows: int = GROUP_ROWS,
        *,
        first: int = 0,
        compression: str = "zstd",
    ) -> None:
        self.folder, self.name, self.groups, self.group_rows = folder, name, groups, group_rows
        self.first, self.compression = first, compression
        self.rows: dict[str, int] = {}
        self._pending: pa.Table | None = None  # fewer rows than a group
        self._writer: pq.ParquetWriter | None = None

    @property
    def total(self) -> int:
        """Rows added so far."""
        return sum(self.rows.values()) + (self._pending.num_rows if self._pending else 0)

    def add(self, table: pa.Table) -> None:
        """Append rows; complete row groups are written, the remainder is kept for later."""
        if self._pending is not None:
            table = pa.concat_tables([self._pending, table])
        while table.num_rows >= self.group_rows:
            self._write(table.slice(0, self.group_rows))
            table = table.slice(self.group_rows)
        self._pending = table

    def close(self) -> dict[str, int]:
        """Write the remaining rows; return the number of rows by file name."""
        if self._pending:
            self._write(self._pending)
            self._pending = None
        self._end_shard()
        return self.rows

    def _write(self, table: pa.Table) -> None:
        if self._writer is None:
            self._file = f"{self.name}-{self.first + len(self.rows):05d}.parquet"
            self.rows[self._file] = 0
            self._writer = pq.ParquetWriter(
                self.folder / self._file,
                table.schema,
                compression=self.compression,
                use_dictionary=["source"],  # worth it where values repeat
                write_statistics=["doc"],  # worth it where rows are looked up by value
                data_page_size=1 << 20,
            )
        self._writer.write_table(table.combine_chunks(), row_group_size=table.num_rows)
        self.rows[self._file] += table.num_rows
        pa.default_memory_pool().release_unused()  # or the allocator keeps several times as much as is in use
        if self.rows[self._file] == self.groups * self.group_rows:
            self._end_shard()

    def _end_shard(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._writer = None
