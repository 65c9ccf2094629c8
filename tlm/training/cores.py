"""How many CPU cores this process may use: a container's share, not all that its node has."""

import math
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath


def cores(root: Path = Path("/")) -> int:
    """The smaller of the cores it may run on and its control groups' CPU limit, rounded up; at least 1.

    Args:
        root: Where ``proc`` and ``sys`` are.
    """
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([allowed, *(math.ceil(limit) for limit in _limits(root))]))


def _limits(root: Path) -> Iterator[float]:
    """The limits, in cores, of this process's control groups and of all above them (versions 1 and 2)."""
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        for group in _upwards(path):
            if not controllers:  # version 2 has one tree for all
                yield from _ratio(_words(root / "sys/fs/cgroup" / group / "cpu.max"))
            elif "cpu" in controllers.split(","):
                folder = root / "sys/fs/cgroup/cpu" / group
                yield from _ratio(_words(folder / "cpu.cfs_quota_us") + _words(folder / "cpu.cfs_period_us"))


def _upwards(path: str) -> Iterator[PurePosixPath]:
    """The group and those above it, up to the root: in a container only the last may be there, and it is its own."""
    group = PurePosixPath(path.strip("/"))
    yield from (group, *group.parents)


def _ratio(words: list[str]) -> Iterator[float]:
    """Quota by period; nothing where there is no limit ("max" or -1)."""
    if len(words) == 2 and words[0].isdecimal() and words[1].isdecimal() and int(words[0]) * int(words[1]) > 0:
        yield int(words[0]) / int(words[1])


def _words(path: Path) -> list[str]:
    return " ".join(_lines(path)).split()


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
