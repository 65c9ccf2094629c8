"""Elasticsearch as others use it: an index as `datasets` fills it, a tuned bulk helper, the authors' retrieval loop,
and what the server gives at most.

How faithful: `add_index` is `Dataset.add_elasticsearch_index` itself, with its default settings, as in the authors'
code. `Loop` follows the description of the released script: the client is made once; a pool of processes, which inherit
it, is made for every four queries; each process searches for one (a `multi_match` over the one text field, the whole
documents in the answer), and then the rows of the hits are read from the data set. Queries and K are ours; hits and
their order are those of our own engine but for equal scores (a test holds this against a real server). One thing is
kinder than in the script: an error is raised instead of swallowed.
"""

import json
import multiprocessing
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

URL = "TLM_ELASTICSEARCH_URL"  # where the server is, as for the product

PROCESSES = 4  # and queries a pool
BULK_SIZES = ((500, 2), (1000, 2), (1000, 4), (2000, 2), (2000, 4), (4000, 2))  # documents a request, threads


def dataset(path: Path, folder: Path, documents: int) -> Any:
    """The passages as a data set on disk, which `datasets` reads row by row."""
    import datasets

    datasets.disable_progress_bars()
    found = datasets.load_dataset("parquet", data_files=str(path), split="train", cache_dir=str(folder))
    return found.select(range(documents))


def add_index(client: Any, passages: Any, index: str) -> None:
    """`datasets.Dataset.add_elasticsearch_index`, and a refresh, so that all documents can be found."""
    passages.add_elasticsearch_index("text", es_client=client, es_index_name=index)
    client.indices.refresh(index=index)


def bulk(client: Any, texts: Iterable[str], index: str, size: int, threads: int) -> None:
    """`helpers.parallel_bulk` into an index made for filling: no refresh, no replicas, frequencies only."""
    from elasticsearch.helpers import parallel_bulk

    settings = {"number_of_shards": 1, "number_of_replicas": 0, "refresh_interval": "-1"}
    text = {"type": "text", "analyzer": "standard", "index_options": "freqs"}
    mappings = {"dynamic": "strict", "properties": {"doc": {"type": "long", "index": False}, "text": text}}
    client.indices.create(index=index, settings=settings, mappings=mappings)
    actions = ({"_id": str(doc), "doc": doc, "text": text} for doc, text in enumerate(texts))
    for _ in parallel_bulk(client, actions, threads, size, index=index):
        pass
    client.indices.refresh(index=index)


class Loop:
    """The authors' retrieval loop over an index that `datasets` filled."""

    def __init__(self, passages: Any, index: str) -> None:
        self.passages, self.index = passages, index

    def search(self, queries: Sequence[str], top_k: int) -> Iterator[tuple[list[int], list[float], list[str]]]:
        """The documents, scores and texts of each query."""
        client(os.environ[URL])  # before there are processes, so that they inherit it; none of its connections is open
        context = multiprocessing.get_context("fork")
        for start in range(0, len(queries), PROCESSES):
            together = [(self.index, query, top_k) for query in queries[start : start + PROCESSES]]
            with context.Pool(PROCESSES) as pool:
                answers = pool.map(_search, together)
            for docs, scores in answers:
                yield docs, scores, self.passages[docs]["text"] if docs else []


@cache
def client(url: str) -> Any:
    """The one client of this process and of the processes that it forks."""
    from elasticsearch import Elasticsearch

    return Elasticsearch(url, request_timeout=600)


def _search(asked: tuple[str, str, int]) -> tuple[list[int], list[float]]:
    index, query, top_k = asked
    match = {"multi_match": {"query": query, "fields": ["text"], "type": "cross_fields"}}
    hits = client(os.environ[URL]).search(index=index, query=match, size=top_k)["hits"]["hits"]
    return [int(hit["_id"]) for hit in hits], [hit["_score"] for hit in hits]


def serialise(queries: Sequence[str], index: str, top_k: int, together: int) -> list[bytes]:
    """Bodies of `_msearch` requests with `together` queries each, which answer with documents and scores only."""
    bodies = []
    for start in range(0, len(queries), together):
        lines: list[dict[str, Any]] = []
        for query in queries[start : start + together]:
            lines.append({"index": index})
            lines.append(
                {
                    "size": top_k,
                    "query": {"match": {"text": query}},
                    "_source": False,
                    "stored_fields": "_none_",
                    "sort": [{"_score": "desc"}, {"doc": "asc"}],
                    "track_total_hits": False,
                }
            )
        bodies.append("".join(json.dumps(line) + "\n" for line in lines).encode())
    return bodies


def send(url: str, bodies: Sequence[bytes], connections: int) -> list[bytes]:
    """The server's limit: requests that are ready, answers that nobody looks at, so many requests under way."""
    answers = [b""] * len(bodies)
    with ThreadPoolExecutor(connections) as pool:
        shares = [bodies[first::connections] for first in range(connections)]
        for first, answered in enumerate(pool.map(partial(_send, url), shares)):
            answers[first::connections] = answered
    return answers


def _send(url: str, bodies: Sequence[bytes]) -> list[bytes]:
    import http.client

    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port)
    answers = []
    for body in bodies:
        path = "/_msearch?filter_path=responses.hits.hits.sort"
        connection.request("POST", path, body, {"content-type": "application/x-ndjson"})
        answer = connection.getresponse()
        answers.append(answer.read())
        assert answer.status == 200
    connection.close()
    return answers
