"""The embedded engine: exact BM25 on memory-mapped NumPy arrays (build.py describes the files).

A query goes through the documents in blocks whose score accumulators fit the cache. In each block, the postings of its
rare terms are added first. Its frequent terms, which have dense rows, follow: whole rows as long as these terms alone
could lift a document into the top K, then only the documents that can still get there. Until K documents are known, the
score to beat is a lower bound from the scores that the rare terms give in this block. Contributions to a document are
always added in the same order and in double precision, so skipping does not change any score.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tlm.retrieval.search.bulk_analyzer import terms
from tlm.retrieval.search.engine import Docs, Scores

BLOCK = 1 << 16  # documents; half a megabyte of accumulators
TOGETHER = 4096  # queries whose terms are looked up in one pass over the vocabulary
GROUP = 16  # documents in a group, of which only the best counts when the first score to beat is estimated
MARGIN = 1 + 1e-6  # safety factor of bounds, which are compared with rounded scores

Floats = npt.NDArray[np.float32]
Sums = npt.NDArray[np.float64]


class _Rare(NamedTuple):
    """A query term with postings.

    Attributes:
        docs: Its documents, ascending.
        impacts: What it adds to the score of each.
        cuts: Where the postings of each block begin.
        times: How often it occurs in the query.
    """

    docs: npt.NDArray[np.int32]
    impacts: Floats
    cuts: list[int]
    times: int


class _Frequent(NamedTuple):
    """A query term with a dense row.

    Attributes:
        row: What it adds to the score of each document.
        times: How often it occurs in the query.
        bound: The most that one occurrence adds to a score.
    """

    row: Floats
    times: int
    bound: float

    def impacts(self, block: int, at: Docs | slice) -> Floats | Sums:
        """What it adds to the documents `at` (positions in the block)."""
        return _times(self.row[block * BLOCK : (block + 1) * BLOCK][at], self.times)


def _times(impacts: Floats | Sums, count: int) -> Floats | Sums:
    return impacts if count == 1 else impacts * np.float64(count)


class _Best:
    """The best K documents so far. They are offered in ascending order, and of equal scores the first are kept."""

    def __init__(self, top_k: int) -> None:
        self.top_k, self.least = top_k, 0.0
        self.docs, self.scores = np.empty(0, np.int64), np.empty(0, np.float32)

    def offer(self, docs: Docs, scores: Scores) -> None:
        """Add documents with scores above `least`, the score to beat (0 until K documents are known)."""
        self.docs, self.scores = np.concatenate([self.docs, docs]), np.concatenate([self.scores, scores])
        excess = len(self.docs) - self.top_k
        if excess >= 0:
            least = np.partition(self.scores, excess)[excess]
            above = self.scores > least
            equal = np.flatnonzero(self.scores == least)[: self.top_k - np.count_nonzero(above)]
            above[equal] = True
            self.docs, self.scores, self.least = self.docs[above], self.scores[above], float(least)

    def ordered(self) -> tuple[Docs, Scores]:
        """Return them by score descending, then document ascending."""
        order = np.argsort(-self.scores, kind="stable")  # documents are in ascending order
        return self.docs[order], self.scores[order]


class Embedded:
    """An `Engine` on the files of an embedded index; `path` maps a file's name to its path."""

    def __init__(self, path: Callable[[str], Path]) -> None:
        table = pq.read_table(path("terms.parquet"))
        self.terms = table["term"].combine_chunks()
        self.bounds: Floats = table["bound"].to_numpy()
        self.offsets: Docs = np.load(path("offsets.npy"))
        self.docs: npt.NDArray[np.int32] = _mapped(path("docs.npy"))
        self.impacts: Floats = _mapped(path("impacts.npy"))
        self.rows: Floats = _mapped(path("dense.npy"))
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
        best = _Best(top_k)
        for block in range(len(self.starts) - 1):
            sums = sums[: self.rows.shape[1] - block * BLOCK]
            _add(rare, block, sums)
            docs, scores = _block(block, sums, frequent, rest, best.least or _reached(sums, top_k))
            if len(docs):
                best.offer(docs, scores)
        return best.ordered()

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
    """Set `sums` to what the rare terms add to a block's documents, term by term."""
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
    array: npt.NDArray[Any] = np.load(path, mmap_mode="r")
    return array.view(np.ndarray)  # slicing a plain array is several times faster
