"""Costs of sides that take turns (A B, B A, A B …), so that whatever else the machine does falls on all of them."""

import multiprocessing
import resource
import statistics
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

from tlm.artifacts.spending import GETRUSAGE_UNIT
from tlm.artifacts.spending import peak_memory as own_peak

REPEATS = 5


@dataclass(frozen=True)
class Cost:
    """The cost of one run of a side.

    Attributes:
        wall: Seconds.
        cpu: CPU seconds of the process, its threads and those of its children that have ended.
        memory: Peak resident bytes of the process and of its largest child; 0 where that was not asked (see `child`).
        work: What was done in that time (documents, tokens, queries), as the side counts it; 0 where it does not.
    """

    wall: float
    cpu: float
    memory: int = 0
    work: float = 0.0


class Quantity(NamedTuple):
    """The part of a cost that is compared."""

    unit: str
    of: Callable[[Cost], float]
    more_is_better: bool = False


WALL = Quantity("s", lambda cost: cost.wall)
CPU = Quantity("CPU s", lambda cost: cost.cpu)
MEMORY = Quantity("MB", lambda cost: cost.memory / 1e6)


def per_cpu_second(work: str) -> Quantity:
    """`work` (its plural: "tokens") done in a CPU second."""
    return Quantity(f"{work} per CPU s", lambda cost: cost.work / cost.cpu, more_is_better=True)


def per_second(work: str) -> Quantity:
    """`work` (its plural: "tokens") done in a second."""
    return Quantity(f"{work} per s", lambda cost: cost.work / cost.wall, more_is_better=True)


class Stopwatch:
    """Measures the part of a side that counts: ``with Stopwatch() as watch: …; return watch.cost(work=documents)``."""

    def __enter__(self) -> "Stopwatch":
        self._wall, self._cpu = time.perf_counter(), _cpu()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._wall, self._cpu = time.perf_counter() - self._wall, _cpu() - self._cpu

    def cost(self, work: float = 0.0, memory: int = 0) -> Cost:
        """The cost of the block."""
        return Cost(self._wall, self._cpu, memory, work)


Side = Callable[[], Cost | float | None]
Found = TypeVar("Found")


def cost_of(side: Side) -> Cost:
    """Run `side` once: the cost that it measured itself, else of the whole call, with the work that it returned."""
    with Stopwatch() as watch:
        found = side()
    return found if isinstance(found, Cost) else watch.cost(found or 0.0)


def under(context: Callable[[], AbstractContextManager[Any]], side: Side) -> Side:
    """`side`, run in a fresh ``context()`` each time."""

    def go() -> Cost | float | None:
        with context():
            return side()

    return go


def child(function: Callable[..., Cost | float | None], *arguments: Any) -> Side:
    """A side that runs ``function(*arguments)`` in a fresh process, with the peak memory of that process.

    Both must be picklable: a function of a module, plain values. Imports inside the function count, those of its
    module do not.
    """
    return lambda: alone(_whole, function, *arguments)


def alone(function: Callable[..., Found], *arguments: Any) -> Found:
    """Call a function in a fresh process, and return what it returns."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def _whole(function: Callable[..., Cost | float | None], *arguments: Any) -> Cost:
    cost = cost_of(lambda: function(*arguments))
    return replace(cost, memory=cost.memory or peak_memory())


def peak_memory() -> int:
    """Peak resident bytes of this process since it began, and of the largest of its children that have ended."""
    return own_peak() + resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * GETRUSAGE_UNIT


def _cpu() -> float:
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime


class Spread(NamedTuple):
    """Median, smallest and largest of the repeats."""

    middle: float
    low: float
    high: float


@dataclass(frozen=True)
class Measured:
    """The costs of each side, one a round; costs of one round were measured one after the other."""

    costs: dict[str, list[Cost]]

    def spread(self, side: str, quantity: Quantity) -> Spread:
        """`quantity` of a side."""
        return _spread([quantity.of(cost) for cost in self.costs[side]])

    def ratio(self, ours: str, theirs: str, quantity: Quantity) -> Spread:
        """The ratios of `ours` to the other, round by round: above 1 is better, whichever way the quantity counts."""
        pairs = zip(self.costs[ours], self.costs[theirs], strict=True)
        ratios = [quantity.of(a) / max(quantity.of(b), 1e-12) for a, b in pairs]
        return _spread(ratios if quantity.more_is_better else [1 / max(ratio, 1e-12) for ratio in ratios])


def _spread(values: list[float]) -> Spread:
    return Spread(statistics.median(values), min(values), max(values))


def compare(sides: Mapping[str, Side], repeats: int = REPEATS, warm_up: int = 0) -> Measured:
    """Run all sides `repeats` times, in turn, each round in the other direction.

    Args:
        sides: By name.
        repeats: Rounds that count.
        warm_up: Rounds before them that do not.
    """
    costs: dict[str, list[Cost]] = {name: [] for name in sides}
    for turn in range(warm_up + repeats):
        for name in sides if turn % 2 == 0 else reversed(list(sides)):
            cost = cost_of(sides[name])
            if turn >= warm_up:
                costs[name].append(cost)
    return Measured(costs)
