"""One of several processes that train together, as torchrun starts it.

``python -m tlm.training.distributed.process STEP ARGUMENTS``

How it ends is written to a file, so that the launcher can report it once for all of them.
"""

import ctypes
import importlib
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType

from tlm.errors import STOPS, InputError, Interrupted, Terminated, TlmError
from tlm.settings.options import Compute

ENDINGS = "TLM_ENDINGS"  # names the folder of these files


class Lost(Interrupted):
    """Another process of the same training has ended; that process knows why."""


@dataclass(frozen=True)
class Ending:
    """The error that ended a process.

    Attributes:
        time: When, in seconds since the epoch.
        lost: Whether it only noticed that another process has ended.
        code: The exit code.
        text: The sentence for the user, or that of the OSError.
        errno: The number of an OSError; 0 for another error.
        path: The file of an OSError.
    """

    time: float
    lost: bool
    code: int
    text: str
    errno: int = 0
    path: str = ""

    @classmethod
    def of(cls, error: Exception) -> "Ending":
        """The ending that `error` means."""
        now, lost = time.time(), isinstance(error, Lost)
        if isinstance(error, TlmError):
            return cls(now, lost, error.exit_code, str(error))
        if isinstance(error, OSError) and error.errno:
            return cls(now, lost, 2, error.strerror or "", error.errno, str(error.filename or ""))
        return cls(now, lost, 1, f"training failed with {type(error).__name__}: {error}; see the lines above")

    def write(self, path: Path) -> None:
        """Write it to its file, whole or not at all."""
        part = path.with_suffix(".part")
        part.write_text(json.dumps(asdict(self)), encoding="utf-8")
        part.replace(path)

    def error(self) -> TlmError | OSError:
        """The error to raise in the launcher."""
        if self.errno:
            return OSError(self.errno, self.text, self.path or None)
        known: list[type[TlmError]] = [TlmError, InputError, Interrupted, *STOPS.values()]
        kinds = {kind.exit_code: kind for kind in known}
        return kinds[self.code](self.text)


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
    """An event that SIGTERM, SIGINT or SIGHUP sets, so that the step in progress can end and be saved.

    A second SIGINT has its usual effect. Where SIGINT or SIGHUP is ignored, as in a background job of a shell or by
    nohup, it stays ignored.
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


PR_SET_PDEATHSIG = 1


def main() -> None:
    """Run the step, then end the process, even where a library would wait for the other processes."""
    rank, step, arguments = int(os.environ["RANK"]), sys.argv[1], json.loads(sys.argv[2])
    endings = Path(os.environ[ENDINGS])
    _settle(endings, rank)
    code = 0
    try:
        module, _, name = step.partition(":")
        arguments["compute"] = Compute(**arguments["compute"])
        getattr(importlib.import_module(module), name)(**arguments)
    except Exception as error:
        ending = Ending.of(error)
        if ending.code == 1:
            traceback.print_exc(file=sys.__stderr__)
        ending.write(endings / f"{rank}.json")
        code = ending.code
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def dying_with_parent() -> Callable[[], None]:
    """A function for a child process to call, so that it is killed when its parent is (on Linux)."""
    if sys.platform != "linux":
        return lambda: None
    libc = ctypes.CDLL(None)  # loaded here: few calls are safe between fork and exec
    return lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL) and None


def _settle(endings: Path, rank: int) -> None:
    """End when torchrun does, tell the launcher the process id, and print only on rank 0."""
    dying_with_parent()()
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # before training begins, the launcher reports it
    (endings / f"pid.{os.getpid()}").touch()
    os.dup2(1, 2)  # stderr is torchrun's log; stdout is the launcher's stderr
    if rank > 0:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115


if __name__ == "__main__":
    main()
