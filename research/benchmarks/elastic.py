"""An Elasticsearch for benchmarks: the one that ``TLM_TEST_ELASTICSEARCH_URL`` names, or one started for them."""

import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any

from research.benchmarks.measure import Cost, Stopwatch
from research.benchmarks.reference.elastic import URL
from research.benchmarks.row import NotMeasured

HEAP = "1g"
INDEX = "tlm-benchmark-index"  # its alias is tlm-benchmark
DETAILS = {"alias": "tlm-benchmark", "corpus_content": "benchmark", "analyzer": "standard", "k1": 1.2, "b": 0.75}


def started(stack: ExitStack) -> str:
    """URL of a running server; the environment leads our client there until `stack` closes."""
    from tests.servers import servers

    url = os.environ.get("TLM_TEST_ELASTICSEARCH_URL")
    if not url:
        try:
            url = stack.enter_context(servers.elasticsearch(heap=HEAP))
        except servers.Missing as missing:
            raise NotMeasured(str(missing)) from None
    before = os.environ.get(URL)
    os.environ[URL] = url
    stack.callback(lambda: os.environ.pop(URL) if before is None else os.environ.update({URL: before}))
    return url


class Server:
    """A client of a running server, and what the server itself takes; indices of ours are removed at the end."""

    def __init__(self, url: str) -> None:
        from elasticsearch import Elasticsearch

        os.environ[URL] = url
        self.client = Elasticsearch(url, request_timeout=600)

    def __enter__(self) -> "Server":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.drop()

    def cpu_seconds(self) -> float:
        """CPU time of the server's process since it began; waits until what the server tells is new."""
        time.sleep(1.1)
        nodes = self.client.nodes.stats(metric="process", filter_path="nodes.*.process.cpu.total_in_millis")["nodes"]
        return float(sum(node["process"]["cpu"]["total_in_millis"] for node in nodes.values()) / 1000)

    def drop(self) -> None:
        """Remove what benchmarks have indexed."""
        for index in self.client.indices.get(index="tlm-benchmark*,benchmark-*", ignore_unavailable=True):
            self.client.indices.delete(index=index)

    def cost(self, work: Callable[[], float]) -> Cost:
        """Measure a piece of work here and in the server; it returns how much it did."""
        before = self.cpu_seconds()
        with Stopwatch() as watch:
            done = work()
        cost = watch.cost(done)
        return Cost(cost.wall, cost.cpu + self.cpu_seconds() - before, 0, done)


def details(documents: int, name: str = INDEX) -> dict[str, Any]:
    """The handle of an index."""
    return {**DETAILS, "index": name, "documents": documents}


class Service:
    """Elasticsearch through our own client, behind the calls of the other engines."""

    def __init__(self, server: Server) -> None:
        self.server = server

    def prepare(self, texts: Iterable[str]) -> None:
        self.documents = sum(1 for _ in texts)
        self.server.drop()

    def fill(self, texts: Iterable[str]) -> None:
        from tlm.retrieval.search.elastic import Elastic
        from tlm.retrieval.search.elastic_build import ensure, fill

        ensure(details(self.documents), "benchmark", lambda index: fill(index, texts, self.documents))
        self.engine = Elastic(details(self.documents))

    def search(self, queries: Sequence[str], top_k: int) -> list[tuple[Any, Any]]:
        return list(self.engine.search(queries, top_k))
