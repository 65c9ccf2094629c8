"""Splits for training, model selection (dev) and the final score (test), which keep dependent examples together."""

import hashlib
import itertools
import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tlm.data.reading.files import RawFile, some
from tlm.data.tasks.labelled import Example, twin_key
from tlm.errors import InputError
from tlm.progress import say

GROUP = "group"  # a column of a task with a group field


def groups_of(examples: pa.Table) -> NDArray[np.int64]:
    """Return the ordinal of each example's group, shape [n].

    Examples with the same value in the task's group field belong together; without such a field, those whose texts
    are equal, ignoring case, punctuation and the marks around spans.

    Args:
        examples: Rows of a task, with the columns text, text_pair and, if the task has it, group.
    """
    if GROUP in examples.column_names:
        names = examples[GROUP].to_pylist()
    else:
        names = list(map(twin_key, examples["text"].to_pylist(), examples["text_pair"].to_pylist()))
    return np.unique(np.array(names, dtype=object), return_inverse=True)[1].astype(np.int64)


def connected(twins: Sequence[str], groups: Sequence[str]) -> list[str]:
    """Return a name for each example, equal for examples that a chain of equal texts and equal groups connects.

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
    order = _in_random_order(drawn.members, seed)
    drawn.fill(order)
    if set(drawn.lacks) != set(drawn.chosen.values()):  # a split is empty
        drawn = _Draw(groups, labels, shares)
        drawn.begin(sorted(order, key=lambda group: drawn.members[group][None]))
        drawn.fill(order)
    drawn.complete(order)
    return [drawn.chosen.get(group, "train") for group in groups]


class _Draw:
    """The groups that are taken from train for other splits, and the examples that these splits still lack.

    All numbers are by label; None stands for examples of any label.
    """

    def __init__(self, groups: Sequence[str], labels: Sequence[str], shares: Mapping[str, float]) -> None:
        self.members: dict[str, Counter[str | None]] = defaultdict(Counter)
        for group, label in zip(groups, labels, strict=True):
            self.members[group].update((label, None))
        self.train = Counter[str | None]([*labels, *[None] * len(labels)])
        counts = self.train.items()
        self.lacks = {split: {key: share * count for key, count in counts} for split, share in shares.items()}
        self.chosen = dict[str, str]()

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
            if group not in self.chosen:  # groups of the same labels gain the same: only the first is tried
                alike[frozenset(self.members[group].items())].append((place, group))
        for split in self.lacks:
            while firsts := [some[0] for some in alike.values() if some and self._spared(some[0][1])]:
                _, best = max(firsts, key=lambda first: (self._gain(first[1], split), -first[0]))
                if self._gain(best, split) <= 0:
                    break
                alike[frozenset(self.members[best].items())].popleft()
                self._take(best, split)

    def _gain(self, group: str, split: str) -> float:
        """The gain of a split from a group: how much closer its shares come, in squares summed over the labels."""
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


SPLITS = ("train", "dev", "test")
LEAKS = pa.schema(
    [("example", "int64"), ("split", "string"), ("train", "int64"), ("same_label", "bool"), ("text", "string")]
)
WHOLE = "all"  # stands for a split where files are that have to be divided
_PART = re.compile(r"part[-_]\d.*|\d+")  # as Spark, pyarrow and the Hub call the files of a folder
NAMES = {"train": "train", "dev": "dev|valid|validation|val", "test": "test", WHOLE: WHOLE}


def split_files(path: str, files: Sequence[RawFile], names: Mapping[str, str] = NAMES) -> dict[str, list[RawFile]]:
    """Return the files of a task folder by split: ``train.csv``, ``test-00000-of-00002.parquet``, ``dev/part-0.csv``….

    Without dev and test files, files called ``all.csv``, ``all-2.csv``… are those to be divided; train files beside
    them stay in train. Other files are not used, and named where `names` are the usual ones; a split may have several
    numbered files in one folder. The name of a folder only counts if no file is called after the split. `names` are
    regular expressions for the file names of each split, without number and extensions.

    Raises:
        InputError: no train or test file; two different files for the same split.
    """
    found: dict[str, list[RawFile]] = {split: [] for split in SPLITS}
    for split, name in names.items():
        pattern = re.compile(rf"(?:{name})(?P<number>[-_.]\d[-_\w]*)?", re.IGNORECASE)
        matches = [(file, match) for file in files if (match := pattern.fullmatch(file.stem))]
        if not matches:
            matches = [(file, match) for file in files if (match := pattern.fullmatch(_of_folder(file)))]
            for file, _ in matches:  # ids begin with the name
                file.name = f"{split}/{file.name}"
        if split == WHOLE and (not matches or found["dev"] or found["test"]):
            continue
        found[split] = [file for file, _ in matches]
        folders = {(PurePosixPath(file.where).parent, file.format, file.compression) for file in found[split]}
        if len(matches) > 1 and not (len(folders) == 1 and all(match["number"] for _, match in matches)):
            first, second = found[split][:2]
            several = f"or several of one folder and format, called {split}-1, {split}-2 and so on"
            raise InputError(f"{path} has both {first.where} and {second.where}; expected one {split} file, {several}")
    for split in ("train", "test"):
        if not found[split] and WHOLE not in found:
            there = some([file.name for file in files])
            if any(file.name == "state.json" for file in files):
                raise InputError(f"{path} is what save_to_disk of datasets wrote; write each split with to_parquet")
            if names is not NAMES:
                raise InputError(f"{path} has no file for {split} among {there}; expected one called {names[split]}")
            raise InputError(
                f"{path} has no {split} file among {there}; expected train, dev and test (such as {split}.jsonl, or "
                f"{split}/part-0.parquet), or all.jsonl in place of dev and test, or the path of a file to be split"
            )
    used = {file.where for own in found.values() for file in own}
    if left := [file.name for file in files if file.where not in used and names is NAMES]:
        say(f"{path}: not in train, dev or test: {some(left)}")
    return found


def _of_folder(file: RawFile) -> str:
    """The split that the folder of a numbered file is called after (train, split=train), with a number; else ""."""
    folder = PurePosixPath(file.where).parent.name
    return f"{folder.partition('.')[0].rpartition('=')[2]}-0" if _PART.fullmatch(file.stem) else ""


def divided(examples: list[Example], shares: Mapping[str, float], seed: int, by_label: bool) -> list[Example]:
    """Assign splits to the examples of `WHOLE`, or else of train; return all in order train, dev, test.

    `shares` of them are drawn for dev and test, with `by_label` from each label; `seed` determines which. Equal texts
    stay together, and so do groups, if the task has them: those of `WHOLE` that train has, too, stay there. Of several
    labels of a text, the rarest one counts; what train would lack then stays in it.
    """
    source = WHOLE if any(example.split == WHOLE for example in examples) else "train"
    settled = [example for example in examples if example.split in ("dev", "test")]
    others = [example for example in examples if example.split not in ("dev", "test")]
    twins, groups = [example.twin for example in others], [example.group for example in others]
    named = [*zip(others, connected(twins, groups) if any(groups) else twins, strict=True)]
    kept = {name for example, name in named if example.split != source}
    settled += [replace(example, split="train") for example, name in named if name in kept]
    free = [example for example, name in named if name not in kept]
    names = [name for _, name in named if name not in kept]
    labels = _rarest(free) if by_label else [""] * len(free)
    choose = draw if any(groups) else assign
    drawn = choose(names, labels, shares, seed)
    if by_label:
        drawn = _with_every_label([example.labels for example in free], names, drawn)
    placed = [replace(example, split=split) for example, split in zip(free, drawn, strict=True)]
    return sorted(placed + settled, key=lambda example: SPLITS.index(example.split))


def _rarest(examples: Sequence[Example]) -> list[str]:
    """The label of each example that fewest examples have; "" for one without labels."""
    uses = Counter(label for example in examples for label in example.labels)
    return [min(example.labels, key=lambda label: (uses[label], label), default="") for example in examples]


def _with_every_label(labels: Sequence[Sequence[str]], groups: Sequence[str], drawn: Sequence[str]) -> list[str]:
    """Move a group to train for each label that train lacks: the first one by name that has the label."""
    homes: dict[str, str] = {}
    known: set[str] = set()
    for own, group, split in zip(labels, groups, drawn, strict=True):
        known.update(own if split == "train" else ())
        homes |= {label: min(group, homes.get(label, group)) for label in own}
    moved = {group for label, group in homes.items() if label not in known}
    return ["train" if group in moved else split for group, split in zip(groups, drawn, strict=True)]


def assign(groups: Sequence[str], labels: Sequence[str], shares: Mapping[str, float], seed: int) -> list[str]:
    """Draw a split for each example, with the shares of dev and test in each label as close to `shares` as possible.

    Examples of a group (such as the same text) stay together, and every label keeps at least one example in train.
    The result depends on groups, labels and seed only, not on their order.
    """
    members: dict[str, Counter[str]] = defaultdict(Counter)
    for group, label in zip(groups, labels, strict=True):
        members[group][label] += 1
    rooms, chosen = _rooms(Counter(labels), shares), dict[str, str]()
    for group in _in_random_order(members, seed):
        for split, room in rooms.items():
            if all(room[label] >= count for label, count in members[group].items()):
                room.subtract(members[group])
                chosen[group] = split
                break
    return [chosen.get(group, "train") for group in groups]


def find_leaks(splits: Sequence[str], labels: Sequence[Any], texts: Sequence[str], twins: Sequence[str]) -> pa.Table:
    """Return a row for each leak: a dev or test example with the same `twin_key` as a training example.

    `example` and `train` are the ordinals of the two (of the first training example, if there are several).

    Args:
        splits: The split of each example, shape [n]; likewise the others.
        labels: Their labels.
        texts: Their texts.
        twins: Their keys.
    """
    train = [ordinal for ordinal, split in enumerate(splits) if split == "train"]
    first = {twins[ordinal]: ordinal for ordinal in reversed(train)}
    leaks: list[dict[str, Any]] = []
    for ordinal, split in enumerate(splits):
        if split in ("dev", "test") and twins[ordinal] in first:
            twin = first[twins[ordinal]]
            same = {"same_label": labels[ordinal] == labels[twin], "text": texts[ordinal]}
            leaks.append({"example": ordinal, "split": split, "train": twin, **same})
    return pa.Table.from_pylist(leaks, LEAKS)


def _rooms(totals: Mapping[str, int], shares: Mapping[str, float]) -> dict[str, Counter[str]]:
    """Return how many examples of each label a held-out split may take so that one is left for train."""
    rooms, left = {}, Counter({label: total - 1 for label, total in totals.items()})
    for split, share in shares.items():
        rooms[split] = Counter({label: min(left[label], int(share * total + 0.5)) for label, total in totals.items()})
        left.subtract(rooms[split])
    return rooms


def _in_random_order(groups: Iterable[str], seed: int) -> list[str]:
    """Return the groups in an order that depends on them and on the seed only."""
    return sorted(groups, key=lambda group: hashlib.sha256(f"{seed}\0{group}".encode()).digest())
