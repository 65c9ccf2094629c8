"""The files of an artifact of hits."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tlm.artifacts.produce import Draft
from tlm.retrieval.search.engine import Docs, Scores
from tlm.retrieval.search.query import Dropped, Query

GROUP_ROWS = 1 << 18

HITS = pa.schema([("query", pa.int64()), ("doc", pa.int64()), ("rank", pa.int32()), ("score", pa.float32())])
QUERIES = pa.schema([("query", pa.int64()), ("text", pa.string()), ("examples", pa.list_(pa.int64()))])
DROPPED = pa.schema([("query", pa.int64()), ("reason", pa.string()), ("detail", pa.string())])


def write_hits(path: Path, found: Iterable[tuple[int, Docs, Scores]]) -> int:
    """Write the hits of each query, best first, in row groups of one size. Returns the number of hits."""
    waiting: list[pa.RecordBatch] = []
    rows = written = 0
    with pq.ParquetWriter(path, HITS, compression="zstd") as writer:
        for query, docs, scores in found:
            ranks = np.arange(1, len(docs) + 1, dtype=np.int32)
            waiting.append(pa.record_batch([np.full(len(docs), query), docs, ranks, scores], HITS))
            rows += len(docs)
            whole = (rows - written) // GROUP_ROWS * GROUP_ROWS
            if whole:
                table = pa.Table.from_batches(waiting)
                writer.write_table(table.slice(0, whole), row_group_size=GROUP_ROWS)
                waiting = table.slice(whole).to_batches()
                written += whole
        writer.write_table(pa.Table.from_batches(waiting, HITS), row_group_size=GROUP_ROWS)
    return rows


def write_queries(folder: Path, queries: Iterable[tuple[int, Query]], dropped: list[Dropped]) -> None:
    """Write the queries by number, and what was dropped of them."""
    rows = [{"query": number, "text": query.text, "examples": query.examples} for number, query in queries]
    pq.write_table(pa.Table.from_pylist(rows, QUERIES), folder / "queries.parquet", compression="zstd")
    table = pa.Table.from_pylist([dict(zip(DROPPED.names, row, strict=True)) for row in sorted(dropped)], DROPPED)
    pq.write_table(table, folder / "dropped.parquet", compression="zstd")


def write_selected(draft: Draft, arm: str, docs: Docs, scores: Scores, wanted: int) -> None:
    """Fill `draft` with hits that no query found, best first; `wanted` is how many passages the subset is to have."""
    write_hits(draft.folder / "hits.parquet", [(-1, docs, scores)])
    write_queries(draft.folder, [(-1, Query("", []))], [])
    draft.rows = {"hits.parquet": len(docs)}
    draft.details = {"arm": arm, "query": None, "top_k": None, "like": wanted}
    draft.counts = {"hits": len(docs), "like": wanted}
