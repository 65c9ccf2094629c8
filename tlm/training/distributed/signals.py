"""SIGTERM and SIGINT (Ctrl-C) as a question that is answered between two steps."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from tlm.errors import Cancelled, Terminated

STOPS: dict[int, type[Terminated]] = {signal.SIGTERM: Terminated, signal.SIGINT: Cancelled}


class Stop(threading.Event):
    """Set when one of these signals has arrived, and by then `number` is the first one's."""

    number = 0

    def error(self) -> type[Terminated]:
        """The error to end with."""
        return STOPS[self.number]


@contextmanager
def stopping() -> Iterator[Stop]:
    """An event that is set by SIGTERM or SIGINT, so that the step in progress can end and be saved.

    A second SIGINT does what it did before. Where SIGINT is ignored, as in a shell's background, it stays so.
    """
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():  # signals reach the main thread only
        yield stop
        return
    before = {number: signal.getsignal(number) or signal.SIG_DFL for number in STOPS}

    def note(number: int, frame: FrameType | None) -> None:
        if not stop.is_set():
            stop.number = number
            stop.set()
        if number == signal.SIGINT:
            signal.signal(number, before[number])

    for number, handler in before.items():
        if handler is not signal.SIG_IGN or number == signal.SIGTERM:
            signal.signal(number, note)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
