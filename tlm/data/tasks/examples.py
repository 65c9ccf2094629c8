"""Examples of a task: read from its artifact, as rows or as arrays, split by split; and compared with another version.

Texts are compared as they are, both texts of a pair together. A text that occurs several times in a split counts as
often, and its labels are compared without regard to their order.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tlm.artifacts.artifact import Artifact
from tlm.data.tasks.labelled import UNLABELLED, twin_key
from tlm.data.tasks.metrics import Split
from tlm.data.tasks.splits import GROUP, SPLITS, groups_of
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
    """Ordinals of the labels in a column (int64; -1 for null), or its floats (nan for null) without labels; shape [n].

    Of lists of labels, a 0/1 matrix (int64), shape [n, labels].
    """
    if labels is None:
        return column.to_numpy()  # type: ignore[no-any-return]
    if pa.types.is_list(column.type):
        places, found = {label: place for place, label in enumerate(labels)}, np.zeros((len(column), len(labels)), int)
        for row, own in enumerate(column.to_pylist()):
            found[row, [places[label] for label in own or ()]] = 1
        return found
    ordinals = pc.index_in(column, pa.array(labels, pa.string())).fill_null(-1)
    return ordinals.to_numpy().astype(np.int64)  # type: ignore[no-any-return]


def texts_in(task: Artifact, *splits: str) -> list[str]:
    """The texts of some splits of a task, with `UNLABELLED` those without a label: all first ones, then second ones."""
    table = examples(task)
    chosen = table.filter(pc.is_in(table["split"], pa.array(splits)))
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


Key = tuple[str, str | None]  # the text, and the second one of a pair
Texts = dict[Key, Counter[Any]]  # how often each has which label


def changes(before: Artifact, now: Artifact) -> dict[str, Any]:
    """Compare two versions of a task.

    Returns:
        ``splits``: for each its name, the number of texts ``before`` and ``now``, and how many were ``added``
        (``moved``: of these, how many were in another split), ``removed`` and ``relabelled``. ``came`` and ``went``:
        the labels of only one version, with their number of texts. ``shared``: how many texts both have, in any split.
    """
    old, new = _by_split(before), _by_split(now)
    names = [name for name in (*SPLITS, UNLABELLED) if name in old or name in new]
    return {
        "splits": [_of_split(name, old, new) for name in names],
        "came": _labels_of_one(now, before),
        "went": _labels_of_one(before, now),
        "shared": len(set().union(*old.values()) & set().union(*new.values())),
    }


def in_both(before: Split, now: Split) -> NDArray[np.int64]:
    """The rows of `now` whose text `before` has too, each with the row where `before` has it first; shape [n, 2]."""
    first = {text: row for row, text in reversed([*enumerate(texts_of(before))])}
    return np.array([(row, first[key]) for row, key in enumerate(texts_of(now)) if key in first], int).reshape(-1, 2)


def texts_of(split: Split) -> Iterator[Key]:
    """The texts of a split, each with its second one or None."""
    yield from zip(split.texts, split.pairs or repeat(None))  # noqa: B905, a repetition has no length


def twins_of(splits: Iterable[Split]) -> set[str]:
    """The `twin_key` of every text, or pair of texts, of some splits."""
    return {twin_key(*text) for split in splits for text in texts_of(split)}


def _by_split(task: Artifact) -> dict[str, Texts]:
    table, found = examples(task), dict[str, Texts]()
    columns = (table[name].to_pylist() for name in ("split", "text", "text_pair", "label", "target"))
    for split, text, pair, label, target in zip(*columns, strict=True):
        value = target if label is None else label if isinstance(label, str) else tuple(sorted(label))
        found.setdefault(split, {}).setdefault((text, pair), Counter())[value] += 1
    return found


def _labels_of_one(task: Artifact, other: Artifact) -> dict[str, int]:
    """The labels that only `task` has, with their number of texts."""
    uses = task.counts.get("labels", {})
    return {label: uses.get(label, 0) for label in task.details["labels"] if label not in other.details["labels"]}


def _of_split(name: str, before: dict[str, Texts], now: dict[str, Texts]) -> dict[str, Any]:
    old, new = before.get(name, {}), now.get(name, {})
    elsewhere = set().union(*(texts for other, texts in before.items() if other != name))
    found = Counter[str](added=0, moved=0, removed=0, relabelled=0)
    for text in old.keys() | new.keys():
        was, has = (texts.get(text, Counter[Any]()) for texts in (old, new))
        went, came = (was - has).total(), (has - was).total()
        found["relabelled"] += min(went, came)
        found["removed"] += max(0, went - came)
        found["added"] += max(0, came - went)
        found["moved"] += max(0, came - went) if text in elsewhere else 0
    was_all, has_all = (sum(labels.total() for labels in texts.values()) for texts in (old, new))
    return {"split": name, "before": was_all, "now": has_all, **found}
