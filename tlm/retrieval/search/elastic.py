"""The Elasticsearch engine: search an index by BM25 or by vectors, and check it."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from elasticsearch import Elasticsearch

from tlm.data.parallel import in_threads
from tlm.errors import InputError, Interrupted
from tlm.retrieval.search.analyzer import terms
from tlm.retrieval.search.elastic_client import BUSY, connect, patiently, reason, refusal, until_done
from tlm.retrieval.search.embed import Embed
from tlm.retrieval.search.query import Docs, Scores

TOGETHER, HITS_TOGETHER = 50, 100_000  # most queries, and hits, per request
UNDER_WAY, MOST_UNDER_WAY = 2, 32  # requests at once for each shard, so that a node works while an answer is parsed
OK = 200
DIFFERS = "its _meta, mapping or similarity differs"
WANTED = (
    "responses.hits.hits.sort,responses.timed_out,responses._shards.failed,"
    "responses.status,responses.error.type,responses.error.reason,responses.error.root_cause"
)


class Elastic:
    """An `Engine` on an Elasticsearch index; `details` come from `index.located`."""

    def __init__(self, details: Mapping[str, Any]) -> None:
        self.index = str(details["index"])
        self.client = connect()
        self.settings = self._settings()
        check(self.client, details)
        self.under_way = min(UNDER_WAY * int(self.settings["number_of_shards"]), MOST_UNDER_WAY)

    def _settings(self) -> dict[str, Any]:
        found = patiently(self.client.indices.get_settings, index=self.index, ignore_unavailable=True)
        return found[self.index]["settings"]["index"] if found else {}

    def search(self, queries: Sequence[str], top_k: int) -> Iterator[tuple[Docs, Scores]]:
        """Implement `Engine.search`; the server returns at most 10,000 hits per query (index.max_result_window)."""
        together = queries_together(top_k)
        batches = (queries[start : start + together] for start in range(0, len(queries), together))
        for hits in in_threads(lambda batch: self._found(batch, top_k), batches, self.under_way):
            yield from hits
        if self._settings().get("uuid") != self.settings["uuid"]:  # else what a half-filled index lacks is "no hit"
            raise Interrupted(f"index '{self.index}' was lost or made again while it was searched; repeat the command")

    def _found(self, queries: Sequence[str], top_k: int) -> list[tuple[Docs, Scores]]:
        answers = self._answers(self._requests(queries, top_k))
        return [_hits(answer.get("hits", {}).get("hits", ())) for answer in answers]

    def _requests(self, queries: Sequence[str], top_k: int) -> list[dict[str, Any]]:
        return [request({"bool": {"should": _clauses(words)}}, top_k) for words in terms(queries).by_text()]

    def _answers(self, requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Ask for one complete answer to each request. A busy server is asked again."""
        answers: dict[int, dict[str, Any]] = {}
        search_type = "dfs_query_then_fetch"  # document frequencies and lengths of all shards together
        header = {"index": self.index, "search_type": search_type, "allow_partial_search_results": False}

        def ask(numbers: list[int]) -> list[int]:
            searches = [part for number in numbers for part in (header, requests[number])]
            answer = patiently(self.client.msearch, searches=searches, filter_path=WANTED)
            answers.update(zip(numbers, answer["responses"], strict=True))
            return [number for number in numbers if _status(answers[number])[0] in BUSY]

        until_done(ask, list(range(len(requests))))
        for status, why in map(_status, answers.values()):
            if status != OK:
                raise refusal(status, why)
        return [answers[number] for number in range(len(requests))]


def check(client: Elasticsearch, details: Mapping[str, Any]) -> None:
    """Check that an index exists, was made as its artifact says, and has all documents.

    Raises:
        InputError: it does not.
    """
    index, documents = details["index"], int(details["documents"])
    found = stored_meta(client, details)
    if found is None:
        raise InputError(f"Elasticsearch has no index '{index}' (any more); run `tlm index` again to restore it")
    if found.get("documents") != documents:
        other = f"index '{index}' is unfinished, or made from something else ({DIFFERS} from the artifact's)"
        raise InputError(f"{other}; run `tlm index` again to complete it, or remove it there if it belongs to others")
    count = counted(client, index)
    if count != documents:
        found_instead = f"index '{index}' has {count:,} documents, not {documents:,}"
        raise InputError(f"{found_instead}; remove it, then run `tlm index` again")


def counted(client: Elasticsearch, index: str) -> int:
    """Count the documents. Shards that are still opening, after a restart perhaps, are waited for."""
    all_shards = {"size": 0, "track_total_hits": True, "allow_partial_search_results": False}
    return int(patiently(client.search, index=index, **all_shards)["hits"]["total"]["value"])


def stored_meta(client: Elasticsearch, details: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Read our part of an index's ``_meta``: None if there is none, empty if it was made from something else."""
    wanted = "*.mappings,*.settings.index.similarity,*.settings.index.analysis"
    found = patiently(client.indices.get, index=details["index"], ignore_unavailable=True, filter_path=wanted)
    if not found:
        return None
    (entry,) = found.values()
    mappings, settings = entry.get("mappings", {}), entry.get("settings", {}).get("index", {})
    found_meta: dict[str, Any] = mappings.get("_meta", {}).get("tlm", {})
    found_shape = {
        "properties": mappings.get("properties", {}),
        "similarity": {name: _numbers(value) for name, value in settings.get("similarity", {}).items()},
        "analysis": settings.get("analysis", {}),
    }
    same = found_shape == shape(details) and meta(details).items() <= found_meta.items()
    return found_meta if same else {}


def _numbers(similarity: Mapping[str, str]) -> dict[str, Any]:
    return {name: value if name == "type" else float(value) for name, value in similarity.items()}


def meta(details: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts that decide the hits of an index, for its ``_meta``, where a finished one has its size, too."""
    return {name: details[name] for name in ("corpus_content", "analyzer", "k1", "b", "vectors") if name in details}


def shape(details: Mapping[str, Any]) -> dict[str, Any]:
    """The fields and settings that decide the hits; ``analysis`` is empty, as it could redefine the analyzer."""
    text = {"type": "text", "analyzer": details["analyzer"], "index_options": "freqs", "similarity": "tlm"}
    properties = {"doc": {"type": "long", "index": False}, "text": text}
    if vectors := details.get("vectors"):
        dense = {"type": "dense_vector", "dims": vectors["dimensions"], "index": True, "similarity": "dot_product"}
        properties["vector"] = dense | {"index_options": {"type": "int8_hnsw", "m": 16, "ef_construction": 100}}
    similarity = {"tlm": {"type": "BM25", "k1": details["k1"], "b": details["b"]}}
    return {"properties": properties, "similarity": similarity, "analysis": {}}


def request(query: dict[str, Any], top_k: int) -> dict[str, Any]:
    """The body of a search for the best documents."""
    sort = [{"_score": "desc"}, {"doc": "asc"}]
    nothing_else = {"_source": False, "stored_fields": "_none_", "track_total_hits": False}
    return {"size": top_k, "query": query, "sort": sort, **nothing_else}


def _clauses(terms: Sequence[str]) -> list[dict[str, Any]]:
    """A `match` of the terms that occur once in the query, and one with boost n for each that occurs n times.

    It scores as a `match` of the whole query does, but repetitions do not count against the server's limit of clauses.
    """
    counts = Counter(terms)
    once = " ".join(term for term, count in counts.items() if count == 1)
    repeated = [(term, count) for term, count in counts.items() if count > 1]
    parts = [(once, 1), *repeated] if once else repeated
    return [{"match": {"text": {"query": text, "boost": boost}}} for text, boost in parts] or [{"match_none": {}}]


def queries_together(top_k: int) -> int:
    """Return the number of queries per request."""
    return max(1, min(TOGETHER, HITS_TOGETHER // top_k))


def _hits(hits: Sequence[Mapping[str, Any]]) -> tuple[Docs, Scores]:
    sorts = [hit["sort"] for hit in hits]  # lists of score and document
    return np.array([sort[1] for sort in sorts], np.int64), np.array([sort[0] for sort in sorts], np.float32)


def _status(answer: Mapping[str, Any]) -> tuple[int, str]:
    """Return the status of an answer, and the reason if it is not `OK`. An incomplete answer means a busy server."""
    if "error" in answer:
        return int(answer.get("status", 500)), f"{answer['error'].get('type', '')}: {reason(answer)}"
    if answer.get("timed_out") or answer.get("_shards", {}).get("failed"):
        return 503, "not all shards answered in time"
    return OK, ""


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
        vectors = self.embed(queries)
        candidates = min(max(2 * top_k, LEAST_CANDIDATES), MOST_CANDIDATES)
        nearest = {"field": "vector", "k": top_k, "num_candidates": candidates, "rescore_vector": {"oversample": 2.0}}
        searches: list[dict[str, Any]] = [{"match_none": {}} for _ in queries]
        for row in np.flatnonzero(vectors.any(axis=1)):
            searches[row] = {"knn": {**nearest, "query_vector": vectors[row].tolist()}}
        return [request(search, top_k) for search in searches]
