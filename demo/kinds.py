"""The task of the demo: which kind of service does an operation belong to? Twenty labelled texts of each kind.

The text is the documentation of an operation. Services of one family (the name up to the first hyphen, without its
version: ``timestream``, ``inspector``) are in the same split, so dev and test are about services that train does not
know: their words have to be known from elsewhere.
"""

import re
import tomllib
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from importlib.resources import files

from demo.example import SPLITS, Example, hashed
from demo.services import Service
from tlm.data.text import tokens

NAME = "service-kinds"
QUESTION = "which kind of service does an operation belong to?"
TEST_SHARE, DEV_SHARE = 0.4, 0.2  # of the families of each kind
LABELLED = 20  # texts of each kind in train, and in dev
MOST_OF_SERVICE = 30  # operations of a service in test
MAX_WORDS, MIN_WORDS = 60, 12


@cache
def kinds() -> dict[str, list[str]]:
    """The services of each kind."""
    return tomllib.loads(files("demo").joinpath("kinds.toml").read_text(encoding="utf-8"))


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
        families = sorted({family(name) for name in names}, key=hashed)
        for place, one in enumerate(families):
            share = place / len(families)
            found[one] = "test" if share < TEST_SHARE else "dev" if share < TEST_SHARE + DEV_SHARE else "train"
    return found


def split_of(service: str) -> str:
    """The split of a service; those without a kind are in train, as text only."""
    return _splits().get(family(service), "train")


def examples(services: Iterable[Service]) -> tuple[dict[str, list[Example]], dict[str, int]]:
    """Return the rows of the task by split, and the number of operations that were left out by reason.

    Each text occurs once. Train and dev have `LABELLED` texts of each kind, test `MOST_OF_SERVICE` of a service.
    """
    of_service = {name: kind for kind, names in kinds().items() for name in names}
    found: dict[tuple[str, str], list[Example]] = defaultdict(list)
    left_out, seen = {"no text": 0, "same text": 0, "more than needed": 0}, set[str]()
    for service in services:
        if service.name not in of_service:
            continue
        own = []
        for operation, documentation in service.operations.items():
            text = " ".join(documentation.split()[:MAX_WORDS])
            words = " ".join(tokens(text))
            if len(text.split()) < MIN_WORDS:
                left_out["no text"] += 1
            elif words in seen:
                left_out["same text"] += 1
            else:
                seen.add(words)
                own.append(Example(f"{service.name}/{operation}", text, of_service[service.name], service.name))
        kept = sorted(own, key=lambda row: hashed(row.id))[:MOST_OF_SERVICE]
        left_out["more than needed"] += len(own) - len(kept)
        found[split_of(service.name), of_service[service.name]] += kept
    rows: dict[str, list[Example]] = {split: [] for split in SPLITS}
    for (split, _), own in found.items():
        kept = own if split == "test" else sorted(own, key=lambda row: hashed(row.id))[:LABELLED]
        left_out["more than needed"] += len(own) - len(kept)
        rows[split] += kept
    return {split: sorted(own, key=lambda row: row.id) for split, own in rows.items()}, left_out
