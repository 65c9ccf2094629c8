"""A tiny corpus and task in which words tell the class, and the corpus has text on and off the topic."""

import json
import random
import resource
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tlm.errors import InputError

TOPICS = {
    "rain": ["rain", "cloud", "storm", "wind", "thunder", "drizzle", "forecast", "humid", "front", "pressure"],
    "bread": ["bread", "flour", "yeast", "oven", "dough", "crust", "knead", "bake", "loaf", "butter"],
    "chess": ["chess", "pawn", "bishop", "knight", "queen", "castle", "gambit", "opening", "endgame", "check"],
}
OFF_TOPIC = [
    "river", "stone", "paper", "window", "garden", "engine", "button", "letter", "market", "bottle", "candle",
    "ladder",
]  # fmt: skip
GLUE = ["the", "of", "and", "with", "for", "a", "very", "under", "over", "near", "from", "into", "before", "after"]


def write_tiny(folder: Path, documents: int = 400, train: int = 60, held_out: int = 18) -> None:
    """Write ``corpus.jsonl`` and ``task/{train,dev,test}.jsonl`` under `folder`; the same bytes each time."""
    rng = random.Random(7)
    sources = [*TOPICS.items(), ("other", OFF_TOPIC), ("other", OFF_TOPIC)]
    corpus = [{"text": _sentence(rng, sources[i % 5][1], 24), "source": sources[i % 5][0]} for i in range(documents)]
    write_rows(folder / "corpus.jsonl", corpus)
    labels = sorted(TOPICS)
    for split, rows in (("train", train), ("dev", held_out), ("test", held_out)):
        examples = [{"text": _sentence(rng, TOPICS[labels[i % 3]], 10), "label": labels[i % 3]} for i in range(rows)]
        write_rows(folder / "task" / f"{split}.jsonl", examples)


def in_files(folder: Path, count: int) -> dict[str, str]:
    """The texts of ``corpus.jsonl`` in `count` files by name, each padded to more than 1 MiB: a part of its own."""
    texts = (folder / "corpus.jsonl").read_text().splitlines(keepends=True)
    long = [json.dumps({"text": "word " * 2_000, "source": f"padding {number}"}) + "\n" for number in range(count)]
    return {f"{number}.jsonl": "".join(texts[number::count]) + long[number] * 110 for number in range(count)}


def _sentence(rng: random.Random, words: list[str], length: int) -> str:
    return " ".join(rng.choice(words if rng.random() < 0.6 else GLUE) for _ in range(length))


def write_rows(path: Path, rows: Iterable[dict[str, Any]]) -> str:
    """Write a file of JSON lines, with its folder; its path as text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


@contextmanager
def small_files(most: int) -> Iterator[None]:
    """Let no file grow beyond so many bytes, as where a disk is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def refused(step: Callable[..., object], *arguments: object, **settings: object) -> str:
    """The one line that a step says to these settings instead of working."""
    import pytest

    with pytest.raises(InputError) as caught:
        step(*arguments, **settings)
    assert "\n" not in str(caught.value)
    return str(caught.value)
