"""Build the embedded index in two passes with flat memory; equal corpora give equal bytes.

The first pass turns chunks of passages into runs of postings on disk. After it, all document frequencies and lengths
are known. The second pass merges the runs, one range of terms at a time, and replaces each term frequency by its
impact: what it adds to the score.

Files:
    ``terms.parquet`` (term, df, bound): the terms in order of first appearance; bound is the largest impact.
    ``offsets.npy`` int64[terms + 1], ``docs.npy`` int32[postings], ``impacts.npy`` float32[postings]: the postings of
    the rare terms, by term, then document.
    ``dense.npy`` float32[frequent terms, documents]: the impacts of the terms that occur in more than one in 8
    documents. These terms have no postings.
"""

import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from tlm.retrieval.search import bulk_analyzer
from tlm.retrieval.search.batches import batched
from tlm.retrieval.search.embedded import bm25

DENSE_SHARE = 1 / 8  # above about this share, a whole row is smaller than postings and faster to add
CHUNK, CHUNK_CHARACTERS = 1 << 13, 1 << 22  # most passages, and characters, in a run
SEGMENT = 1 << 22  # postings merged at a time

POSTING = pa.struct([("doc", pa.int32()), ("frequency", pa.int32())])
RUN = pa.schema([("term", pa.int32()), ("postings", pa.list_(POSTING))])  # a record batch of the file of runs

Ids = npt.NDArray[np.int32]
Lengths = npt.NDArray[np.int64]


@dataclass(frozen=True)
class _Run:
    """A chunk's postings, by term, then document.

    Attributes:
        ids: Each term's id, ascending.
        offsets: Where each term's postings begin, and where the last one's end.
        docs: Each posting's document.
        frequencies: Each posting's term frequency.
    """

    ids: Ids
    offsets: Ids
    docs: Ids
    frequencies: Ids


def build(texts: Iterable[str], folder: Path, *, k1: float, b: float) -> dict[str, int]:
    """Write the index of `texts` (document 0, 1, …) into `folder`.

    Returns counts: documents, terms (distinct), tokens, postings.
    """
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        path = f"{scratch}/runs.arrow"
        terms, lengths = _write_runs(texts, path)
        with pa.memory_map(path) as file:
            runs = _read_runs(file)
            df = np.zeros(len(terms), np.int32)
            for run in runs:
                df[run.ids] += np.diff(run.offsets)
            weights = bm25.term_weights(df, int(np.count_nonzero(lengths)), k1)
            bounds = _merge(runs, df, weights, bm25.inverse_norms(lengths, k1, b), folder)
    table = pa.table({"term": pa.array(terms, pa.string()), "df": df, "bound": bounds})
    pq.write_table(table, folder / "terms.parquet", compression="zstd", row_group_size=1 << 17)
    postings = int(df.sum(dtype=np.int64))
    return {"documents": len(lengths), "terms": len(df), "tokens": int(lengths.sum()), "postings": postings}


def _write_runs(texts: Iterable[str], path: str) -> tuple[list[str], Lengths]:
    """Write a run for each chunk of `texts`. Returns the distinct terms by id, and each document's length."""
    ids: defaultdict[str, int] = defaultdict()
    ids.default_factory = ids.__len__
    lengths: list[Lengths] = [np.empty(0, np.int64)]
    done = 0
    with pa.ipc.new_file(path, RUN) as writer:
        for chunk in batched(texts, CHUNK, CHUNK_CHARACTERS):
            found = bulk_analyzer.terms(chunk)
            run = _run(found, np.array([ids[term] for term in found.distinct], np.int32), done)
            postings = pa.StructArray.from_arrays([run.docs, run.frequencies], fields=list(POSTING))
            writer.write_batch(pa.record_batch([run.ids, pa.ListArray.from_arrays(run.offsets, postings)], RUN))
            lengths.append(found.lengths)
            done += len(chunk)
    return list(ids), np.concatenate(lengths)


def _run(found: bulk_analyzer.Terms, ids: Ids, first_doc: int) -> _Run:
    """Group the tokens of a chunk by term and document; `ids` are its distinct terms' ids."""
    order = np.argsort(ids)
    rank = np.empty(len(ids), np.uint64)
    rank[order] = np.arange(len(ids))
    texts = len(found.lengths)
    bits = texts.bit_length()
    narrow = len(ids) << bits <= 1 << 32
    keys: npt.NDArray[Any] = rank.astype(np.uint32 if narrow else np.uint64)[found.tokens]
    keys <<= bits
    keys |= np.repeat(np.arange(texts, dtype=keys.dtype), found.lengths)
    keys.sort()
    first = np.flatnonzero(np.append(True, keys[1:] != keys[:-1])[: len(keys)])
    frequencies = np.diff(first, append=len(keys)).astype(np.int32)
    keys = keys[first]
    docs = (keys & ((1 << bits) - 1)).astype(np.int32) + np.int32(first_doc)
    offsets = np.searchsorted(keys >> bits, np.arange(len(ids) + 1, dtype=keys.dtype)).astype(np.int32)
    return _Run(ids[order], offsets, docs, frequencies)


def _read_runs(file: pa.MemoryMappedFile) -> list[_Run]:
    """The runs, memory-mapped."""
    reader = pa.ipc.open_file(file)
    batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]
    columns = [(ids, lists.offsets, *lists.values.flatten()) for ids, lists in batches]
    return [_Run(*(column.to_numpy() for column in run)) for run in columns]


def _merge(runs: list[_Run], df: Ids, weights: bm25.Floats, norms: bm25.Floats, folder: Path) -> bm25.Floats:
    """Write postings and dense rows. Returns the largest impact of each term."""
    documents = len(norms)
    is_dense = df > documents * DENSE_SHARE
    offsets = np.concatenate([[0], np.cumsum(np.where(is_dense, 0, df), dtype=np.int64)])
    with _npy(folder / "offsets.npy", np.int64, offsets.shape) as write:
        write(offsets)
    bounds = np.zeros(len(df), np.float32)
    with (
        _npy(folder / "docs.npy", np.int32, (int(offsets[-1]),)) as write_docs,
        _npy(folder / "impacts.npy", np.float32, (int(offsets[-1]),)) as write_impacts,
        _npy(folder / "dense.npy", np.float32, (int(is_dense.sum()), documents)) as write_row,
    ):
        for first, last in _segments(df):
            docs, impacts = _segment(runs, first, last, df, weights, norms)
            starts = np.cumsum(df[first:last], dtype=np.int64) - df[first:last]
            bounds[first:last] = np.maximum.reduceat(impacts, starts)
            for term in np.flatnonzero(is_dense[first:last]):
                postings = slice(starts[term], starts[term] + df[first + term])
                row = np.zeros(documents, np.float32)
                row[docs[postings]] = impacts[postings]
                write_row(row)
            sparse = np.repeat(~is_dense[first:last], df[first:last])
            write_docs(docs[sparse])
            write_impacts(impacts[sparse])
    return bounds


@contextmanager
def _npy(path: Path, dtype: type[np.generic], shape: tuple[int, ...]) -> Iterator[Callable[[npt.NDArray[Any]], int]]:
    """Create a .npy file of the given shape; yields a function that appends to it.

    NumPy's own writers do not report a full disk as such: their OSError has no errno.
    """
    with path.open("wb") as file:
        descr = np.lib.format.dtype_to_descr(np.dtype(dtype))
        np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})
        yield lambda part: file.write(part.data)


def _segments(df: Ids) -> Iterator[tuple[int, int]]:
    """Yield ranges of terms that together have at most `SEGMENT` postings, or of a single term."""
    ends = np.cumsum(df, dtype=np.int64)
    first = 0
    while first < len(df):
        before = ends[first] - df[first]
        last = max(first + 1, int(np.searchsorted(ends, before + SEGMENT, side="right")))
        yield first, last
        first = last


def _segment(
    runs: list[_Run], first: int, last: int, df: Ids, weights: bm25.Floats, norms: bm25.Floats
) -> tuple[Ids, bm25.Floats]:
    """Documents and impacts of the terms from `first` to before `last`, by term, then document."""
    ends = np.cumsum(df[first:last], dtype=np.int64)
    free = ends - df[first:last]  # position of each term's next posting
    docs, added = np.empty(ends[-1], np.int32), np.empty(ends[-1], np.float32)
    for run in runs:
        low, high = np.searchsorted(run.ids, (first, last))
        ids, offsets = run.ids[low:high], run.offsets[low : high + 1]
        counts, postings = np.diff(offsets), slice(offsets[0], offsets[-1])
        where = np.arange(postings.start, postings.stop) + np.repeat(free[ids - first] - offsets[:-1], counts)
        run_docs = run.docs[postings]
        docs[where] = run_docs
        added[where] = bm25.impacts(np.repeat(weights[ids], counts), run.frequencies[postings], norms[run_docs])
        free[ids - first] += counts
    return docs, added
