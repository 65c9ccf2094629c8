"""Filling an index of a real Elasticsearch."""

import tempfile
from contextlib import ExitStack
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from research.benchmarks.elastic import Server, details, started
from research.benchmarks.measure import Cost, compare, per_cpu_second, per_second
from research.benchmarks.passages import corpus, texts, told
from research.benchmarks.reference import elastic
from research.benchmarks.row import Result, Row, against, need

DOCUMENTS, QUICK = 100_000, 3000
DATASETS, BULK = "datasets.add_elasticsearch_index", "helpers.parallel_bulk"


def run(quick: bool) -> list[Result]:
    """Documents a second, until all can be found."""
    need("datasets", "elasticsearch")
    documents = QUICK if quick else DOCUMENTS
    path = corpus(documents, quick)
    with ExitStack() as stack:
        server = stack.enter_context(Server(started(stack)))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        passages = elastic.dataset(path, folder, documents)
        size, threads = tuned(server, path, min(documents, 20_000), quick)
        sides = {
            "ours": lambda: filled(server, ours, path, documents),
            DATASETS: lambda: filled(server, elastic.add_index, passages, "benchmark-datasets", work=documents),
            BULK: lambda: filled(server, by_helper, path, documents, size, threads),
        }
        measured = compare(sides, repeats=1 if quick else 5, warm_up=0 if quick else 1)
    note = f"{told(quick)} {documents:,} documents; parallel_bulk with {size} documents a request, {threads} threads."
    results = []
    for other, target in ((DATASETS, 5), (BULK, 1)):
        wall, cpu = per_second("documents"), per_cpu_second("documents")
        results.append(against("by the clock", measured, other, wall, at_least=target, note=note))
        results.append(against("CPU of client and server", measured, other, cpu))
    return results


def filled(server: Server, fill: Any, *arguments: Any, work: int = 0) -> Cost:
    """Cost of filling an index with one of the ways below; indices of earlier rounds are removed first."""
    server.drop()
    return server.cost(lambda: fill(server.client, *arguments) or work)


def ours(client: Any, path: Path, documents: int) -> int:
    """Index as `tlm index --engine elasticsearch` does."""
    from tlm.retrieval.search.elastic_build import ensure, fill

    ensure(details(documents), "benchmark", lambda index: fill(index, texts(path), documents))
    return documents


def by_helper(client: Any, path: Path, documents: int, size: int, threads: int) -> int:
    elastic.bulk(client, islice(texts(path), documents), "benchmark-bulk", size, threads)
    return documents


def tuned(server: Server, path: Path, documents: int, quick: bool) -> tuple[int, int]:
    """The size of request and number of threads with which the helper is fastest here."""
    tried = elastic.BULK_SIZES[1:2] if quick else elastic.BULK_SIZES
    sides = {
        f"{size} {threads}": partial(filled, server, by_helper, path, documents, size, threads)
        for size, threads in tried
    }
    measured = compare(sides, repeats=1 if quick else 3, warm_up=0 if quick else 1)
    best = max(sides, key=lambda name: measured.spread(name, per_second("documents")).middle)
    size, threads = map(int, best.split())
    return size, threads


ROW = Row(
    name="elastic_index",
    stage="index into Elasticsearch",
    against=f"{DATASETS}, {BULK}",
    target="≥ 5× the first, ≥ 1× the second",
    what="The same passages into the same server (one node, 1 GiB heap, no security), from the first request until "
    "all documents can be found. `datasets` indexes as in the authors' code, with its default settings. The "
    "helper has our index settings, and the request size and number of threads that were fastest on this "
    "machine in the same run.",
    run=run,
    packages=("elasticsearch", "datasets"),
)
