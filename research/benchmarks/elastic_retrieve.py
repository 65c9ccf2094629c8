"""Searching a real Elasticsearch with all queries of a task."""

import os
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from research.benchmarks.elastic import INDEX, Server, details, started
from research.benchmarks.measure import Cost, compare, per_cpu_second, per_second
from research.benchmarks.passages import corpus, queries, texts, told
from research.benchmarks.reference import elastic
from research.benchmarks.reference.elastic import URL
from research.benchmarks.row import Result, Row, against, need

DOCUMENTS, QUICK = 100_000, 3000
# K: queries for us, queries for the loop, times the loop, share of the limit
SIZES = {50: (800, 80, 5, 0.9), 500: (800, 40, 7, 0.9), 5000: (200, 16, 15, 0.9)}
FEW = 8  # queries in a quick run
LOOP, LIMIT = "the authors' loop", "the server's limit"


def run(quick: bool) -> list[Result]:
    """Queries a second for each K."""
    need("datasets", "elasticsearch")
    documents = QUICK if quick else DOCUMENTS
    path = corpus(documents, quick)
    results = []
    with ExitStack() as stack:
        server = stack.enter_context(Server(started(stack)))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        passages = elastic.dataset(path, folder, documents)
        server.drop()
        fill(server, path, documents, passages)
        for top_k, (asked, looped, times, share) in SIZES.items():
            many, few = (queries("full", quick, FEW if quick else number) for number in (asked, looped))
            sides = {
                "ours": partial(ours, server, documents, many, top_k),
                LOOP: partial(loop, server, passages, few, top_k),
                LIMIT: partial(limit_of, server, many, top_k),
            }
            measured = compare(sides, repeats=1 if quick else 5, warm_up=0 if quick else 1)
            note = f"{told(quick)} {documents:,} documents, whole texts."
            wall, cpu = per_second("queries"), per_cpu_second("queries")
            for other, target in ((LOOP, times), (LIMIT, share)):
                results.append(against(f"K = {top_k}, by the clock", measured, other, wall, at_least=target, note=note))
                results.append(against(f"K = {top_k}, CPU of client and server", measured, other, cpu))
            results.append(against(f"K = {top_k}, {LIMIT} itself by the clock", measured, LOOP, wall, ours=LIMIT))
    return results


def fill(server: Server, path: Path, documents: int, passages: object) -> None:
    """Our index, and the one that the loop searches; each in one segment, so that chance favours neither."""
    from tlm.retrieval.search.elastic_build import ensure, fill

    ensure(details(documents), "benchmark", lambda index: fill(index, texts(path), documents))
    elastic.add_index(server.client, passages, "benchmark-datasets")
    server.client.indices.put_settings(index=INDEX, settings={"index.blocks.write": False})
    for index in (INDEX, "benchmark-datasets"):
        server.client.indices.forcemerge(index=index, max_num_segments=1)


def ours(server: Server, documents: int, asked: list[str], top_k: int) -> Cost:
    """Retrieve as `tlm retrieve` does, opening and checking the index included."""
    from tlm.retrieval.search.elastic import Elastic

    return server.cost(lambda: sum(1 for _ in Elastic(details(documents)).search(asked, top_k)))


def loop(server: Server, passages: object, asked: list[str], top_k: int) -> Cost:
    return server.cost(lambda: sum(1 for _ in elastic.Loop(passages, "benchmark-datasets").search(asked, top_k)))


def limit_of(server: Server, asked: list[str], top_k: int) -> Cost:
    from tlm.retrieval.search.elastic import UNDER_WAY, queries_together

    bodies = elastic.serialise(asked, INDEX, top_k, queries_together(top_k))

    def send() -> int:
        elastic.send(os.environ[URL], bodies, UNDER_WAY)
        return len(asked)

    return server.cost(send)


ROW = Row(
    name="elastic_retrieve",
    stage="retrieve from Elasticsearch",
    against=f"{LOOP}, {LIMIT}",
    target="≥ 5× / 7× / 15× the loop at K = 50 / 500 / 5000, ≥ 0.9× the limit",
    what="Whole training texts as queries on the same passages and the same server, each index in one segment. The "
    "authors' loop creates a pool of processes for every four queries, runs one search in each with an "
    "inherited client, and reads the rows of the hits. It gets fewer queries and is compared by its rate. The "
    "limit is the rate for the same queries in requests prepared beforehand, with as many in flight as ours, "
    "and without parsing the answers.",
    run=run,
    packages=("elasticsearch", "datasets"),
)
