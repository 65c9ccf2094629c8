"""The texts of a subset or a task as token ids, memory-mapped from a `tokens` artifact; with the labels of a task."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tlm.artifacts.artifact import Artifact
from tlm.data.marks import Marks, listed_marks
from tlm.data.ranges import HEAD, Ints, longest_first, ranges, skipped
from tlm.data.tasks.examples import SEVERAL, classes_of, examples, values_of
from tlm.data.tasks.labelled import UNLABELLED


@dataclass(frozen=True)
class Special:
    """Ids of the special tokens.

    Attributes:
        between: How many separators stand between the two texts of a pair; RoBERTa has 2.
    """

    pad: int
    unk: int
    cls: int
    sep: int
    mask: int
    between: int = 1

    @classmethod
    def of(cls, tokenizer: Artifact) -> "Special":
        """The special tokens of a `tokenizer` artifact."""
        ids = {role: int(tokenizer.details[f"{role}_id"]) for role in ("pad", "unk", "cls", "sep", "mask")}
        return cls(**ids, between=int(tokenizer.details.get("between", 1)))

    @property
    def ids(self) -> list[int]:
        """The ids of all special tokens."""
        return [self.pad, self.unk, self.cls, self.sep, self.mask]


class Ragged:
    """n rows of different lengths in one array: row i is ``ids[offsets[i] : offsets[i + 1]]``."""

    def __init__(self, ids: NDArray[Any], offsets: Ints) -> None:
        self.ids, self.offsets = ids, offsets

    @classmethod
    def open(cls, tokens: Artifact, prefix: str = "") -> "Ragged":
        """Map the ids of a `tokens` artifact into memory; `prefix` is ``pair_`` for second texts."""
        ids, offsets = (
            np.load(tokens.path(f"{prefix}{name}.npy"), mmap_mode="r", allow_pickle=False)
            for name in ("ids", "offsets")
        )
        return cls(ids, offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def lengths_of(self, rows: Ints) -> Ints:
        """The lengths of `rows`."""
        return np.asarray(self.offsets[rows + 1] - self.offsets[rows])

    def copy_to(self, target: Ints, rows: Ints, counts: Ints, at: Ints, cut: str = HEAD) -> None:
        """Write what `take` gives of each row into ``target[i]``, from column ``at[i]`` on."""
        line = np.repeat(np.arange(len(rows)), counts)
        target[line, ranges(at, counts)] = self.take(rows, counts, cut)

    def take(self, rows: Ints, counts: Ints, cut: str = HEAD) -> Ints:
        """The ``counts[i]`` ids that `cut` keeps of each row, one row after the other."""
        left_out = skipped(counts, self.lengths_of(rows), cut)
        return np.asarray(self.ids[ranges(self.offsets[rows], counts) + left_out])


class Texts:
    """n texts, or n pairs of texts, and how they are cut: as `transformers` does, the longer text of a pair first.

    Attributes:
        lengths: Tokens of each text or pair as the model reads it: cut, with special tokens, [n].
    """

    def __init__(
        self, first: Ragged, second: Ragged | None, max_length: int, special: Special, cut: str = HEAD
    ) -> None:
        self.first, self.second, self.max_length, self.special, self.cut = first, second, max_length, special, cut
        a, b = self.kept(np.arange(len(first)))
        self.lengths: NDArray[np.int32] = (a + b + self._added).astype(np.int32)

    @classmethod
    def open(cls, tokens: Artifact, max_length: int, cut: str = HEAD) -> "Texts":
        """The texts of a `tokens` artifact."""
        second = Ragged.open(tokens, "pair_") if tokens.details["pair"] else None
        return cls(Ragged.open(tokens), second, max_length, Special.of(tokens.input("tokenizer")), cut)

    def __len__(self) -> int:
        return len(self.lengths)

    def kept(self, rows: Ints) -> tuple[Ints, Ints]:
        """Return the numbers of tokens of the first and the second text of `rows` that are kept."""
        room, first = self.max_length - self._added, self.first.lengths_of(rows)
        second = np.zeros_like(first) if self.second is None else self.second.lengths_of(rows)
        return longest_first(first, second, room)

    @property
    def _added(self) -> int:
        """Special tokens in each text or pair."""
        return 2 if self.second is None else 2 + self.special.between


class Scale(NamedTuple):
    """Mean and deviation to standardise the targets of a regression by: networks learn numbers near 0 best.

    Attributes:
        mean: Mean of the targets of train, in the task's unit.
        deviation: Their standard deviation; 1 where they are all equal.
    """

    mean: float
    deviation: float

    @classmethod
    def of(cls, targets: NDArray[Any]) -> "Scale":
        """The scale of the targets of train, shape [n]; there may be none."""
        if not len(targets) or np.ptp(targets) == 0:
            return cls(float(targets[0]) if len(targets) else 0.0, 1.0)
        return cls(float(targets.mean()), float(targets.std()))

    def standardised(self, numbers: NDArray[Any]) -> NDArray[np.float32]:
        """Numbers in the task's unit as the network learns them, shape [n]."""
        return ((numbers - np.float64(self.mean)) / self.deviation).astype(np.float32)


@dataclass(frozen=True)
class Examples:
    """All n examples of a task.

    Attributes:
        texts: Their texts.
        labels: The index of each one's class (int64), or its standardised target (float32); -1 or nan without a
            label, [n]. Of several labels 0 or 1 (float32), [n, labels].
        split: The name of each one's split, [n].
        classes: The names of the classes, in order; None for regression.
        marks: The marks around the spans that the texts begin with; () if texts are as they were loaded.
        scale: What targets are standardised by, so that a network learns them whatever their unit; None for classes.
    """

    texts: Texts
    labels: NDArray[Any]
    split: NDArray[np.object_]
    classes: list[str] | None
    marks: Marks = ()
    scale: Scale | None = None

    def rows(self, name: str) -> NDArray[np.int64]:
        """The rows of the split `name`."""
        return np.flatnonzero(self.split == name)

    @property
    def several(self) -> bool:
        """Whether a text may have several labels."""
        return self.labels.ndim == 2

    def without_label(self) -> NDArray[np.int64]:
        """The rows of texts without a label; there may be none."""
        return np.flatnonzero(self.split == UNLABELLED)

    @classmethod
    def open(cls, task: Artifact, tokens: Artifact, max_length: int, cut: str = HEAD) -> "Examples":
        """The examples of a `task` artifact, with the `tokens` artifact made from it."""
        table = examples(task)
        classes, scale = classes_of(task), None
        split = np.array(table["split"].to_pylist(), dtype=object)
        labels = values_of(table["target" if classes is None else "label"], classes)
        if classes is None:
            scale = Scale.of(labels[split == "train"])
            labels = scale.standardised(labels)
        elif task.details["problem"] == SEVERAL:
            labels = labels.astype(np.float32)
        marks = listed_marks(tokens.details.get("marks", ()))
        return cls(Texts.open(tokens, max_length, cut), labels, split, classes, marks, scale)
