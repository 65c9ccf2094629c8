"""What commands print: answers on stdout; messages and progress on stderr.

Progress is a bar on a terminal, a log line every few seconds elsewhere (a pod, CI).
"""

import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from functools import cache
from typing import Any, TypeVar

from tlm.errors import printable

LOG_EVERY_SECONDS = 15.0

T = TypeVar("T")
_hidden = False


class Answer(str):
    """The text that a command prints which is no step, and the same as plain values for ``--json``."""

    facts: Any

    def __new__(cls, text: str, facts: Any) -> "Answer":
        """Make it of the text for people and the facts for programs."""
        answer = super().__new__(cls, text)
        answer.facts = facts
        return answer


def say(message: str) -> None:
    """Print a message to stderr (stdout has only the result of a step), in one write, as steps may be parallel."""
    with unheard():
        sys.stderr.write("".join(f"{printable(line)}\n" for line in message.split("\n")))
        sys.stderr.flush()


@contextmanager
def unheard(stream: str = "stderr") -> Iterator[None]:
    """Let the work go on where a stream cannot be written, as its terminal or the program that read it is gone."""
    try:
        yield
    except OSError:
        setattr(sys, stream, open(os.devnull, "w", errors="replace"))  # noqa: SIM115, PTH123


def track(items: Iterable[T], label: str, total: float | None = None, unit: str = "") -> Iterator[T]:
    """Yield `items` and show the progress; `total` is the number of items, None if unknown."""
    with closing(Meter(label, total, unit)) as meter:
        for item in items:
            yield item
            meter.advance(1)


@contextmanager
def hidden() -> Iterator[None]:
    """Show no progress of the work inside, as in one of several processes; messages still appear."""
    global _hidden
    _hidden = True
    try:
        yield
    finally:
        _hidden = False


class Meter:
    """Count the work that is done, in any unit, and show it.

    Attributes:
        label: What is being done.
        total: Amount of work, None if unknown.
        unit: What is counted, such as documents.
        done: Amount of work done.
    """

    def __init__(self, label: str, total: float | None = None, unit: str = "") -> None:
        self.label, self.total, self.unit = label, total, unit
        self.done = 0.0
        self.started = self.logged = time.monotonic()
        self._bar = None
        if sys.stderr.isatty() and not _hidden:
            self._bar = _bars().add_task(label, total=total, note="")
            _bars().start()

    def advance(self, amount: float, note: str = "") -> None:
        """Add `amount` to the work done, and show `note` (a loss, a rate) beside it."""
        self.done += amount
        if self._bar is not None:
            _bars().update(self._bar, advance=amount, note=note)
        elif not _hidden and time.monotonic() - self.logged >= LOG_EVERY_SECONDS:
            self.logged = time.monotonic()
            seconds = self.logged - self.started
            of, share = (f" of {self.total:,.0f}", f" ({self.done / self.total:.0%})") if self.total else ("", "")
            say(f"{self.label}: {self.done:,.0f}{of} {self.unit}{share} in {seconds:.0f} s{note and f', {note}'}")

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            with unheard():
                _bars().remove_task(self._bar)
                if not _bars().tasks:
                    _bars().stop()
            self._bar = None


@cache
def _bars():  # type: ignore[no-untyped-def]  # rich is imported only for a terminal
    """Return what draws all bars, one below another: two that do not know of each other draw on the same line."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    # No markup: names of files may have brackets
    about, note = TextColumn("{task.description}", markup=False), TextColumn("{task.fields[note]}", markup=False)
    columns = (about, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), note)
    return Progress(*columns, console=Console(stderr=True), transient=True)
