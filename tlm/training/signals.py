"""SIGTERM as a question that is answered between two steps."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def sigterm() -> Iterator[threading.Event]:
    """An event that is set when SIGTERM arrives, so that the step in progress can end and be saved."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():  # signals reach the main thread only
        yield asked
        return
    before = signal.signal(signal.SIGTERM, lambda *_: asked.set())
    try:
        yield asked
    finally:
        signal.signal(signal.SIGTERM, before)
