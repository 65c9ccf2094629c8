"""What changed between two versions of a task: texts that came, went or have another label, and the labels themselves.

Texts are compared as they are, both texts of a pair together. A text that occurs several times in a split counts as
often, and its labels are compared without regard to their order.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tlm.artifacts.artifact import Artifact
from tlm.data.tasks.examples import examples
from tlm.data.tasks.labelled import UNLABELLED
from tlm.data.tasks.metrics import Split
from tlm.data.tasks.splits import SPLITS

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
