"""Hybrid retrieval: BM25's ranking and that by vectors become one, by reciprocal ranks (Cormack et al., SIGIR 2009).

It happens here for both search engines, because Elasticsearch's own needs a licence.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tlm.artifacts.artifact import Artifact
from tlm.retrieval.search.index import open_engine
from tlm.retrieval.search.query import Docs, Engine, Scores
from tlm.retrieval.select.dense import dense

RRF = 60  # the constant of the paper: the larger, the less the first ranks count


def hybrid(index: Artifact, folder: str, seed: int) -> Engine:
    """An engine that fuses BM25's ranking and that of `dense`, whose arguments these are."""
    return Fused([open_engine(index), dense(index, folder, seed)])


@dataclass(frozen=True)
class Fused:
    """A search engine that asks others.

    Attributes:
        engines: The engines whose rankings are fused.
    """

    engines: Sequence[Engine]

    def search(self, queries: Sequence[str], top_k: int) -> Iterator[tuple[Docs, Scores]]:
        """Yield the best passages of each query, as `Engine.search` does; each engine is asked for `top_k`."""
        for answers in zip(*(engine.search(queries, top_k) for engine in self.engines), strict=True):
            yield fused([docs for docs, _ in answers], top_k)


def fused(rankings: Sequence[Docs], top_k: int) -> tuple[Docs, Scores]:
    """The passages with the highest sums of 1 / (`RRF` + rank), and these; of equal ones, the first passage."""
    docs, place = np.unique(np.concatenate(rankings), return_inverse=True)
    ranks = np.concatenate([np.arange(1, len(ranking) + 1) for ranking in rankings])
    scores = np.bincount(place, 1 / (RRF + ranks), minlength=len(docs))
    best = np.lexsort((docs, -scores))[:top_k]
    return docs[best].astype(np.int64), scores[best].astype(np.float32)
