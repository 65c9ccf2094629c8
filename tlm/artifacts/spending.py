"""The costs of a step: seconds, joules (CPUs through RAPL, GPUs through NVML) and memory.

Seconds and joules are summed over the step's attempts and over the machines that work on it together. An attempt that
was killed counts up to its last snapshot: what it spent after that is lost together with its work.

Where a machine has no such counters, or may not read them, the energy is None. RAPL (Linux, ``/sys/class/powercap``)
counts whole processor packages and their memory, whichever process uses them; often only root may read it. NVML counts
whole GPUs (Volta and later) since the driver was loaded; it is read through the package nvidia-ml-py, which the image
without torch does not have.
"""

import importlib
import os
import re
import resource
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

POWERCAP = Path("/sys/class/powercap")
SAMPLE_SECONDS = 30.0  # shorter than any RAPL counter takes to wrap around: at least 65,000 J, at some 100 W


@dataclass
class Counter:
    """A counter of joules.

    Attributes:
        name: What it counts: one of `JOULES`.
        read: Returns the joules so far; raises OSError or ValueError where it cannot be read.
        span: Joules after which it wraps around to 0; None if it never does.
        total: Joules from the first sample to the last one.
        last: What `read` returned last, in joules; None before the first sample.
    """

    name: str
    read: Callable[[], float]
    span: float | None = None
    total: float = 0.0
    last: float | None = None

    def sample(self) -> None:
        """Add what was used since the last sample; the counter may have wrapped around once."""
        now = self.read()
        used = 0.0 if self.last is None else now - self.last
        if used < 0:
            used = used + self.span if self.span else 0.0  # without a span: the driver was loaded again
        self.total, self.last = self.total + used, now


JOULES = ("cpu_joules", "gpu_joules")
AT_LEAST = "_at_least"  # suffix of a sum that lacks what was not measured
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
    sums: Spent = {}
    for part in parts:
        for name, amount in part.items():
            so_far = sums.get(name, Amount())
            sums[name] = Amount(so_far.value + amount.value, so_far.unmeasured + amount.unmeasured)
    return sums


class Spending:
    """``with Spending() as spending: work()``: joules count until the block ends, seconds go on.

    Attributes:
        before: The costs of earlier attempts, up to the snapshot that this attempt resumes from.
        elsewhere: The costs of the other machines in this attempt, as of their last report.
        workers: By ``cpu_seconds``, how many processes compute as long as this one; or by ``gpu_seconds``, how many
            GPUs are at work all the time.
    """

    def __init__(self, counters: Sequence[Counter] | None = None, every: float = SAMPLE_SECONDS) -> None:
        """Use these energy counters (by default all of this machine), sampled every so many seconds."""
        self._counters = [*rapl(), *nvml()] if counters is None else [*counters]
        self._every = every
        self._started, self._computed = time.monotonic(), time.process_time()
        self._lock, self._ended = threading.Lock(), threading.Event()
        self.before: Spent = {}
        self.elsewhere: Spent = {}
        self.workers: dict[str, int] = {}

    def __enter__(self) -> Self:
        self._counters = [counter for counter in self._counters if _works(counter.sample)]
        if self._counters:
            self._thread = threading.Thread(target=self._watch, name="energy", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._counters:
            self._thread.join()
        self._sample()

    def joules(self) -> Spent:
        """Return the joules of this machine in this attempt, up to now or to the end of the block.

        They are those of all processor packages, and of the GPUs that this process may use.
        """
        if not self._ended.is_set():
            self._sample()
        totals = {name: [counter.total for counter in self._counters if counter.name == name] for name in JOULES}
        return {name: Amount(sum(found), 0 if found else 1) for name, found in totals.items()}

    def total(self) -> Spent:
        """Return the sum over all attempts and machines up to now."""
        seconds = time.monotonic() - self._started
        of_worker = {"cpu_seconds": time.process_time() - self._computed, "gpu_seconds": seconds}
        of_workers = {name: Amount(count * of_worker[name]) for name, count in self.workers.items()}
        return added(self.before, self.elsewhere, {"seconds": Amount(seconds)}, of_workers, self.joules())

    def facts(self) -> dict[str, float]:
        """Return the totals by name for run.json, as ``<name>_at_least`` where a part was not measured."""
        known = {name: spent for name, spent in self.total().items() if spent.value or not spent.unmeasured}
        return {name + AT_LEAST if spent.unmeasured else name: round(spent.value, 3) for name, spent in known.items()}

    def _watch(self) -> None:
        while not self._ended.wait(self._every):
            self._sample()

    def _sample(self) -> None:
        with self._lock:
            failed = {counter.name for counter in self._counters if not _works(counter.sample)}
            self._counters = [counter for counter in self._counters if counter.name not in failed]  # no partial sums


def rapl(folder: Path = POWERCAP) -> list[Counter]:
    """Return counters of the processor packages and, where it is counted apart, of their memory.

    Cores and uncore are parts of their package, and psys holds the packages, so none of these is counted.
    """
    found = []
    for zone in sorted(folder.glob("intel-rapl:*")):
        try:
            name = (zone / "name").read_text().strip()
            span = _microjoules(zone / "max_energy_range_uj")
        except (OSError, ValueError):
            continue
        if name.startswith("package") or name == "dram":
            found.append(Counter("cpu_joules", partial(_microjoules, zone / "energy_uj"), span))
    return found


def _microjoules(path: Path) -> float:
    """Return in joules what the file holds in microjoules."""
    return int(path.read_text()) / 1e6


def nvml() -> list[Counter]:
    """Return counters of the GPUs in ``CUDA_VISIBLE_DEVICES`` (all, if that is not set)."""
    try:
        library: Any = importlib.import_module("pynvml")  # of the extra `train` alone
        library.nvmlInit()
    except Exception:  # a missing package, library, driver or GPU: each raises an error of its own
        return []
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = map(str, range(library.nvmlDeviceGetCount())) if visible is None else map(str.strip, visible.split(","))
    return [Counter("gpu_joules", partial(_gpu_joules, library, gpu)) for gpu in gpus if gpu]


def _gpu_joules(library: Any, gpu: str) -> float:
    """Return what a GPU (an index or a UUID) has used since its driver was loaded. Raises OSError if unknown."""
    try:
        by_index = gpu.isdecimal()
        handle = library.nvmlDeviceGetHandleByIndex(int(gpu)) if by_index else library.nvmlDeviceGetHandleByUUID(gpu)
        return float(library.nvmlDeviceGetTotalEnergyConsumption(handle)) / 1e3
    except library.NVMLError as error:
        raise OSError(str(error)) from None


def _works(action: Callable[[], object]) -> bool:
    with suppress(OSError, ValueError):
        action()
        return True
    return False


def process_seconds() -> float:
    """Return the CPU seconds that this process and all that it started have used so far, in whichever threads.

    The sums of the system have the processes that ended; psutil knows the processes that still run.
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
    found = re.search(r"^VmHWM:\s+(\d+) kB", status.read_text(), re.MULTILINE) if status.exists() else None
    return int(found[1]) * 1024 if found else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * GETRUSAGE_UNIT
