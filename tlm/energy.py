"""Energy around a block of work, where the machine tells: GPUs through NVML, CPUs through RAPL. None where it does not.

RAPL (Linux, ``/sys/class/powercap``) counts what whole processor packages and their memory took, whoever used them, and
is often readable by root alone. NVML counts what whole GPUs took since the driver was loaded (Volta and later); it is
read through the package nvidia-ml-py, if that is there.
"""

import importlib
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

POWERCAP = Path("/sys/class/powercap")
SAMPLE_SECONDS = 30.0  # shorter than any RAPL counter takes to wrap around: 65,000 J and more, at some 100 W


@dataclass
class Counter:
    """A counter of joules.

    Attributes:
        kind: What it counts.
        read: The joules so far; raises OSError where it cannot be read.
        span: It starts again from 0 after so many joules; None if it never does.
    """

    kind: Literal["cpu", "gpu"]
    read: Callable[[], float]
    span: float | None = None
    total: float = 0.0
    last: float = field(default=0.0)

    def start(self) -> None:
        """Count from here."""
        self.last, self.total = self.read(), 0.0

    def sample(self) -> None:
        """Add what was used since the last look, in which it may have wrapped around once."""
        now = self.read()
        used = now - self.last
        if used < 0:
            used = used + self.span if self.span else 0.0  # without a span: the driver was loaded anew
        self.total, self.last = self.total + used, now


class Energy:
    """``with Energy() as energy: work()``; then ``energy.joules`` is a number, or None where nobody counts."""

    def __init__(self, counters: Sequence[Counter] | None = None, every: float = SAMPLE_SECONDS) -> None:
        """`counters` are those of the machine by default; they are looked at every so many seconds."""
        self._given, self._every = counters, every
        self._counters: list[Counter] = []
        self._lock, self._ended = threading.Lock(), threading.Event()

    def __enter__(self) -> "Energy":
        found = [*rapl(), *nvml()] if self._given is None else self._given
        self._counters = [counter for counter in found if _works(counter.start)]
        if self._counters:
            self._thread = threading.Thread(target=self._watch, name="energy", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._counters:
            self._thread.join()
        self._sample()

    def look(self) -> None:
        """Read the counters now, unless the block has ended."""
        if not self._ended.is_set():
            self._sample()

    @property
    def cpu_joules(self) -> float | None:
        """Of all processor packages of the machine, at the last look; None where unknown."""
        return self._sum("cpu")

    @property
    def gpu_joules(self) -> float | None:
        """Of the GPUs that this process may use, at the last look; None where unknown."""
        return self._sum("gpu")

    @property
    def joules(self) -> float | None:
        """All that is known."""
        known = [part for part in (self.cpu_joules, self.gpu_joules) if part is not None]
        return sum(known) if known else None

    def _watch(self) -> None:
        while not self._ended.wait(self._every):
            self._sample()

    def _sample(self) -> None:
        with self._lock:
            silent = {counter.kind for counter in self._counters if not _works(counter.sample)}
            self._counters = [counter for counter in self._counters if counter.kind not in silent]  # no partial sums

    def _sum(self, kind: str) -> float | None:
        found = [counter.total for counter in self._counters if counter.kind == kind]
        return sum(found) if found else None


def rapl(folder: Path = POWERCAP) -> list[Counter]:
    """Counters of the processor packages and, where it is counted apart, their memory; none where not readable.

    Cores and uncore are parts of their package, psys holds the packages: none of these is counted twice.
    """
    found = []
    for zone in sorted(folder.glob("intel-rapl:*")):
        try:
            name = (zone / "name").read_text().strip()
            span = int((zone / "max_energy_range_uj").read_text()) / 1e6
        except (OSError, ValueError):
            continue
        if name.startswith("package") or name == "dram":
            found.append(Counter("cpu", lambda path=zone / "energy_uj": int(path.read_text()) / 1e6, span))  # type: ignore[misc]
    return found


def nvml() -> list[Counter]:
    """Counters of the GPUs in ``CUDA_VISIBLE_DEVICES`` (all, where that is not set); none without NVML or a GPU."""
    try:
        library: Any = importlib.import_module("pynvml")  # not one of our dependencies: a machine may have it
        library.nvmlInit()
    except Exception:  # an absent package, library, driver or GPU: each has an error of its own
        return []
    found = []
    for handle in _handles(library):
        read = _reader(library, handle)
        if _works(read):
            found.append(Counter("gpu", read))
    return found


def _handles(library: Any) -> list[Any]:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = [str(number) for number in range(library.nvmlDeviceGetCount())] if visible is None else visible.split(",")
    found = []
    for name in filter(None, map(str.strip, names)):
        try:
            by_index = name.isdecimal()
            found.append(
                library.nvmlDeviceGetHandleByIndex(int(name)) if by_index else library.nvmlDeviceGetHandleByUUID(name)
            )
        except library.NVMLError:
            continue
    return found


def _reader(library: Any, handle: Any) -> Callable[[], float]:
    def read() -> float:
        try:
            return float(library.nvmlDeviceGetTotalEnergyConsumption(handle)) / 1e3
        except library.NVMLError as error:
            raise OSError(str(error)) from None

    return read


def _works(action: Callable[[], object]) -> bool:
    try:
        action()
    except (OSError, ValueError):
        return False
    return True
