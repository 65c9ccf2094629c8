"""A task's examples as arrays, split by split."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tlm.artifacts.artifact import Artifact
from tlm.data.tasks.groups import groups_of
from tlm.data.tasks.task import examples


@dataclass(frozen=True)
class Split:
    """The n examples of one split: their row ordinals in the task, texts, second texts of pairs, gold values.

    `gold` holds class ordinals (int64) or targets (float64), `group` the ordinal of each example's group
    (`tlm.data.tasks.groups`), `copied` whether train has the same text.
    """

    name: str
    example: NDArray[np.int64]
    texts: list[str]
    pairs: list[str] | None
    gold: NDArray[Any]
    group: NDArray[np.int64]
    copied: NDArray[np.bool_]

    def take(self, rows: NDArray[np.int64]) -> "Split":
        """The examples at these places."""
        texts = [self.texts[row] for row in rows]
        pairs = None if self.pairs is None else [self.pairs[row] for row in rows]
        arrays = (self.gold[rows], self.group[rows], self.copied[rows])
        return Split(self.name, self.example[rows], texts, pairs, *arrays)


def read_splits(task: Artifact, *names: str) -> dict[str, Split]:
    """The named splits of a ``task`` artifact (of train, dev, test), each whole and in the order of its rows."""
    table = examples(task)
    split = np.array(table["split"].to_pylist(), dtype=object)
    copies = pq.ParquetFile(task.path("leaks.parquet")).read(["example"])["example"].to_numpy()
    found = {}
    for name in names:
        rows = np.flatnonzero(split == name)
        part = table.take(rows)
        pairs = part["text_pair"].to_pylist() if task.details["pair"] else None
        gold, copied = _gold(part, task.details), np.isin(rows, copies)
        found[name] = Split(name, rows.astype(np.int64), part["text"].to_pylist(), pairs, gold, groups_of(part), copied)
    return found


def _gold(part: Any, details: dict[str, Any]) -> NDArray[Any]:
    if details["problem"] == "regression":
        return np.asarray(part["target"].to_pylist(), dtype=np.float64)
    place = {label: index for index, label in enumerate(details["labels"])}
    return np.asarray([place[label] for label in part["label"].to_pylist()], dtype=np.int64)
