"""The task of the demo: which kind of service does an operation belong to? Twenty labelled texts of each kind.

The text is the documentation of an operation. Services of one family (the name up to the first hyphen, without its
version: ``timestream``, ``inspector``) are in the same split, so dev and test are about services that train does not
know: their words have to be known from elsewhere.
"""

import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import cache
from importlib.resources import files

from demo.example import SPLITS, Example, hashed
from demo.services import Service
from tlm.data.text import tokens

NAME = "service-kinds"
QUESTION = "which kind of service does an operation belong to?"
TEST_SHARE, DEV_SHARE = 0.4, 0.25  # of the families of each kind
LABELLED = 20  # texts of each kind in train
MOST_OF_SERVICE = {"train": 4, "dev": 8, "test": 8}  # texts
MAX_WORDS, MIN_WORDS = 60, 20


@cache
def kinds() -> dict[str, list[str]]:
    """The services of each kind."""
    named = tomllib.loads(files("demo").joinpath("kinds.toml").read_text(encoding="utf-8"))
    return {kind: names.split() for kind, names in named.items()}


def labels() -> tuple[str, ...]:
    """The kinds."""
    return tuple(kinds())


def family(service: str) -> str:
    """The name up to the first hyphen, without a version."""
    return re.sub(r"v?\d+$", "", service.partition("-")[0])


@cache
def _splits() -> dict[str, str]:
    """The split of each family that has a kind: of each kind, the first families by hash are test, then dev."""
    found = {}
    for names in kinds().values():
        families = sorted({family(name) for name in names}, key=lambda one: hashed(f"aws:{one}"))
        for place, one in enumerate(families):
            share = place / len(families)
            found[one] = "test" if share < TEST_SHARE else "dev" if share < TEST_SHARE + DEV_SHARE else "train"
    return found


def split_of(service: str) -> str:
    """The split of a service; those without a kind are in train, as text only."""
    return _splits().get(family(service), "train")


def examples(services: Iterable[Service]) -> tuple[dict[str, list[Example]], dict[str, int]]:
    """Return the rows of the task by split, and the number of operations that were left out by reason.

    Each text occurs once. One that services of several kinds have ("Lists the tags of a resource.") is left out.
    """
    of_service = {name: kind for kind, names in kinds().items() for name in names}
    of_text: dict[str, list[Example]] = defaultdict(list)  # by its words
    left_out = {"no text": 0, "labels differ": 0, "same text": 0, "more than needed": 0}
    for service in services:
        for operation, documentation in service.operations.items() if service.name in of_service else ():
            text = " ".join(documentation.split()[:MAX_WORDS])
            if len(text.split()) < MIN_WORDS:
                left_out["no text"] += 1
            else:
                row = Example(f"{service.name}/{operation}", text, of_service[service.name], service.name)
                of_text[" ".join(tokens(text))].append(row)
    found: dict[str, list[Example]] = {split: [] for split in SPLITS}
    for same in of_text.values():
        if len({row.label for row in same}) > 1:
            left_out["labels differ"] += len(same)
        else:
            left_out["same text"] += len(same) - 1
            found[split_of(same[0].service)].append(same[0])
    rows = {split: _first(own, "service", MOST_OF_SERVICE[split]) for split, own in found.items()}
    rows["train"] = _first(rows["train"], "label", LABELLED)
    left_out["more than needed"] = sum(len(found[split]) - len(rows[split]) for split in SPLITS)
    return rows, left_out


def _first(rows: list[Example], field: str, most: int) -> list[Example]:
    """So many rows, by hash, of each value of a field; by id."""
    count: Counter[str] = Counter()
    kept = []
    for row in sorted(rows, key=lambda row: hashed(row.id)):
        count[getattr(row, field)] += 1
        kept += [row] * (count[getattr(row, field)] <= most)
    return sorted(kept, key=lambda row: row.id)
