"""Hits by document: which passages any query found, how well, and who asked for them."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from tlm.progress import track
from tlm.retrieval.subset.ngrams import Ints, ascending, offsets_of

HITS_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class Union:
    """The documents that were hit, ascending, each with the best rank and the best score that any query gave it."""

    docs: Ints
    best_rank: npt.NDArray[np.int32]
    best_score: npt.NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.docs)

    def best_first(self) -> Ints:
        """Rows by best rank ascending, best score descending, document ascending."""
        return np.lexsort((self.docs, -self.best_score, self.best_rank))


def union_of(hits: Path) -> Union:
    """Group the hits file by document. Memory goes with the documents, not with the hits."""
    docs = np.zeros(0, np.int64)
    for (doc,) in track(_columns(hits, "doc"), "grouping hits", unit="portions"):
        docs = ascending(np.concatenate([docs, doc]))
    best_rank = np.full(len(docs), np.iinfo(np.int32).max, np.int32)
    best_score = np.full(len(docs), -np.inf, np.float32)
    for doc, rank, score in _columns(hits, "doc", "rank", "score"):
        rows = np.searchsorted(docs, doc)
        np.minimum.at(best_rank, rows, rank)
        np.maximum.at(best_score, rows, score)
    return Union(docs, best_rank, best_score)


def queries_of(hits: Path, docs: Ints) -> tuple[Ints, Ints]:
    """The queries that hit each of `docs` (ascending), ascending and back to back, and the offsets of each list."""
    rows, queries = [np.zeros(0, np.int32)], [np.zeros(0, np.int32)]
    for doc, query in _columns(hits, "doc", "query"):
        places = np.minimum(np.searchsorted(docs, doc), len(docs) - 1)
        wanted = docs[places] == doc
        rows.append(places[wanted].astype(np.int32))
        queries.append(query[wanted].astype(np.int32))
    row = np.concatenate(rows)
    order = np.argsort(row, kind="stable")  # hits are ordered by query, and so is each list
    return np.concatenate(queries)[order].astype(np.int64), offsets_of(np.bincount(row, minlength=len(docs)))


def _columns(hits: Path, *names: str) -> Iterator[list[npt.NDArray[np.generic]]]:
    with pq.ParquetFile(hits) as file:
        for batch in file.iter_batches(HITS_AT_ONCE, columns=list(names)):
            yield [batch.column(name).to_numpy() for name in names]
