"""How much memory this process has needed."""

import resource
import sys
from pathlib import Path

GETRUSAGE_UNIT = 1 if sys.platform == "darwin" else 1024  # bytes, of ru_maxrss


def peak_memory() -> int:
    """Most resident bytes of this process so far.

    On Linux getrusage would count what the process that started this one had by then (proc(5), VmHWM, does not).
    """
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * GETRUSAGE_UNIT
