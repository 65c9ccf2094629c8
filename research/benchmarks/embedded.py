"""The way from a corpus to a task's passages, by our embedded engine and by others that people could use."""

import importlib.util
import os
import tempfile
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from research.benchmarks.elastic import Server, Service, started
from research.benchmarks.measure import CPU, MEMORY, Cost, Measured, alone, cost_of, per_cpu_second
from research.benchmarks.passages import corpus, queries, texts, told
from research.benchmarks.reference import engines
from research.benchmarks.row import NotMeasured, Result, Row, against, limit, not_measured

MEMORY_GIB = 2
KINDS = ("full", "rake")
TOP_K = (50, 5000)
TOLD = {"full": "whole texts", "rake": "RAKE"}
SIZE, SMALL = 100_000, 3000  # documents of this row, and of a quick run
OTHERS = {"bm25s": "bm25s", "tantivy": "tantivy", "Lucene": "pyserini", "Elasticsearch": "elasticsearch"}
SERVER_UP_TO = 1_000_000  # documents that the benchmark's Elasticsearch is given


class Ours:
    """The embedded engine behind the calls of the others."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def prepare(self, texts: Iterable[str]) -> None:
        with tempfile.TemporaryDirectory() as folder:  # loads modules, as making the other engines does
            Ours(Path(folder)).fill(["some words", "more words"])

    def fill(self, texts: Iterable[str]) -> None:
        from tlm.retrieval.search.embedded import Embedded, build

        build(texts, self.folder, k1=engines.K1, b=engines.B)
        self.engine = Embedded(lambda name: self.folder / name)

    def search(self, queries: Sequence[str], top_k: int) -> list[tuple[Any, Any]]:
        return list(self.engine.search(queries, top_k))


MAKERS: dict[str, Callable[[Path], Any]] = {
    "ours": Ours,
    "bm25s": engines.Bm25s,
    "tantivy": engines.Tantivy,
    "Lucene": engines.Lucene,
}


@dataclass
class Trial:
    """The cost of an engine's index, and of the queries by (kind, K); `memory`: without mapped files."""

    index: Cost
    searches: dict[tuple[str, int], Cost]
    memory: int

    def subset(self, asking: tuple[str, int], number: int) -> Cost:
        """Index and `number` queries."""
        search = self.searches[asking]
        share = number / search.work
        return Cost(self.index.wall + share * search.wall, self.index.cpu + share * search.cpu, self.memory)


def measure(documents: int, rounds: int, asked: int, quick: bool) -> list[Result]:
    """One size of corpus: so many rounds, and queries of the task in each (all of them are charged for)."""
    results = []
    with ExitStack() as stack:
        there = {name: module for name, module in OTHERS.items() if importlib.util.find_spec(module)}
        url = started(stack) if not quick and documents <= SERVER_UP_TO else None
        if url is None:
            there.pop("Elasticsearch", None)
        for name in OTHERS.keys() - there.keys():
            why = f"install {OTHERS[name]}"
            if name == "Elasticsearch":
                why = "no server in a quick run" if quick else f"the server is given {SERVER_UP_TO:,} documents at most"
            results.append(not_measured("time to subset", why, "≥ 1×", name))
        return results + size(documents, ["ours", *there], rounds, asked, quick, url or "")


def size(documents: int, names: list[str], rounds: int, asked: int, quick: bool, url: str = "") -> list[Result]:
    """Results for one size of corpus."""
    path = corpus(documents, quick)
    asking = {kind: queries(kind, quick, asked) for kind in KINDS}
    trials: dict[str, list[Trial]] = {name: [] for name in names}
    for turn in range(rounds):
        for name in names if turn % 2 == 0 else names[::-1]:
            trials[name].append(alone(trial, name, str(path), asking, TOP_K, url))
    others = [name for name in names if name != "ours"]
    results = []
    note = told(quick)
    for kind in KINDS:
        number = len(queries(kind, quick))
        for top_k in TOP_K:
            costs = {name: [one.subset((kind, top_k), number) for one in trials[name]] for name in names}
            label = f"{documents:,} documents, {TOLD[kind]}, K = {top_k}"
            results += [
                against(f"{label}: time to subset", Measured(costs), name, CPU, at_least=1, note=note)
                for name in others
            ]
            found = Measured({name: [one.searches[kind, top_k] for one in trials[name]] for name in names})
            results += [against(f"{label}: search alone", found, name, per_cpu_second("queries")) for name in others]
    found = Measured({name: [one.index for one in trials[name]] for name in names})
    label = f"{documents:,} documents"
    results += [against(f"{label}: index alone", found, name, per_cpu_second("documents")) for name in others]
    peaks = Measured({name: [Cost(0, 0, one.memory) for one in trials[name]] for name in names})
    results += [against(f"{label}: peak memory", peaks, name, MEMORY) for name in others if name != "Elasticsearch"]
    peak = max(one.memory for one in trials["ours"]) / 2**30
    note = "Anonymous memory: pages of mapped index files, which the system may drop at any time, are not in it."
    return [*results, limit(f"{label}: our peak memory", peak, "GiB", MEMORY_GIB, note)]


def trial(name: str, path: str, asking: dict[str, list[str]], top_ks: Sequence[int], url: str = "") -> Trial:
    """Fill an engine and ask it everything, in this process."""
    with tempfile.TemporaryDirectory(dir=Path(path).parent) as folder, ExitStack() as stack:
        server = stack.enter_context(Server(url)) if name == "Elasticsearch" else None
        engine = Service(server) if server else MAKERS[name](Path(folder))
        documents = sum(1 for _ in texts(Path(path)))
        engine.prepare(texts(Path(path)))
        memory = stack.enter_context(Peak())
        index = _cost(lambda: engine.fill(texts(Path(path))), documents, server)
        for asked in asking.values():  # Java compiles what it runs often, and files are read for the first time
            engine.search(asked, top_ks[0])
        searches = {
            (kind, top_k): _cost(lambda q=asked, k=top_k: engine.search(q, k), len(asked), server)  # type: ignore[misc]
            for kind, asked in asking.items()
            for top_k in top_ks
        }
        return Trial(index, searches, memory.bytes())


def _cost(work: Callable[[], object], amount: float, server: Server | None) -> Cost:
    def done() -> float:
        work()
        return amount

    return server.cost(done) if server else cost_of(done)


class Peak:
    """The most anonymous memory that this process, and those it started, have had, looked at every 20 ms."""

    def __enter__(self) -> "Peak":
        self._peak, self._done = 0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._thread.join()

    def bytes(self) -> int:
        return self._peak

    def _watch(self) -> None:
        while not self._done.wait(0.02):
            self._peak = max(self._peak, sum(map(_anonymous, _family(os.getpid()))))


def _family(process: int) -> list[int]:
    children = Path(f"/proc/{process}/task/{process}/children")
    try:
        found = [int(child) for child in children.read_text().split()]
    except OSError:
        return [process]
    return [process, *(member for child in found for member in _family(child))]


def _anonymous(process: int) -> int:
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))


def row(name: str, documents: int, rounds: int, asked: int) -> Row:
    """The row of a size; a quick run has one small size."""

    def run(quick: bool) -> list[Result]:
        if quick and documents > SIZE:
            raise NotMeasured("a quick run has one small size")
        return measure(SMALL, 1, 100, quick) if quick else measure(documents, rounds, asked, quick)

    return Row(
        name=name,
        stage=f"from {documents:,} documents to a task's passages, embedded engine",
        against="bm25s, tantivy, Lucene, Elasticsearch",
        target=f"ahead of each, within {MEMORY_GIB} GiB",
        what="Time to subset is the time for building the index and running all queries of a task, in CPU seconds of a "
        "fresh process with one thread (for Elasticsearch: of client and server). Queries are training texts, whole or "
        f"as RAKE keywords. We run {asked} of them, after a warm-up that is not counted, and extrapolate to all. "
        f"Rounds: {rounds}. All engines read the passages from one parquet file. bm25s' functions are compiled before "
        "timing starts, and Lucene's hits stay in Java. Lucene's index is built in a process of its own, and the time "
        "includes its start (Python and Java): about six seconds, estimated from the three sizes. That weighs most at "
        "100,000 documents. `research/benchmarks/reference/engines.py` says what the engines compute and where they "
        "differ.",
        run=run,
        packages=("numpy", "pyarrow", "bm25s", "numba", "tantivy", "pyserini", "elasticsearch"),
    )


ROW = row("embedded", SIZE, rounds=5, asked=800)
