"""Work on many things at once: in processes, on all cores of this machine, or in threads."""

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from typing import TypeVar

from joblib import Parallel, cpu_count, delayed
from joblib.externals.loky.process_executor import TerminatedWorkerError

from tlm import progress
from tlm.errors import Interrupted

T = TypeVar("T")
R = TypeVar("R")


def each(work: Callable[[T], R], items: Sequence[T], label: str, unit: str, least: int = 2) -> list[R]:
    """Call `work` for each item, and return what it returned, as `as_done` yields it."""
    return list(as_done(work, items, label, unit, least))


def as_done(work: Callable[[T], R], items: Sequence[T], label: str, unit: str, least: int = 2) -> Iterator[R]:
    """Call `work` for each item, in as many processes as there are cores, and show the progress.

    Yields what it returned, in the order in which items are done.

    Args:
        work: A function that can be pickled. What it raises ends all processes.
        items: What to work on.
        label: What is being done.
        unit: What the items are.
        least: How many items justify several processes.

    Raises:
        Interrupted: a process was killed.
    """
    workers = min(cpu_count(), len(items))
    if workers < 2 or len(items) < least:
        yield from map(work, progress.track(items, label, len(items), unit))
        return
    done = Parallel(workers, return_as="generator_unordered")(
        delayed(_quietly)(work, item, os.getpid()) for item in items
    )
    try:
        yield from progress.track(done, label, len(items), unit)
    except TerminatedWorkerError:
        raise Interrupted(
            f"{label}: a process was killed, perhaps for lack of memory; repeat the command to resume"
        ) from None


def in_threads(function: Callable[[T], R], items: Iterable[T], workers: int) -> Generator[R]:
    """Yield the result for each item, in order, while threads work ahead by at most two items each."""
    waiting: deque[Future[R]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        try:
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) > 2 * workers:
                    yield waiting.popleft().result()
            for future in waiting:
                yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _quietly(work: Callable[[T], R], item: T, parent: int) -> R:
    """Work without showing the progress inside, which the first process shows for all."""
    _end_with(parent)
    with progress.hidden():
        return work(item)


@lru_cache
def _end_with(parent: int) -> None:
    """End this process when its parent is gone: a killed process cannot warn its workers."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
