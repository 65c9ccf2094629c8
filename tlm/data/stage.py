"""Passages on the disk between two passes: which of them are repeats is known only when all have been seen."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tlm.data.dedup import BUCKETS, Seen, digest
from tlm.data.shards import GROUP_ROWS, Shards
from tlm.progress import track

SCHEMA = pa.schema([("id", pa.string()), ("text", pa.string()), ("source", pa.string())])


class Stage:
    """Takes passages one by one, then publishes each text once. What is published does not depend on the sizes here."""

    def __init__(self, folder: Path, group_rows: int = GROUP_ROWS, buckets: int = BUCKETS) -> None:
        self.folder, self.group_rows = folder, group_rows
        self._shards = Shards(folder, "staged", group_rows=group_rows, compression="lz4")
        self._seen = Seen(folder, buckets)
        self._ids: list[str] = []
        self._texts: list[str] = []
        self._sources: list[str] = []
        self._digests: list[bytes] = []

    @property
    def total(self) -> int:
        """Passages taken so far, repeats included."""
        return self._seen.count + len(self._texts)

    def add(self, id_: str, text: str, source: str) -> None:
        """Take one passage (of a normalised text)."""
        self._ids.append(id_)
        self._texts.append(text)
        self._sources.append(source)
        self._digests.append(digest(text))
        if len(self._texts) == self.group_rows:
            self._flush()

    def publish(self, target: Path) -> dict[str, int]:
        """Write ``passages-00000.parquet``… with the column `doc` in front, without the repeats; rows by file name."""
        self._flush()
        staged = [self.folder / name for name in self._shards.close()]
        first, seen = self._seen.firsts(), 0
        kept = Shards(target, "passages")
        for path in track(staged, "writing", len(staged), "shards"):
            with pq.ParquetFile(path) as shard:
                for group in range(shard.num_row_groups):
                    table = shard.read_row_group(group)
                    mask = pa.array(first[seen : seen + table.num_rows])
                    seen += table.num_rows
                    kept.add(_numbered(table.filter(mask), kept.total))
            path.unlink()
        return kept.close()

    def _flush(self) -> None:
        self._shards.add(pa.table([self._ids, self._texts, self._sources], schema=SCHEMA))
        self._seen.add(self._digests)
        self._ids, self._texts, self._sources, self._digests = [], [], [], []


def _numbered(table: pa.Table, start: int) -> pa.Table:
    docs = pa.array(np.arange(start, start + table.num_rows))
    return table.add_column(0, pa.field("doc", pa.int64()), docs)
