"""SIGTERM and SIGINT (Ctrl-C), handled between two steps."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from tlm.errors import Cancelled, Terminated

STOPS: dict[int, type[Terminated]] = {signal.SIGTERM: Terminated, signal.SIGINT: Cancelled}


class Stop(threading.Event):
    """Set when one of these signals has arrived.

    Attributes:
        number: The first signal that arrived; 0 before.
    """

    number = 0

    def error(self) -> type[Terminated]:
        """The error to end with."""
        return STOPS[self.number]


@contextmanager
def stopping() -> Iterator[Stop]:
    """An event that SIGTERM or SIGINT sets, so that the step in progress can end and be saved.

    A second SIGINT has its usual effect. Where SIGINT is ignored, as in a background job of a shell, it stays ignored.
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
