"""Groups of dependent examples: the same text with different spans marked, the same author, the same service."""

import hashlib
import itertools
from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tlm.data.tasks.labelled import twin_key

COLUMN = "group"


def groups_of(examples: pa.Table) -> NDArray[np.int64]:
    """Return the ordinal of each example's group, shape [n].

    Examples with the same value in the task's group field belong together; without such a field, those whose texts
    are equal, ignoring case, punctuation and the marks around spans.

    Args:
        examples: Rows of a task, with the columns text, text_pair and, if the task has it, group.
    """
    if COLUMN in examples.column_names:
        names = examples[COLUMN].to_pylist()
    else:
        texts, pairs = examples["text"].to_pylist(), examples["text_pair"].to_pylist()
        names = list(map(twin_key, texts, pairs))
    return np.unique(np.array(names, dtype=object), return_inverse=True)[1].astype(np.int64)


def connected(twins: Sequence[str], groups: Sequence[str]) -> list[str]:
    """Return a name for each example, equal for those that a chain of equal texts and equal groups connects.

    It is that of the first of their groups in alphabetical order, and so does not depend on the order of examples.

    Args:
        twins: Keys of the examples' texts, equal for texts that count as equal; shape [n].
        groups: Values of their group field; shape [n].
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    count = len(groups)
    texts, own = (np.unique(np.array(names, dtype=object), return_inverse=True)[1] for names in (twins, groups))
    edges = coo_array((np.ones(count, np.int8), (texts, count + own)), shape=(2 * count, 2 * count))
    parts = connected_components(edges, directed=False)[1][texts].tolist()
    names = dict(sorted(zip(parts, groups, strict=True), reverse=True))  # of equal keys, the last one stays
    return [names[part] for part in parts]


def divided_groups(splits: Sequence[str], groups: Sequence[str]) -> set[str]:
    """Return the groups that are in more than one split, of each example's split and group."""
    uses = Counter(group for group, _ in set(zip(groups, splits, strict=True)))
    return {group for group, count in uses.items() if count > 1}


def draw(groups: Sequence[str], labels: Sequence[str], shares: Mapping[str, float], seed: int) -> list[str]:
    """Draw a split for each example so that no group is divided and train keeps every label; shape [n].

    Groups are taken in random order as long as they fit, then others if that brings the sizes of a split and of its
    labels closer to `shares`, by their squared differences. Where none fits into one of the splits, each begins with
    one of the smallest groups, so that it is empty only if it would be with any choice of groups. The result depends
    on groups, labels and seed only, not on the order of examples.

    Args:
        groups: The group of each example; shape [n].
        labels: Their labels.
        shares: The share of the examples that each held-out split is to have.
        seed: Seed of the random order.
    """
    drawn = _Draw(groups, labels, shares)
    order = sorted(drawn.members, key=lambda group: hashlib.sha256(f"{seed}\0{group}".encode()).digest())
    drawn.fill(order)
    if not drawn.every_split():
        drawn = _Draw(groups, labels, shares)
        drawn.begin(sorted(order, key=lambda group: drawn.members[group][None]))
        drawn.fill(order)
    drawn.complete(order)
    return [drawn.chosen.get(group, "train") for group in groups]


class _Draw:
    """Which groups were taken from train for other splits, and what these still lack.

    All numbers are by label; None stands for examples of any label.
    """

    def __init__(self, groups: Sequence[str], labels: Sequence[str], shares: Mapping[str, float]) -> None:
        self.members: dict[str, Counter[str | None]] = defaultdict(Counter)
        for group, label in zip(groups, labels, strict=True):
            self.members[group].update((label, None))
        self.train = Counter[str | None]([*labels, *[None] * len(labels)])
        self.lacks = {
            split: {key: share * count for key, count in self.train.items()} for split, share in shares.items()
        }
        self.chosen = dict[str, str]()

    def every_split(self) -> bool:
        """Whether every split has a group."""
        return set(self.lacks) == set(self.chosen.values())

    def begin(self, order: Sequence[str]) -> None:
        """Take the first groups, one for each split, that train can spare together."""
        spared = [group for group in order if self._spared(group)]
        for groups in itertools.permutations(spared, len(self.lacks)):
            if self._spared(*groups):
                for group, split in zip(groups, self.lacks, strict=True):
                    self._take(group, split)
                return

    def fill(self, order: Sequence[str]) -> None:
        """Take groups in this order that fit into a split and bring it closer to its share."""
        for group in order:
            for split, lacks in self.lacks.items():
                fits = self.members[group][None] <= lacks[None] + 0.5
                if fits and group not in self.chosen and self._gain(group, split) > 0 and self._spared(group):
                    self._take(group, split)
                    break

    def complete(self, order: Sequence[str]) -> None:
        """Take groups that bring a split closer to its share, the best first."""
        alike: dict[frozenset[tuple[str | None, int]], deque[tuple[int, str]]] = defaultdict(deque)
        for place, group in enumerate(order):
            if group not in self.chosen:  # groups of the same labels gain the same: of these only the first is tried
                alike[frozenset(self.members[group].items())].append((place, group))
        for split in self.lacks:
            while firsts := [some[0] for some in alike.values() if some and self._spared(some[0][1])]:
                _, best = max(firsts, key=lambda first: (self._gain(first[1], split), -first[0]))
                if self._gain(best, split) <= 0:
                    break
                alike[frozenset(self.members[best].items())].popleft()
                self._take(best, split)

    def _gain(self, group: str, split: str) -> float:
        """How much closer a group brings a split to its shares, in squares summed over the labels."""
        lacks = self.lacks[split]
        return sum(count * (2 * lacks[label] - count) for label, count in self.members[group].items())

    def _spared(self, *groups: str) -> bool:
        """Whether train keeps every label without these groups."""
        taken = sum((self.members[group] for group in groups), Counter[str | None]())
        return all(self.train[label] > count for label, count in taken.items())

    def _take(self, group: str, split: str) -> None:
        self.chosen[group] = split
        self.train.subtract(self.members[group])
        for label, count in self.members[group].items():
            self.lacks[split][label] -= count
