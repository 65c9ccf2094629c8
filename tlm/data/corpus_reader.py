"""Read the passages of a corpus or a subset: all of them, one shard of them, or a sample."""

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tlm.artifacts.artifact import Artifact
from tlm.artifacts.manifest import FileEntry
from tlm.data.shards import GROUP_ROWS
from tlm.progress import Meter

SEVERAL = 8  # shards that justify several processes
MOST_SHARDS = 20  # that a sample is drawn from, at even distances if there are more; 20 have two million passages


def shards(corpus: Artifact) -> list[FileEntry]:
    """The files with the passages of a corpus or subset, in order of `doc`."""
    return corpus.entries("passages-*.parquet")


def passages(
    corpus: Artifact, columns: list[str] | None = None, chosen: Sequence[FileEntry] | None = None
) -> Iterator[pa.RecordBatch]:
    """Stream the passages of a corpus or subset in order of `doc`, one verified shard at a time.

    Yields batches with the columns ``doc`` (int64), ``text`` (string) and those specific to the kind of artifact;
    `columns` selects some of them, and `chosen` some of the shards.
    """
    for entry in shards(corpus) if chosen is None else chosen:
        with pq.ParquetFile(corpus.verified(entry)) as shard:
            yield from shard.iter_batches(GROUP_ROWS, columns=columns)


def texts(corpus: Artifact, meter: Meter | None = None) -> Iterator[str]:
    """Yield the texts of the passages of a corpus or subset in order of `doc`."""
    for batch in passages(corpus, ["text"]):
        yield from batch.column("text").to_pylist()
        if meter is not None:
            meter.advance(len(batch))


def shard_passages(uri: str, number: int, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """Stream the passages of a corpus's shard `number`, for a process that works on one shard after another.

    Of a large corpus that is not on this machine, the copy of the shard is removed afterwards.
    """
    corpus, entries = _opened(uri)
    entry = entries[number]
    yield from passages(corpus, columns, [entry])
    if len(entries) >= SEVERAL:
        corpus.store.forget(f"{corpus.folder_name}/{entry.name}")


@lru_cache(maxsize=1)  # the manifest of a large corpus is long
def _opened(uri: str) -> tuple[Artifact, list[FileEntry]]:
    corpus = Artifact.open(uri, "corpus")
    return corpus, shards(corpus)


def sample(corpus: Artifact, count: int, seed: int = 0) -> Iterator[str]:
    """A uniform sample of the texts of at most `MOST_SHARDS` shards of a corpus or subset, in their order."""
    chosen, total = shards(corpus), int(corpus.details["passages"])
    if len(chosen) > MOST_SHARDS:
        chosen = [chosen[place * len(chosen) // MOST_SHARDS] for place in range(MOST_SHARDS)]
        total = sum(entry.rows or 0 for entry in chosen)
    taken = np.zeros(total, dtype=bool)
    taken[np.random.default_rng(seed).choice(total, min(count, total), replace=False)] = True
    start = 0
    for batch in passages(corpus, ["text"], chosen):
        rows = np.flatnonzero(taken[start : start + batch.num_rows])
        start += batch.num_rows
        yield from batch.column(0).take(rows).to_pylist()
