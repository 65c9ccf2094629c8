"""Cut texts into batches."""

from collections.abc import Iterable, Iterator


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
