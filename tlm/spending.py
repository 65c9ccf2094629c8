"""What a step spends: seconds, joules and memory.

Seconds and joules are summed over the step's attempts and over the machines that work on it together. An attempt that
was killed counts up to its last snapshot: what it spent after that is lost together with its work.
"""

import os
import resource
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tlm.energy import Counter, Energy

JOULES = ("cpu_joules", "gpu_joules")
AT_LEAST = "_at_least"  # suffix of a sum of which a part was not measured
SECONDS = ("seconds", "cpu_seconds", "gpu_seconds")
GETRUSAGE_UNIT = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss, in bytes


class Amount(NamedTuple):
    """A sum over attempts and machines.

    Attributes:
        value: The sum of what was measured.
        unmeasured: Number of attempts or machines that did not measure their part.
    """

    value: float = 0.0
    unmeasured: int = 0


Spent = dict[str, Amount]  # by the names above; a name that is absent was not used at all
UNKNOWN: Spent = dict.fromkeys((*SECONDS, *JOULES), Amount(0.0, 1))


def added(*parts: Spent) -> Spent:
    """Return the sum of all parts."""
    total: Spent = {}
    for part in parts:
        for name, (value, unmeasured) in part.items():
            before = total.get(name, Amount())
            total[name] = Amount(before.value + value, before.unmeasured + unmeasured)
    return total


class Spending(Energy):
    """``with Spending() as spending: work()``: joules count until the block ends, seconds go on.

    Attributes:
        before: What earlier attempts spent, up to the snapshot that this attempt resumes from.
        elsewhere: What the other machines have spent in this attempt, as of their last report.
        workers: How many ``cpu_seconds`` (threads) or ``gpu_seconds`` (GPUs) each second of this attempt counts for.
    """

    def __init__(self, counters: Sequence[Counter] | None = None) -> None:
        """Use these energy counters, by default all of this machine."""
        super().__init__(counters)
        self.before: Spent = {}
        self.elsewhere: Spent = {}
        self.workers: dict[str, int] = {}
        self._started = time.monotonic()

    def joules(self) -> Spent:
        """Return what this machine has used in this attempt."""
        used = zip(JOULES, (self.used("cpu"), self.used("gpu")), strict=True)
        return {name: Amount(0.0, 1) if value is None else Amount(value) for name, value in used}

    def total(self) -> Spent:
        """Return the sum over all attempts and machines up to now."""
        seconds = time.monotonic() - self._started
        timed = {name: Amount(seconds * count) for name, count in {"seconds": 1, **self.workers}.items()}
        return added(self.before, self.elsewhere, timed, self.joules())

    def facts(self) -> dict[str, float]:
        """Return the totals by name for run.json, as ``<name>_at_least`` where a part was not measured."""
        found = {}
        for name, (value, unmeasured) in self.total().items():
            if not unmeasured:
                found[name] = round(value, 3)
            elif value:
                found[name + AT_LEAST] = round(value, 3)
        return found


def process_seconds() -> float:
    """Return the CPU seconds that this process and all that it started have used so far, in whichever threads.

    Those that have ended are in the sums of the system; of workers that are kept for more work, psutil tells.
    """
    import psutil  # type: ignore[import-untyped]

    sums = list(os.times()[:4])
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # it has just ended
            sums += child.cpu_times()[:4]
    return float(sum(sums))


def peak_memory() -> int:
    """Return the most resident memory that this process has had, in bytes.

    On Linux it is VmHWM (proc(5)): getrusage would include the memory of the parent process before the fork.
    """
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * GETRUSAGE_UNIT
