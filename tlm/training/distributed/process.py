"""One of several processes that train together, as torchrun starts it.

``python -m tlm.training.distributed.process STEP ARGUMENTS``

How it ends goes into a file, so that whoever launched it can say it once for all of them.
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

from tlm.training.distributed.endings import ENDINGS, Ending

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Do the step; the process ends here, also from within a library that waits for the others."""
    rank, step, arguments = int(os.environ["RANK"]), sys.argv[1], json.loads(sys.argv[2])
    endings = Path(os.environ[ENDINGS])
    _settle(endings, rank)
    code = 0
    try:
        module, _, name = step.partition(":")
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
    """What makes a process end when the one that started it is killed (on Linux)."""
    if sys.platform != "linux":
        return lambda: None
    libc = ctypes.CDLL(None)  # loaded here, because little is safe between fork and exec
    return lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL) and None


def _settle(endings: Path, rank: int) -> None:
    """Die with torchrun, be found by the launcher, and leave talking to the first process."""
    dying_with_parent()()
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # before training begins the launcher says what there is to say
    (endings / f"pid.{os.getpid()}").touch()
    os.dup2(1, 2)  # stderr is torchrun's log, stdout the launcher's stderr
    if rank > 0:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115


if __name__ == "__main__":
    main()
