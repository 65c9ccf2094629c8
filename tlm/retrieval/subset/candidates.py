"""The candidates for a subset: each passage once, with its best rank and score, and its text when that is needed."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from tlm.artifacts.artifact import Artifact
from tlm.data.overlap import ascending
from tlm.data.parallel import each
from tlm.data.passages import GROUP_ROWS, SEVERAL, shard_passages, shards
from tlm.data.ranges import Ints, offsets_of
from tlm.progress import track

HITS_AT_ONCE = 1 << 20
NO_RANK = np.iinfo(np.int32).max
NO_SCORE = -np.inf

Column = npt.NDArray[Any]


@dataclass(frozen=True)
class Candidates:
    """The passages that a subset is chosen from, in ascending order of `docs`.

    Attributes:
        source: What they were taken from, for messages.
        read: Starts reading all passages (``doc``, ``text``), ascending; there may be more than the candidates.
        docs: Their document numbers.
        best_rank: The best rank that any query gave each one, from 1; `NO_RANK` if none did.
        best_score: The best score that any query gave each one; `NO_SCORE` if none did.
    """

    source: str
    read: Callable[[], Iterable[pa.RecordBatch]]
    docs: Ints
    best_rank: npt.NDArray[np.int32]
    best_score: npt.NDArray[np.float32]

    @classmethod
    def from_hits(
        cls,
        source: str,
        read: Callable[[], Iterable[pa.RecordBatch]],
        hit: Iterable[Column],
        ranked: Iterable[tuple[Column, ...]],
    ) -> "Candidates":
        """Group hits by document.

        Args:
            source: What the hits were taken from, for messages.
            read: Starts reading all passages (``doc``, ``text``), ascending.
            hit: The documents of the hits, in portions. Memory grows with the distinct documents, not with the hits.
            ranked: The same hits again: document, rank and score.
        """
        docs = np.zeros(0, np.int64)
        for portion in hit:
            docs = ascending(np.concatenate([docs, portion]))
        best_rank = np.full(len(docs), NO_RANK, np.int32)
        best_score = np.full(len(docs), NO_SCORE, np.float32)
        for portion, rank, score in ranked:
            rows = np.searchsorted(docs, portion)
            np.minimum.at(best_rank, rows, rank)
            np.maximum.at(best_score, rows, score)
        return cls(source, read, docs, best_rank, best_score)

    def __len__(self) -> int:
        return len(self.docs)

    def best_first(self) -> Ints:
        """Rows by best rank ascending, best score descending, document ascending."""
        return np.lexsort((self.docs, -self.best_score, self.best_rank))

    def texts(self, rows: Ints | slice = slice(None)) -> Iterator[pa.Array]:
        """Read the texts of the given rows (ascending), in portions."""
        docs = self.docs[rows]
        for batch in track(self.read(), "reading candidates", unit="portions"):
            here = batch.column("doc").to_numpy()
            start, stop = np.searchsorted(docs, [here[0], here[-1] + 1]) if len(here) else (0, 0)
            if start < stop:
                yield batch.column("text").take(pa.array(np.searchsorted(here, docs[start:stop])))


def read_hits(hits: Path, *names: str) -> Iterator[tuple[Column, ...]]:
    """Read columns of hits.parquet in portions."""
    with pq.ParquetFile(hits) as file:
        for batch in file.iter_batches(HITS_AT_ONCE, columns=list(names)):
            yield tuple(batch.column(name).to_numpy() for name in names)


def queries_of(hits: Path, docs: Ints) -> pa.Array:
    """List the queries that hit each of `docs` (ascending), in ascending order."""
    rows, queries = [np.zeros(0, np.int32)], [np.zeros(0, np.int32)]
    for doc, query in read_hits(hits, "doc", "query"):
        nearest = np.minimum(np.searchsorted(docs, doc), len(docs) - 1)
        wanted = docs[nearest] == doc
        rows.append(nearest[wanted].astype(np.int32))
        queries.append(query[wanted].astype(np.int32))
    return grouped(np.concatenate(rows), np.concatenate(queries), len(docs))  # hits are ordered by query


def grouped(rows: npt.NDArray[np.integer], values: Column, size: int) -> pa.Array:
    """Group values by the row each belongs to: a list for each of `size` rows, values in their given order."""
    offsets = offsets_of(np.bincount(rows, minlength=size))
    return pa.LargeListArray.from_arrays(offsets, pa.array(values[np.argsort(rows, kind="stable")]))


TEXTS = pa.schema([("doc", pa.int64()), ("text", pa.string())])


def collect(corpus: Artifact, docs: Ints, folder: Path) -> None:
    """Write the texts of `docs` (ascending) to files in `folder`, for `collected` to read."""
    ends = np.searchsorted(docs, offsets_of(np.array([entry.rows or 0 for entry in shards(corpus)])))
    wanted = [(number, docs[start:stop]) for number, (start, stop) in enumerate(pairwise(ends)) if start < stop]
    each(partial(_collect, corpus.uri, folder), wanted, "reading passages", "shards", least=SEVERAL)


def collected(folder: Path) -> Iterator[pa.RecordBatch]:
    """Read what `collect` wrote: ``doc`` and ``text``, ascending."""
    for path in sorted(folder.iterdir()):
        with pq.ParquetFile(path) as texts:
            yield from texts.iter_batches(GROUP_ROWS)


def _collect(uri: str, folder: Path, wanted: tuple[int, Ints]) -> None:
    number, docs = wanted
    with pq.ParquetWriter(folder / f"texts-{number:07d}.parquet", TEXTS, compression="lz4") as texts:
        for batch in shard_passages(uri, number, TEXTS.names):
            here = batch.column("doc").to_numpy()
            start, stop = np.searchsorted(docs, [here[0], here[-1] + 1])
            if start < stop:
                texts.write_batch(batch.take(pa.array(np.searchsorted(here, docs[start:stop]))))
