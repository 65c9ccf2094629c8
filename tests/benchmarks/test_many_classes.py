"""The made-up texts of the row `many_classes`: always the same, and classes differ by their words."""

import json
from collections import Counter
from pathlib import Path

from research.benchmarks.many_classes import WORDS, spelled, write

Rows = list[dict[str, str]]


def rows_in(place: Path, split: str) -> Rows:
    return [json.loads(line) for line in (place / f"{split}.jsonl").read_text().splitlines()]


def test_the_same_sizes_give_the_same_texts_and_each_split_has_all_classes(tmp_path):
    for name in ("one", "two"):
        write(40, 400, tmp_path / name)
    for split, count in (("train", 400), ("dev", 80), ("test", 80)):
        rows = rows_in(tmp_path / "one", split)
        assert rows == rows_in(tmp_path / "two", split)
        assert len(rows) == len({row["text"] for row in rows}) == count
        assert len({row["label"] for row in rows}) == 40


def test_words_differ_and_frequent_ones_are_short():
    words = [spelled(rank) for rank in range(WORDS)]
    assert len(set(words)) == WORDS
    assert [len(word) for word in words] == sorted(map(len, words))


def test_a_class_repeats_its_words(tmp_path):
    """More of its rare words occur twice in its own texts than in as many texts of all classes."""
    write(40, 400, tmp_path / "task")
    rows = rows_in(tmp_path / "task", "train")

    def repeated(chosen: Rows) -> int:
        counts = Counter(word for row in chosen for word in set(row["text"].split()) if len(word) > 4)
        return sum(count > 1 for count in counts.values())

    own = sum(repeated([row for row in rows if row["label"] == f"{label:04}"]) for label in range(40))
    mixed = sum(repeated(rows[first : first + 10]) for first in range(0, 400, 10))
    assert own > 3 * mixed
