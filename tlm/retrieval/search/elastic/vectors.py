"""Search an Elasticsearch index by the vectors of its passages: approximate nearest neighbours (HNSW)."""

from collections.abc import Mapping, Sequence
from typing import Any

from tlm.retrieval.search.elastic.engine import Elastic, request
from tlm.retrieval.search.engine import Docs, Scores
from tlm.retrieval.select.embed import Embed
from tlm.shallow.models import one_thread

MOST_CANDIDATES = 10_000  # the server's limit
LEAST_CANDIDATES = 200


class ElasticVectors(Elastic):
    """An `Engine` on an Elasticsearch index with vectors; `details` come from `index.located`."""

    def __init__(self, details: Mapping[str, Any], embed: Embed) -> None:
        super().__init__(details)
        self.embed = embed

    def _found(self, queries: Sequence[str], top_k: int) -> list[tuple[Docs, Scores]]:
        return [(docs, 2 * scores - 1) for docs, scores in super()._found(queries, top_k)]  # inner products again

    def _requests(self, queries: Sequence[str], top_k: int) -> list[dict[str, Any]]:
        with one_thread():
            vectors = self.embed(queries)
        candidates = min(max(2 * top_k, LEAST_CANDIDATES), MOST_CANDIDATES)
        nearest = {"field": "vector", "k": top_k, "num_candidates": candidates, "rescore_vector": {"oversample": 2.0}}
        return [
            request({"knn": {**nearest, "query_vector": one.tolist()}} if one.any() else {"match_none": {}}, top_k)
            for one in vectors
        ]
