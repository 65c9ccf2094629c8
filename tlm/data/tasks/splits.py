"""Splits for training, model selection (dev) and the final score (test): by file name, or drawn with a seed."""

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

import pyarrow as pa

from tlm.data.reading.files import RawFile
from tlm.data.tasks.groups import connected, draw
from tlm.data.tasks.labelled import Example
from tlm.errors import InputError

SPLITS = ("train", "dev", "test")
LEAKS = pa.schema(
    [("example", "int64"), ("split", "string"), ("train", "int64"), ("same_label", "bool"), ("text", "string")]
)
NAMES = {"train": "train", "dev": "dev|valid|validation|val", "test": "test"}


def split_files(path: str, files: Sequence[RawFile], names: Mapping[str, str] = NAMES) -> dict[str, list[RawFile]]:
    """Return the files of a task folder by split: ``train.csv``, ``valid.jsonl.gz``, ``test-00000-of-00002.parquet``….

    Other files are ignored; a split may have several numbered files in one folder. `names` are regular expressions
    for the file names of each split, without number and extensions.

    Raises:
        InputError: no train or test file; two different files for the same split.
    """
    found: dict[str, list[RawFile]] = {split: [] for split in SPLITS}
    for split, name in names.items():
        pattern = re.compile(rf"(?:{name})(?P<number>[-_.]\d[-_\w]*)?", re.IGNORECASE)
        matches = [(file, match) for file in files if (match := pattern.fullmatch(file.stem))]
        found[split] = [file for file, _ in matches]
        folders = {(PurePosixPath(file.where).parent, file.format, file.compression) for file in found[split]}
        if len(matches) > 1 and not (len(folders) == 1 and all(match["number"] for _, match in matches)):
            first, second = found[split][:2]
            raise InputError(f"{path} has both {first.where} and {second.where}; expected one {split} file")
    for split in ("train", "test"):
        if not found[split]:
            there = ", ".join(file.name for file in files[:5])
            raise InputError(
                f"{path} has no {split} file among {there}; expected train, dev and test (such as {split}.jsonl), "
                "or the path of a single file to be split"
                if names is NAMES
                else f"{path} has no file for {split} among {there}; expected one called {names[split]}"
            )
    return found


def divided(examples: list[Example], shares: Mapping[str, float], seed: int, by_label: bool) -> list[Example]:
    """Assign splits to the examples that are not in dev or test; return all in order train, dev, test.

    `shares` of them are drawn for dev and test, with `by_label` from each label; `seed` determines which. Equal texts
    stay together, and so do groups, if the task has them.
    """
    settled = [example for example in examples if example.split in ("dev", "test")]
    free = [example for example in examples if example.split not in ("dev", "test")]
    twins, labels = [example.twin for example in free], [example.label if by_label else "" for example in free]
    groups = [example.group for example in free]
    drawn = draw(connected(twins, groups), labels, shares, seed) if any(groups) else assign(twins, labels, shares, seed)
    found = [replace(example, split=split) for example, split in zip(free, drawn, strict=True)] + settled
    return sorted(found, key=lambda example: SPLITS.index(example.split))


def assign(groups: Sequence[str], labels: Sequence[str], shares: Mapping[str, float], seed: int) -> list[str]:
    """Draw a split for each example, with the shares of dev and test in each label as close to `shares` as possible.

    Examples of a group (such as the same text) stay together, and every label keeps at least one example in train.
    The result depends on groups, labels and seed only, not on their order.
    """
    members: dict[str, Counter[str]] = defaultdict(Counter)
    for group, label in zip(groups, labels, strict=True):
        members[group][label] += 1
    capacity = {label: _capacity(total, shares) for label, total in Counter(labels).items()}
    chosen: dict[str, str] = {}
    for group in sorted(members, key=lambda group: hashlib.sha256(f"{seed}\0{group}".encode()).digest()):
        for split in shares:
            if all(capacity[label][split] >= count for label, count in members[group].items()):
                for label, count in members[group].items():
                    capacity[label][split] -= count
                chosen[group] = split
                break
    return [chosen.get(group, "train") for group in groups]


def find_leaks(splits: Sequence[str], labels: Sequence[str], texts: Sequence[str], twins: Sequence[str]) -> pa.Table:
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
    leaks = []
    for ordinal, split in enumerate(splits):
        if split in ("dev", "test") and twins[ordinal] in first:
            twin = first[twins[ordinal]]
            leaks.append((ordinal, split, twin, labels[ordinal] == labels[twin], texts[ordinal]))
    return pa.table(list(zip(*leaks, strict=True)) or [()] * len(LEAKS), schema=LEAKS)


def _capacity(total: int, shares: Mapping[str, float]) -> dict[str, int]:
    """Return how many of a label's `total` examples each held-out split may take so that one is left for train."""
    capacity, left = {}, total - 1
    for split, share in shares.items():
        capacity[split] = min(left, int(share * total + 0.5))
        left -= capacity[split]
    return capacity
