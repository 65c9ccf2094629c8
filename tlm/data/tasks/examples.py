"""Examples of a task: read from its artifact, as rows or as arrays, split by split."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tlm.artifacts.artifact import Artifact
from tlm.data.tasks.labelled import UNLABELLED
from tlm.data.tasks.metrics import Split
from tlm.data.tasks.splits import GROUP, groups_of
from tlm.errors import InputError

LABELLED = [("id", "string"), ("text", "string"), ("text_pair", "string"), ("label", "string"), ("target", "float64")]
SCHEMA = pa.schema([*LABELLED, ("split", "string"), (GROUP, "string")])
LISTS = pa.list_(pa.string())  # type of `label` where a text may have several labels, or none
SEVERAL = "several labels"  # the problem of such a task, in its manifest


def examples(task: Artifact) -> pa.Table:
    """Read the examples: columns id, text, text_pair, label, target, split; row ordinals identify examples.

    Ordered train, dev, test, unlabelled. `text_pair` is null without pairs, `label` for regression, `target` for
    classes, both without a label. Where a text may have several labels, `label` is a list. A task with a group field
    has the column `group` as well (see `groups_of`).
    """
    return pq.ParquetFile(task.path("examples.parquet")).read()


def one_label_each(task: Artifact, step: str) -> None:
    """Raise InputError if the texts of a task may have several labels, with which `step` cannot work."""
    if task.details["problem"] == SEVERAL:
        raise InputError(f"{task.uri} has several labels a text, and {step} works with one; leave this step out")


def classes_of(task: Artifact) -> list[str] | None:
    """The classes of a task in order; None for regression."""
    return None if task.details["problem"] == "regression" else list(task.details["labels"])


def values_of(column: pa.ChunkedArray, labels: list[str] | None) -> NDArray[Any]:
    """Ordinals of the labels in a column (int64), or its floats if there are no labels; shape [n].

    Of lists of labels, a 0/1 matrix (int64), shape [n, labels].
    """
    if labels is None:
        return column.to_numpy()  # type: ignore[no-any-return]
    if pa.types.is_list(column.type):
        places, found = {label: place for place, label in enumerate(labels)}, np.zeros((len(column), len(labels)), int)
        for row, own in enumerate(column.to_pylist()):
            found[row, [places[label] for label in own or ()]] = 1
        return found
    return pc.index_in(column, pa.array(labels, pa.string())).to_numpy().astype(np.int64)  # type: ignore[no-any-return]


def unlabelled(task: Artifact) -> list[str]:
    """The texts of a task that have no label, both of a pair."""
    table = examples(task)
    chosen = table.filter(pc.equal(table["split"], UNLABELLED))
    return [text for name in ("text", "text_pair") for text in chosen[name].to_pylist() if text is not None]


def read_splits(task: Artifact, *names: str) -> dict[str, Split]:
    """Read splits (train, dev or test) of a ``task`` artifact, whole and in the order of their rows."""
    table = examples(task)
    split = np.array(table["split"].to_pylist(), dtype=object)
    copies = pq.ParquetFile(task.path("leaks.parquet")).read(["example"])["example"].to_numpy()
    labels = classes_of(task)
    found = {}
    for name in names:
        rows = np.flatnonzero(split == name)
        part = table.take(rows)
        gold = values_of(part["target" if labels is None else "label"], labels)
        texts, pairs = part["text"].to_pylist(), part["text_pair"].to_pylist() if task.details["pair"] else None
        found[name] = Split(name, rows, texts, pairs, gold, groups_of(part), np.isin(rows, copies))
    return found
