"""The corpus."""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from tlm.artifacts.artifact import Artifact


def passages(corpus: Artifact, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
    """Stream the passages of a corpus or subset in order of `doc`, one verified shard at a time.

    Yields batches with the columns ``doc`` (int64), ``text`` (string) and the others of the artifact's kind;
    `columns` names those wanted.
    """
    for entry in corpus.entries("passages-*.parquet"):
        with pq.ParquetFile(corpus.verified(entry)) as shard:
            yield from shard.iter_batches(columns=columns)
