"""Progress of long work: a bar on a terminal, a log line every few seconds elsewhere (a pod, CI)."""

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from tlm.errors import printable

LOG_EVERY_SECONDS = 15.0

T = TypeVar("T")


def say(message: str) -> None:
    """One line for the person watching, on stderr (stdout carries only a step's result)."""
    print("\n".join(map(printable, message.split("\n"))), file=sys.stderr, flush=True)


def track(items: Iterable[T], label: str, total: float | None = None, unit: str = "") -> Iterator[T]:
    """Yield `items`, showing how far we are; `total` is in items (None where it is not known)."""
    meter = Meter(label, total, unit)
    try:
        for item in items:
            yield item
            meter.advance(1)
    finally:
        meter.close()


class Meter:
    """Counts work done and shows it; `advance` may be called with any amount."""

    def __init__(self, label: str, total: float | None = None, unit: str = "") -> None:
        self.label, self.total, self.unit = label, total, unit
        self.done = 0.0
        self.started = self.logged = time.monotonic()
        self._bar = _bar(label, total) if sys.stderr.isatty() else None

    def advance(self, amount: float, note: str = "") -> None:
        """Add `amount` of work done; `note` (a loss, a rate) is shown beside it."""
        self.done += amount
        if self._bar is not None:
            progress, task = self._bar
            progress.update(task, advance=amount, note=note)
        elif time.monotonic() - self.logged >= LOG_EVERY_SECONDS:
            self.logged = time.monotonic()
            say(self._line(note))

    def close(self) -> None:
        """Take the bar down."""
        if self._bar is not None:
            self._bar[0].stop()

    def _line(self, note: str) -> str:
        seconds = time.monotonic() - self.started
        of = f" of {self.total:,.0f} ({self.done / self.total:.0%})" if self.total else ""
        return f"{self.label}: {self.done:,.0f}{of} {self.unit} in {seconds:.0f} s {note}".rstrip()


def _bar(label: str, total: float | None):  # type: ignore[no-untyped-def]  # rich is imported only where a terminal is
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),  # names of files may have brackets
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}", markup=False),
    )
    progress = Progress(*columns, console=Console(stderr=True), transient=True)
    progress.start()
    return progress, progress.add_task(label, total=total, note="")
