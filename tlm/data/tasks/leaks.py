"""Leaks: texts of dev and test that are also in train, ignoring case, spaces and punctuation."""

from collections.abc import Sequence

import pyarrow as pa

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


def find_leaks(examples: Sequence[Example]) -> pa.Table:
    """Return a row for each dev or test example with the same `twin` as a training example.

    `example` and `train` are the ordinals of the two (of the first training example, if there are several).
    """
    first: dict[str, int] = {}
    for ordinal, example in enumerate(examples):
        if example.split == "train":
            first.setdefault(example.twin, ordinal)
    leaks = []
    for ordinal, example in enumerate(examples):
        if example.split != "train" and example.twin in first:
            twin = first[example.twin]
            leaks.append((ordinal, example.split, twin, example.label == examples[twin].label, example.text))
    return pa.table(list(zip(*leaks, strict=True)) or [()] * len(SCHEMA), schema=SCHEMA)
