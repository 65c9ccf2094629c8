"""A task as the model reads it: texts as token ids, labels as numbers, the rows of each split."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tlm.artifacts.artifact import Artifact
from tlm.data.tasks.task import examples
from tlm.errors import InputError
from tlm.training.input.texts import Texts


@dataclass(frozen=True)
class Examples:
    """All examples of a task; `labels` are class ordinals (int64) or targets (float32), by row."""

    texts: Texts
    labels: NDArray[Any]
    split: NDArray[np.object_]
    classes: list[str] | None

    def rows(self, name: str) -> NDArray[np.int64]:
        """The rows of a split. Raises InputError if it has none."""
        found = np.flatnonzero(self.split == name)
        if len(found) == 0:
            raise InputError(f"the task has no {name} examples; give load-task such a file or share")
        return found

    @classmethod
    def open(cls, task: Artifact, tokens: Artifact, max_length: int) -> "Examples":
        """Those of a `task` artifact, with the `tokens` artifact made of it."""
        table = examples(task)
        classes = None if task.details["problem"] == "regression" else list(task.details["labels"])
        if classes is None:
            labels = np.array(table["target"].to_pylist(), dtype=np.float32)
        else:
            place = {label: index for index, label in enumerate(classes)}
            labels = np.array([place[label] for label in table["label"].to_pylist()], dtype=np.int64)
        split = np.array(table["split"].to_pylist(), dtype=object)
        return cls(Texts.open(tokens, max_length), labels, split, classes)
