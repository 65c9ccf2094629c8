"""Outcomes of experiments as rows of the table."""

import sys
import time
from collections.abc import Iterable

from tests.faults.row import Row, row


def tally(what: str, outcomes: Iterable[str]) -> Row:
    """A row of so many outcomes; each that is not empty is what went wrong, and is told."""
    started, found = time.monotonic(), list(outcomes)
    for reason in filter(None, found):
        print(f"lost: {what}: {reason}", file=sys.stderr)
    print(f"{what}: {len(found)} in {time.monotonic() - started:.0f} s", file=sys.stderr)
    return row(what, len(found), found.count(""))
