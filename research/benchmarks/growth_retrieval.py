"""Growth of the cost of retrieval with the size of the corpus, the number of queries, K."""

from collections.abc import Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from research.benchmarks.measure import CPU, Cost, Side, Stopwatch, compare
from research.benchmarks.passages import corpus, queries, texts, told
from research.benchmarks.row import Result, growth
from research.benchmarks.training_data import folder

DOCUMENTS = (25_000, 50_000, 100_000, 200_000, 400_000)
HALVINGS = (4, 3, 2, 1, 0)  # of the task's queries
TOP_K = (50, 150, 500, 1500, 5000)


def results(quick: bool) -> list[Result]:
    """Embedded engine, whole texts as queries."""
    sizes = (1000, 2000, 4000) if quick else DOCUMENTS
    repeats = 1 if quick else 5
    whole = queries("full", quick)
    few = whole[:: max(1, len(whole) // 200)]
    with TemporaryDirectory(dir=folder()) as place:
        path = corpus(max(sizes), quick)
        fills = {size: partial(filled, path, size, Path(place)) for size in sizes}
        points = [cpu_seconds(fills, repeats)]
        engines = {size: engine(Path(place, str(size))) for size in sizes}
        middle = engines[sizes[len(sizes) // 2]]
        numbers = [len(whole) >> halvings for halvings in HALVINGS]
        for sides in (
            {size: partial(searched, engines[size], few, 50) for size in sizes},
            {number: partial(searched, middle, whole[:number], 50) for number in numbers},
            {top_k: partial(searched, middle, few, top_k) for top_k in TOP_K},
        ):
            points.append(cpu_seconds(sides, repeats))
    seconds = "CPU seconds"
    note, at = told(quick), f"{sizes[len(sizes) // 2]:,} documents"
    return [
        growth("documents: index", points[0], ("documents", seconds), note=note),
        growth(f"documents: {len(few)} queries, K = 50", points[1], ("documents", seconds)),
        growth(f"queries: {at}, K = 50", points[2], ("queries", seconds)),
        growth(f"K: {len(few)} queries, {at}", points[3], ("K", seconds)),
    ]


def cpu_seconds(sides: Mapping[int, Side], repeats: int) -> list[tuple[float, float]]:
    """(size, median of CPU seconds), sizes measured in turn."""
    measured = compare({str(size): side for size, side in sides.items()}, repeats)
    return [(float(size), measured.spread(str(size), CPU).middle) for size in sides]


def filled(path: Path, documents: int, place: Path) -> Cost:
    """Cost of an index of the first `documents` passages."""
    from tlm.retrieval.search.embedded import build

    target = place / str(documents)
    target.mkdir(exist_ok=True)
    with Stopwatch() as watch:
        build(islice(texts(path), documents), target, k1=1.2, b=0.75)
    return watch.cost()


def engine(place: Path) -> Any:
    """The engine on such an index."""
    from tlm.retrieval.search.embedded import Embedded

    return Embedded(lambda name: place / name)


def searched(engine: Any, asked: list[str], top_k: int) -> float:
    """Ask some queries; returns how many were answered."""
    return sum(1 for _ in engine.search(asked, top_k))
