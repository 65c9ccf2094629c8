"""Leaks: dev and test texts that training examples have too, by their letters and digits."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tlm.data.tasks.labelled import Example

SCHEMA = pa.schema(
    [
        ("example", pa.int64()),
        ("split", pa.string()),
        ("train", pa.int64()),
        ("same_label", pa.bool_()),
        ("text", pa.string()),
    ]
)


def find_leaks(examples: Sequence[Example]) -> list[tuple[int, int]]:
    """(dev or test example, first training example with the same `twin`), by ordinal, for each that has one."""
    first: dict[str, int] = {}
    for ordinal, example in enumerate(examples):
        if example.split == "train":
            first.setdefault(example.twin, ordinal)
    held_out = ((ordinal, example) for ordinal, example in enumerate(examples) if example.split != "train")
    return [(ordinal, first[example.twin]) for ordinal, example in held_out if example.twin in first]


def write_leaks(leaks: Sequence[tuple[int, int]], examples: Sequence[Example], path: Path) -> None:
    """Write them as parquet: example, split, train (ordinals), whether their labels agree, the text."""
    rows = [
        {
            "example": ordinal,
            "split": examples[ordinal].split,
            "train": twin,
            "same_label": examples[ordinal].label == examples[twin].label,
            "text": examples[ordinal].text,
        }
        for ordinal, twin in leaks
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), path, compression="zstd")
