"""The embedded engine: exact BM25, as Lucene computes it, on memory-mapped NumPy arrays.

A document's score is the sum over the query's terms of ``w - w / (1 + tf / norm)``, where ``w = (k1 + 1) idf`` (the
factor k1 + 1 is Elasticsearch's), ``idf = ln(1 + (N - df + 0.5) / (df + 0.5))`` and
``norm = k1 (1 - b + b length / mean)``. N is the number of documents with at least one term, and the mean is their
exact mean length. The length of a single document is rounded: Lucene stores it in one byte with four significant bits
(SmallFloat.intToByte4).

The first pass turns chunks of passages into runs of postings on disk. After it, all document frequencies and lengths
are known. The second pass merges the runs, one range of terms at a time, and replaces each term frequency by its
impact: what it adds to the score.

Files:
    ``terms.parquet`` (term, df, bound): the terms in order of first appearance; bound is the largest impact.
    ``offsets.npy`` int64[terms + 1], ``docs.npy`` int32[postings], ``impacts.npy`` float32[postings]: the postings of
    the rare terms, by term, then document.
    ``dense.npy`` float32[frequent terms, documents]: the impacts of the terms that occur in more than one in 8
    documents. These terms have no postings.

A query goes through the documents in blocks whose score accumulators fit the cache. In each block, the postings of its
rare terms are added first. Its frequent terms, which have dense rows, follow: whole rows as long as these terms alone
could lift a document into the top K, then only the documents that can still get there. Until K documents are known, the
score to beat is a lower bound from the scores that the rare terms give in this block. Contributions to a document are
always added in the same order and in double precision, so skipping does not change any score.
"""

import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tlm.data.ranges import GrowingArray, Ints
from tlm.retrieval.search import analyzer
from tlm.retrieval.search.analyzer import batched, terms
from tlm.retrieval.search.query import Docs, Scores, packed, unpacked

Singles = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int32]

# The lengths that Lucene's byte can represent, int64[256]: up to 24 all, above that those of four significant bits
LENGTHS = np.union1d(np.arange(24), 24 + (np.arange(16) << np.arange(28)[:, np.newaxis]))


def stored_length(lengths: Ints) -> Ints:
    """Round lengths as Lucene's byte does: down to the nearest one that it can represent."""
    return LENGTHS[np.searchsorted(LENGTHS, lengths, side="right") - 1]


def term_weights(document_frequency: Ids, documents: int, k1: float) -> Singles:
    """Compute ``(k1 + 1) idf`` of each term from the number of documents that contain it."""
    df = document_frequency.astype(np.float64)
    idf = np.log(1 + (documents - df + 0.5) / (df + 0.5)).astype(np.float32)
    return (np.float32(1) + np.float32(k1)) * idf


def inverse_norms(lengths: Ints, k1: float, b: float) -> Singles:
    """Compute ``1 / norm`` of each document from the lengths, in terms, of all documents of the index."""
    filled = int(np.count_nonzero(lengths))
    mean = np.float32(int(lengths.sum()) / max(filled, 1))
    stored = stored_length(lengths).astype(np.float32)
    with np.errstate(divide="ignore", invalid="ignore"):  # empty index, k1 = 0 or b = 1: no posting uses these
        share = np.float32(b) * stored / mean
        return np.float32(1) / (np.float32(k1) * ((np.float32(1) - np.float32(b)) + share))


def impacts(weights: Singles, frequencies: Ids, inverse_norm: Singles) -> Singles:
    """Compute what each posting adds to its document's score, from term weight, term frequency and document norm."""
    return weights - weights / (np.float32(1) + frequencies.astype(np.float32) * inverse_norm)


DENSE_SHARE = 1 / 8  # above about this share, a whole row is smaller than postings and faster to add
CHUNK, CHUNK_CHARACTERS = 1 << 13, 1 << 22  # most passages, and characters, in a run
SEGMENT = 1 << 22  # postings merged at a time

POSTING = pa.struct([("doc", pa.int32()), ("frequency", pa.int32())])
RUN = pa.schema([("term", pa.int32()), ("postings", pa.list_(POSTING))])  # a record batch of the file of runs


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
            weights = term_weights(df, int(np.count_nonzero(lengths)), k1)
            bounds = _merge(runs, df, weights, inverse_norms(lengths, k1, b), folder)
    table = pa.table({"term": pa.array(terms, pa.string()), "df": df, "bound": bounds})
    pq.write_table(table, folder / "terms.parquet", compression="zstd", row_group_size=1 << 17)
    postings = int(df.sum(dtype=np.int64))
    return {"documents": len(lengths), "terms": len(df), "tokens": int(lengths.sum()), "postings": postings}


def _write_runs(texts: Iterable[str], path: str) -> tuple[list[str], Ints]:
    """Write a run for each chunk of `texts`. Returns the distinct terms by id, and each document's length."""
    ids: defaultdict[str, int] = defaultdict()
    ids.default_factory = ids.__len__
    lengths: list[Ints] = [np.empty(0, np.int64)]
    done = 0
    with pa.ipc.new_file(path, RUN) as writer:
        for chunk in batched(texts, CHUNK, CHUNK_CHARACTERS):
            found = analyzer.terms(chunk)
            run = _run(found, np.array([ids[term] for term in found.distinct], np.int32), done)
            postings = pa.StructArray.from_arrays([run.docs, run.frequencies], fields=list(POSTING))
            writer.write_batch(pa.record_batch([run.ids, pa.ListArray.from_arrays(run.offsets, postings)], RUN))
            lengths.append(found.lengths)
            done += len(chunk)
    return list(ids), np.concatenate(lengths)


def _run(found: analyzer.Terms, ids: Ids, first_doc: int) -> _Run:
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


def _merge(runs: list[_Run], df: Ids, weights: Singles, norms: Singles, folder: Path) -> Singles:
    """Write postings and dense rows. Returns the largest impact of each term."""
    documents = len(norms)
    is_dense = df > documents * DENSE_SHARE
    offsets = np.concatenate([[0], np.cumsum(np.where(is_dense, 0, df), dtype=np.int64)])
    bounds = np.zeros(len(df), np.float32)
    with (
        GrowingArray(folder / "offsets.npy", np.int64) as written_offsets,
        GrowingArray(folder / "docs.npy", np.int32) as written_docs,
        GrowingArray(folder / "impacts.npy", np.float32) as written_impacts,
        GrowingArray(folder / "dense.npy", np.float32, documents) as written_rows,
    ):
        written_offsets.append(offsets)
        for first, last in _segments(df):
            docs, impacts = _segment(runs, first, last, df, weights, norms)
            starts = np.cumsum(df[first:last], dtype=np.int64) - df[first:last]
            bounds[first:last] = np.maximum.reduceat(impacts, starts)
            for term in np.flatnonzero(is_dense[first:last]):
                postings = slice(starts[term], starts[term] + df[first + term])
                row = np.zeros(documents, np.float32)
                row[docs[postings]] = impacts[postings]
                written_rows.append(row[np.newaxis])
            sparse = np.repeat(~is_dense[first:last], df[first:last])
            written_docs.append(docs[sparse])
            written_impacts.append(impacts[sparse])
    return bounds


def _segments(df: Ids) -> Iterator[tuple[int, int]]:
    """Yield ranges of terms that together have at most `SEGMENT` postings, or of a single term."""
    ends = np.cumsum(df, dtype=np.int64)
    first = 0
    while first < len(df):
        before = ends[first] - df[first]
        last = max(first + 1, int(np.searchsorted(ends, before + SEGMENT, side="right")))
        yield first, last
        first = last


def _segment(runs: list[_Run], first: int, last: int, df: Ids, weights: Singles, norms: Singles) -> tuple[Ids, Singles]:
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
        added[where] = impacts(np.repeat(weights[ids], counts), run.frequencies[postings], norms[run_docs])
        free[ids - first] += counts
    return docs, added


BLOCK = 1 << 16  # documents; half a megabyte of accumulators
TOGETHER = 4096  # queries whose terms are looked up in one pass over the vocabulary
GROUP = 16  # documents in a group; only its best one counts when the first score to beat is estimated
MARGIN = 1 + 1e-6  # safety factor of bounds, which are compared with rounded scores
Sums = npt.NDArray[np.float64]


class _Rare(NamedTuple):
    """A query term with postings.

    Attributes:
        docs: Its documents, ascending.
        impacts: Its impact on the score of each.
        cuts: Where the postings of each block begin.
        times: How often it occurs in the query.
    """

    docs: Ids
    impacts: Singles
    cuts: list[int]
    times: int


class _Frequent(NamedTuple):
    """A query term with a dense row.

    Attributes:
        row: Its impact on the score of each document.
        times: How often it occurs in the query.
        bound: The most that one occurrence adds to a score.
    """

    row: Singles
    times: int
    bound: float

    def impacts(self, block: int, at: Docs | slice) -> Singles | Sums:
        """Return the impacts on the documents `at` (positions in the block)."""
        return _times(self.row[block * BLOCK : (block + 1) * BLOCK][at], self.times)


def _times(impacts: Singles | Sums, count: int) -> Singles | Sums:
    return impacts if count == 1 else impacts * np.float64(count)


class Embedded:
    """An `Engine` on the files of an embedded index; `path` maps a file's name to its path."""

    def __init__(self, path: Callable[[str], Path]) -> None:
        table = pq.read_table(path("terms.parquet"))
        self.terms = table["term"].combine_chunks()
        self.bounds: Singles = table["bound"].to_numpy()
        self.offsets: Docs = np.load(path("offsets.npy"))
        self.docs: Ids = _mapped(path("docs.npy"))
        self.impacts: Singles = _mapped(path("impacts.npy"))
        self.rows: Singles = _mapped(path("dense.npy"))
        self.row_of = np.cumsum(self.offsets[:-1] == self.offsets[1:]) - 1  # a term without postings has a row
        self.starts = np.arange(0, self.rows.shape[1] + BLOCK, BLOCK, dtype=np.int32)

    def search(self, queries: Sequence[str], top_k: int) -> Iterator[tuple[Docs, Scores]]:
        """The best `top_k` documents of each query and their scores, best first."""
        sums = np.empty(min(BLOCK, self.rows.shape[1]))
        for start in range(0, len(queries), TOGETHER):
            counted = [Counter(found) for found in terms(queries[start : start + TOGETHER]).by_text()]
            ids = self._ids(set().union(*counted))
            for counts in counted:
                yield self._search({ids[term]: count for term, count in counts.items() if term in ids}, top_k, sums)

    def _ids(self, wanted: set[str]) -> dict[str, int]:
        found = pc.is_in(self.terms, value_set=pa.array(sorted(wanted), self.terms.type))
        ids = np.flatnonzero(found.to_numpy(zero_copy_only=False))
        return dict(zip(self.terms.take(pa.array(ids)).to_pylist(), ids.tolist(), strict=True))

    def _search(self, query: Mapping[int, int], top_k: int, sums: Sums) -> tuple[Docs, Scores]:
        rare, frequent = self._plan(query)
        # rest[i]: the most that the frequent terms from the ith on can add together
        rest = np.cumsum([0.0] + [term.times * term.bound * MARGIN for term in reversed(frequent)])[::-1].tolist()
        best, least = np.empty(0, np.int64), 0.0  # the hits so far; the score to beat, once K of them are known
        for block in range(len(self.starts) - 1):
            sums = sums[: self.rows.shape[1] - block * BLOCK]
            _add(rare, block, sums)
            docs, scores = _block(block, sums, frequent, rest, least or _reached(sums, top_k))
            if len(docs):
                best = np.concatenate([best, packed(scores, docs)])
                excess = len(best) - top_k
                if excess >= 0:
                    best = np.partition(best, excess)[excess:]
                    least = float(unpacked(best[0])[1])
        return unpacked(np.sort(best)[::-1])

    def _plan(self, query: Mapping[int, int]) -> tuple[list[_Rare], list[_Frequent]]:
        """Look up the query's terms: rare ones by id, frequent ones by the most they can add, descending."""
        rare, frequent = [], []
        for term, count in sorted(query.items()):
            start, end = self.offsets[term : term + 2].tolist()
            if start < end:
                docs = self.docs[start:end]
                cuts = np.searchsorted(docs, self.starts).tolist()
                rare.append(_Rare(docs, self.impacts[start:end], cuts, count))
            else:
                frequent.append(_Frequent(self.rows[self.row_of[term]], count, float(self.bounds[term])))
        frequent.sort(key=lambda term: -term.times * term.bound)  # stable: among equals by id
        return rare, frequent


def _add(rare: list[_Rare], block: int, sums: Sums) -> None:
    """Set `sums` to the impacts of the rare terms on a block's documents, added term by term."""
    sums.fill(0)
    parts = [(term, slice(*term.cuts[block : block + 2])) for term in rare]
    docs = [term.docs[postings] for term, postings in parts]
    if docs:
        at = np.concatenate(docs, dtype=np.intp)
        at -= block * BLOCK
        added = [_times(term.impacts[postings], term.times) for term, postings in parts]
        np.add.at(sums, at, np.concatenate(added, dtype=np.float64))


def _reached(sums: Sums, top_k: int) -> float:
    """A score that at least K documents of a block exceed; 0 if it cannot be estimated.

    It is the Kth largest of the maxima of groups of documents, slightly reduced. For small K this is close to the Kth
    largest of all, and takes a fraction of the time.
    """
    groups = len(sums) // GROUP
    if groups < 4 * top_k:
        return 0.0
    maxima = sums[: groups * GROUP].reshape(GROUP, groups).max(axis=0)
    return float(np.partition(maxima, groups - top_k)[groups - top_k]) / MARGIN


def _block(block: int, sums: Sums, frequent: list[_Frequent], rest: list[float], least: float) -> tuple[Docs, Scores]:
    """Return the documents of a block that score above `least`, ascending, and their scores.

    `sums`, which holds what the rare terms add, is overwritten.
    """
    whole = 0
    while whole < len(frequent) and rest[whole] >= least:
        sums += frequent[whole].impacts(block, slice(None))
        whole += 1
    at = np.flatnonzero(sums > least - rest[whole])
    found = sums[at]
    for place in range(whole, len(frequent)):
        found += frequent[place].impacts(block, at)
        possible = found > least - rest[place + 1]
        at, found = at[possible], found[possible]
    scores = found.astype(np.float32)
    above = scores > least
    return at[above] + block * BLOCK, scores[above]


def _mapped(path: Path) -> npt.NDArray[Any]:
    return np.load(path, mmap_mode="r").view(np.ndarray)  # type: ignore[no-any-return]  # slicing a plain array is several times faster
