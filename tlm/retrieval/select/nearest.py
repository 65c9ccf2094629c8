"""Exact search by vectors: every passage is compared with every query, block by block."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tlm.artifacts.artifact import Artifact
from tlm.data.corpus import SEVERAL, shard_passages, shards
from tlm.data.parts.parallel import each
from tlm.retrieval.search.engine import Docs, Scores
from tlm.retrieval.select.embed import Embed
from tlm.shallow.models import one_thread

BLOCK = 2048  # passages that are compared at once


@dataclass(frozen=True)
class Nearest:
    """A search engine that scores a passage by the inner product of its vector with the query's.

    Of a large corpus, several processes compare one shard each. Each holds `top_k` hits of every query, 16 bytes a hit.

    Attributes:
        corpus: The passages.
        embed: Gives each text a vector.
    """

    corpus: Artifact
    embed: Embed

    def search(self, queries: Sequence[str], top_k: int) -> Iterator[tuple[Docs, Scores]]:
        """Yield the nearest passages of each query, as `Engine.search` does."""
        with one_thread():
            vectors = self.embed(queries)
        numbers = range(len(shards(self.corpus)))
        best = Best(len(queries), top_k)
        work = partial(_of_shard, self.corpus.uri, self.embed, vectors, top_k)
        for found in each(work, numbers, "comparing", "shards", least=SEVERAL):
            best.add(*found)
        yield from best.answers()


class Best:
    """The best hits of each query, of those that were added; of equal scores, the first passage."""

    def __init__(self, queries: int, top_k: int) -> None:
        """Begin without hits."""
        self.top_k = top_k
        self.least = np.full(queries, -np.inf, np.float32)  # what a hit of each query must exceed
        self.query = np.zeros(0, np.int64)
        self.doc = np.zeros(0, np.int64)
        self.score = np.zeros(0, np.float32)

    def add(self, query: NDArray[np.int64], doc: Docs, score: Scores) -> None:
        """Add hits, in any order, and keep the best."""
        query, doc = np.concatenate([self.query, query]), np.concatenate([self.doc, doc])
        score = np.concatenate([self.score, score])
        order = np.lexsort((doc, -score, query))
        starts = np.searchsorted(query[order], np.arange(len(self.least)))
        rank = np.arange(len(order)) - starts[query[order]]
        kept = order[rank < self.top_k]
        self.query, self.doc, self.score = query[kept], doc[kept], score[kept]
        last = order[rank == self.top_k - 1]
        self.least[query[last]] = score[last]

    def add_block(self, docs: Docs, scores: NDArray[np.float32]) -> None:
        """Add the scores of some passages, which come after all that were added before; shape [queries, docs]."""
        query, place = np.nonzero(scores > self.least[:, None])
        if len(query):
            self.add(query, docs[place], scores[query, place])

    def answers(self) -> Iterator[tuple[Docs, Scores]]:
        """Yield the passages and scores of each query, the best first."""
        ends = np.searchsorted(self.query, np.arange(len(self.least) + 1))
        for start, stop in pairwise(ends):
            yield self.doc[start:stop], self.score[start:stop]


def _of_shard(
    uri: str, embed: Embed, queries: NDArray[np.float32], top_k: int, number: int
) -> tuple[NDArray[np.int64], Docs, Scores]:
    """Query, passage and score of the best hits in a shard."""
    best = Best(len(queries), top_k)
    with one_thread():
        for batch in shard_passages(uri, number, ["doc", "text"]):
            for start in range(0, batch.num_rows, BLOCK):
                block = batch.slice(start, BLOCK)
                vectors = embed(block.column("text").to_pylist())
                best.add_block(block.column("doc").to_numpy(), queries @ vectors.T)
    return best.query, best.doc, best.score
