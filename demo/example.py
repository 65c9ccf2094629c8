"""Splits and rows that the tasks of the demo have in common."""

import hashlib
from dataclasses import dataclass

SPLITS = ("train", "dev", "test")


@dataclass(frozen=True)
class Example:
    """A row of a task."""

    id: str  # ``<service>/<name>``
    text: str
    label: str
    service: str  # the group: all texts of a service are in the same style


def hashed(name: str) -> float:
    """A number in [0, 1) that depends on `name` only."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8]) / 2**64
