"""Which examples are for training, for choosing (dev), for the final score (test): by file name, or by a seed."""

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from tlm.data.reading.files import RawFile
from tlm.errors import InputError

SPLITS = ("train", "dev", "test")
NAMES = {"train": "train", "dev": "dev|valid|validation|val", "test": "test"}


def split_files(path: str, files: Sequence[RawFile], names: Mapping[str, str] = NAMES) -> dict[str, list[RawFile]]:
    """The files of a task folder by split: ``train.csv``, ``valid.jsonl.gz``, ``test-00000-of-00002.parquet``….

    Files of other names are passed over; a split in several files has numbered ones, side by side. `names` are the
    names of each split's files, without number and extensions, as a regular expression.

    Raises:
        InputError: no train or test file; two files that claim to be the same split.
    """
    found: dict[str, list[RawFile]] = {split: [] for split in SPLITS}
    for split, name in names.items():
        found[split] = claimed = [file for file in files if _matched(file, name)]
        if len(claimed) > 1 and not _one_series(claimed, name):
            raise InputError(f"{path} has both {claimed[0].where} and {claimed[1].where}; expected one {split} file")
    for split in ("train", "test"):
        if not found[split]:
            there = ", ".join(file.name for file in files[:5])
            raise InputError(
                f"{path} has no {split} file among {there}; expected train, dev and test (say {split}.jsonl), "
                "or give one file's path to have it split"
                if names is NAMES
                else f"{path} has no file for {split} among {there}; expected one called {names[split]}"
            )
    return found


def assign(groups: Sequence[str], labels: Sequence[str], shares: Mapping[str, float], seed: int) -> list[str]:
    """A split for each example, drawn by `seed`, with each label's share in dev and test as near to `shares` as can be.

    Examples of one group (the same text, say) stay together, and every label keeps at least one example in train.
    What is drawn depends on groups, labels and seed alone, not on their order.
    """
    members: dict[str, Counter[str]] = defaultdict(Counter)
    for group, label in zip(groups, labels, strict=True):
        members[group][label] += 1
    rooms = {label: _rooms(total, shares) for label, total in Counter(labels).items()}
    chosen: dict[str, str] = {}
    for group in sorted(members, key=lambda group: _draw(group, seed)):
        for split in shares:
            if all(rooms[label][split] >= count for label, count in members[group].items()):
                for label, count in members[group].items():
                    rooms[label][split] -= count
                chosen[group] = split
                break
    return [chosen.get(group, "train") for group in groups]


def _rooms(total: int, shares: Mapping[str, float]) -> dict[str, int]:
    """How many of a label's `total` examples each held-out split may take, so that one is left."""
    rooms, left = {}, total - 1
    for split, share in shares.items():
        rooms[split] = min(left, int(share * total + 0.5))
        left -= rooms[split]
    return rooms


def _draw(group: str, seed: int) -> bytes:
    return hashlib.sha256(f"{seed}\0{group}".encode()).digest()


def _matched(file: RawFile, name: str) -> re.Match[str] | None:
    return re.fullmatch(rf"(?:{name})(?P<number>[-_.]\d[-_\w]*)?", file.stem, re.IGNORECASE)


def _one_series(files: Sequence[RawFile], name: str) -> bool:
    """Whether files are numbered parts of one: in one folder, of one format, each with a number."""
    places = {(PurePosixPath(file.where).parent, file.format, file.compression) for file in files}
    return len(places) == 1 and all((match := _matched(file, name)) and match["number"] for file in files)
