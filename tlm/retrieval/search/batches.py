"""Work in batches: cut texts into batches, and process batches in threads."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def batched(texts: Iterable[str], count: int, characters: int) -> Iterator[list[str]]:
    """Cut `texts` into batches, each ended by the text that brings it to `count` texts or to so many characters."""
    batch: list[str] = []
    size = 0
    for text in texts:
        batch.append(text)
        size += len(text)
        if len(batch) == count or size >= characters:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def in_threads(function: Callable[[Item], Result], items: Iterable[Item], workers: int) -> Iterator[Result]:
    """Yield the result for each item, in order, while threads work ahead by at most two items each."""
    waiting: deque[Future[Result]] = deque()
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
