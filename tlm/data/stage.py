"""Passages kept on disk between two passes: which of them are duplicates is known only after the first."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tlm.data.dedup import BUCKETS, Seen, digest
from tlm.data.shards import GROUP_ROWS, Shards
from tlm.progress import track

SCHEMA = pa.schema([("id", pa.string()), ("text", pa.string()), ("source", pa.string())])


class Stage:
    """Collects passages, then publishes each distinct text once. The output does not depend on the sizes given here."""

    def __init__(self, folder: Path, group_rows: int = GROUP_ROWS, buckets: int = BUCKETS) -> None:
        self.folder, self.group_rows = folder, group_rows
        self._shards = Shards(folder, "staged", group_rows=group_rows, compression="lz4")
        self._seen = Seen(folder, buckets)
        self._columns: tuple[list[str], list[str], list[str]] = ([], [], [])  # as in the schema

    @property
    def total(self) -> int:
        """Passages added so far, including duplicates."""
        return self._seen.count + len(self._columns[0])

    def add(self, id_: str, text: str, source: str) -> None:
        """Add a passage with normalised text."""
        for column, value in zip(self._columns, (id_, text, source), strict=True):
            column.append(value)
        if len(self._columns[0]) == self.group_rows:
            self._flush()

    def publish(self, target: Path) -> dict[str, int]:
        """Write ``passages-00000.parquet``… without duplicates and with `doc` as first column; return rows by file."""
        self._flush()
        staged = [self.folder / name for name in self._shards.close()]
        first, seen = self._seen.firsts(), 0
        kept = Shards(target, "passages")
        for path in track(staged, "writing", len(staged), "shards"):
            with pq.ParquetFile(path) as shard:
                for group in range(shard.num_row_groups):
                    table = shard.read_row_group(group)
                    mask = first[seen : seen + table.num_rows]
                    seen += table.num_rows
                    docs = pa.array(np.arange(kept.total, kept.total + mask.sum()))
                    kept.add(table.filter(pa.array(mask)).add_column(0, "doc", docs))
            path.unlink()
        return kept.close()

    def _flush(self) -> None:
        self._shards.add(pa.table(self._columns, schema=SCHEMA))
        self._seen.add([digest(text) for text in self._columns[1]])
        for column in self._columns:
            column.clear()
