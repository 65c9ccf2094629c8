"""Patterns of paths, the same for files on disk and for keys on S3.

As in a shell, ``*``, ``?`` and ``[…]`` match within a name, ``**`` stands for any number of folders, and none of them
matches a name that begins with a dot unless the pattern has the dot, too. Without ``**``, a pattern may also match
folders.
"""

import fnmatch
import re
from collections.abc import Iterable, Iterator, Sequence

MAGIC = re.compile(r"[*?\[]")
ANY_DEPTH = "**"


def matches(names: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether the names of folders and file on a path match the parts of a pattern."""
    if not pattern or not names:
        return not names and all(part == ANY_DEPTH for part in pattern)
    visible = not names[0].startswith(".") or pattern[0].startswith(".")
    if pattern[0] == ANY_DEPTH:
        return matches(names, pattern[1:]) or (visible and matches(names[1:], pattern))
    return visible and fnmatch.fnmatchcase(names[0], pattern[0]) and matches(names[1:], pattern[1:])


def may_hold_matches(names: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether something in the folder on this path may match the pattern."""
    start = pattern[: len(names)]
    return ANY_DEPTH in start or matches(names, start)


def matching_folders(keys: Iterable[str], pattern: Sequence[str]) -> Iterator[str]:
    """Yield the folders of these keys that match the pattern."""
    if ANY_DEPTH not in pattern:
        folders = {tuple(key.split("/")[: len(pattern)]) for key in keys if key.count("/") >= len(pattern)}
        yield from ("/".join(names) for names in sorted(folders) if matches(names, pattern))
