"""The Elasticsearch engine: searching an index that elastic_build.py has filled, and removing it."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from elasticsearch import Elasticsearch

from tlm.errors import InputError
from tlm.retrieval.search.batches import in_threads
from tlm.retrieval.search.bulk_analyzer import terms
from tlm.retrieval.search.elastic.client import BUSY, connect, patiently, reason, refusal, until_done
from tlm.retrieval.search.engine import Docs, Scores

TOGETHER, HITS_TOGETHER = 50, 100_000  # queries, and hits, in a request at most
UNDER_WAY = 2  # requests at once: the server works while an answer is read
WANTED = (
    "responses.hits.hits.sort,responses.timed_out,responses._shards.failed,"
    "responses.status,responses.error.type,responses.error.reason,responses.error.root_cause"
)


class Elastic:
    """An `Engine` on an Elasticsearch index; `details` are what `index.located` gives."""

    def __init__(self, details: Mapping[str, Any]) -> None:
        self.index = str(details["index"])
        self.client = connect()
        check(self.client, details)

    def search(self, queries: Sequence[str], top_k: int) -> Iterator[tuple[Docs, Scores]]:
        """Search as `Engine.search` says; the server gives at most 10,000 hits a query (index.max_result_window)."""
        together = queries_together(top_k)
        batches = (queries[start : start + together] for start in range(0, len(queries), together))
        for hits in in_threads(lambda batch: self._found(batch, top_k), batches, UNDER_WAY):
            yield from hits

    def _found(self, queries: Sequence[str], top_k: int) -> list[tuple[Docs, Scores]]:
        requests = [_request(found, top_k) for found in terms(queries).by_text()]
        return [_hits(answer.get("hits", {}).get("hits", ())) for answer in self._answers(requests)]

    def _answers(self, requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """One whole answer for each request; those that a busy server put off are asked again."""
        answers: dict[int, dict[str, Any]] = {}
        trouble: tuple[int, str] | None = None

        def ask(numbers: list[int]) -> list[int]:
            nonlocal trouble
            put_off = []
            for number, answer in zip(numbers, self._ask([requests[number] for number in numbers]), strict=True):
                answers[number] = answer
                if (found := _trouble(answer)) is not None:
                    trouble = found
                    put_off.append(number)
                    if found[0] not in BUSY:
                        raise refusal(*found)
            return put_off

        if until_done(ask, list(range(len(requests)))) and trouble:
            raise refusal(*trouble)
        return [answers[number] for number in range(len(requests))]

    def _ask(self, requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
        header = {
            "index": self.index,
            "search_type": "dfs_query_then_fetch",  # df and lengths over all shards; as without where there is one
            "allow_partial_search_results": False,
        }
        searches = [part for request in requests for part in (header, request)]
        answer = patiently(lambda: self.client.msearch(searches=searches, filter_path=WANTED))
        found: list[dict[str, Any]] = answer["responses"]
        return found


def check(client: Elasticsearch, details: Mapping[str, Any]) -> None:
    """Compare an index with its handle: it must be there, be made from that corpus, and have all its documents.

    Raises:
        InputError: it is gone, or is not what the handle says.
    """
    index, documents = details["index"], int(details["documents"])
    found = stored(client, index)
    if found is None:
        raise InputError(f"Elasticsearch has no index '{index}' (any more); run `tlm index` again to restore it")
    if not found.is_of(details) or found.meta.get("documents") != documents:
        raise InputError(
            f"index '{index}' is unfinished, or made from something else (its _meta, mapping or similarity differs "
            "from the artifact's); run `tlm index` again to complete it, or remove it there if it is another's"
        )
    count = patiently(lambda: client.count(index=index))["count"]
    if count != documents:
        raise InputError(
            f"index '{index}' has {count:,} documents, not {documents:,}; remove it, then run `tlm index` again"
        )


@dataclass(frozen=True)
class Stored:
    """What an index says of itself; `meta` is empty for one that is not ours."""

    meta: Mapping[str, Any]
    shape: Mapping[str, Any]

    def is_of(self, details: Mapping[str, Any]) -> bool:
        """Whether it was made from what `details` tell, as we make it."""
        told = meta(details)
        return {name: self.meta.get(name) for name in told} == told and self.shape == shape(details)


def stored(client: Elasticsearch, index: str) -> Stored | None:
    """What the index says of itself, or None where there is no such index."""
    wanted = "*.mappings,*.settings.index.similarity,*.settings.index.analysis"
    found = patiently(lambda: client.indices.get(index=index, ignore_unavailable=True, filter_path=wanted))
    for entry in found.values():
        mappings, settings = entry.get("mappings", {}), entry.get("settings", {}).get("index", {})
        told = {
            "properties": mappings.get("properties", {}),
            "similarity": {name: _numbers(value) for name, value in settings.get("similarity", {}).items()},
            "analysis": settings.get("analysis", {}),
        }
        return Stored(mappings.get("_meta", {}).get("tlm", {}), told)
    return None


def _numbers(similarity: Mapping[str, str]) -> dict[str, Any]:
    return {name: value if name == "type" else float(value) for name, value in similarity.items()}


def meta(details: Mapping[str, Any]) -> dict[str, Any]:
    """What decides the hits of an index; once it is finished, it also tells its number of documents."""
    return {name: details[name] for name in ("corpus_content", "analyzer", "k1", "b")}


def shape(details: Mapping[str, Any]) -> dict[str, Any]:
    """The fields and settings that decide the hits; ``analysis`` could give a known analyzer another meaning."""
    text = {"type": "text", "analyzer": details["analyzer"], "index_options": "freqs", "similarity": "tlm"}
    return {
        "properties": {"doc": {"type": "long", "index": False}, "text": text},
        "similarity": {"tlm": {"type": "BM25", "k1": details["k1"], "b": details["b"]}},
        "analysis": {},
    }


def drop_index(details: Mapping[str, Any]) -> None:
    """Remove the index with these details (`index.located`) from its server; removing what is not there is no error."""
    client = connect()
    patiently(lambda: client.indices.delete(index=details["index"], ignore_unavailable=True))


def _request(terms: Sequence[str], top_k: int) -> dict[str, Any]:
    return {
        "size": top_k,
        "query": {"bool": {"should": _clauses(terms)}},
        "_source": False,
        "stored_fields": "_none_",
        "sort": [{"_score": "desc"}, {"doc": "asc"}],
        "track_total_hits": False,
    }


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
    """How many queries go into a request."""
    return max(1, min(TOGETHER, HITS_TOGETHER // top_k))


def _hits(hits: Sequence[Mapping[str, Any]]) -> tuple[Docs, Scores]:
    sorts = [hit["sort"] for hit in hits]  # lists of score and document
    return np.array([sort[1] for sort in sorts], np.int64), np.array([sort[0] for sort in sorts], np.float32)


def _trouble(answer: Mapping[str, Any]) -> tuple[int, str] | None:
    """Status and reason if an answer is not whole."""
    if "error" in answer:
        return int(answer.get("status", 500)), f"{answer['error'].get('type', '')}: {reason(answer)}"
    if answer.get("timed_out") or answer.get("_shards", {}).get("failed"):
        return 503, "not all shards answered in time"
    return None
