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
import traceback
from collections.abc import Callable
from pathlib import Path

from tlm.options import Compute
from tlm.training.distributed.endings import ENDINGS, Ending

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
