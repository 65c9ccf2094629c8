"""What a step spends: seconds and joules, summed over its attempts and over the machines that work on it together.

An attempt that was killed counts up to its last snapshot; what it spent after that is lost together with its work.
"""

import time
from collections.abc import Sequence
from typing import NamedTuple

from tlm.energy import Counter, Energy

JOULES = ("cpu_joules", "gpu_joules")
AT_LEAST = "_at_least"  # behind the name of a sum of which a part was not measured
SECONDS = ("seconds", "cpu_seconds", "gpu_seconds")


class Amount(NamedTuple):
    """A sum over attempts and machines.

    Attributes:
        value: The sum of what was measured.
        unmeasured: How many attempts or machines did not measure their part.
    """

    value: float = 0.0
    unmeasured: int = 0


Spent = dict[str, Amount]  # by the names above; a name that is absent was not used at all
UNKNOWN: Spent = dict.fromkeys((*SECONDS, *JOULES), Amount(0.0, 1))


def added(*parts: Spent) -> Spent:
    """The sum of all parts."""
    total: Spent = {}
    for part in parts:
        for name, (value, unmeasured) in part.items():
            before = total.get(name, Amount())
            total[name] = Amount(before.value + value, before.unmeasured + unmeasured)
    return total


class Spending:
    """``with Spending() as spending: work()``: joules count until the block ends, seconds go on.

    Attributes:
        before: What earlier attempts spent, up to the snapshot that this attempt goes on from.
        elsewhere: What the other machines had spent in this attempt when they were last asked.
        workers: How many ``cpu_seconds`` (threads) or ``gpu_seconds`` (GPUs) there are in a second of this attempt.
    """

    def __init__(self, counters: Sequence[Counter] | None = None) -> None:
        """`counters` are those of the machine by default."""
        self.before: Spent = {}
        self.elsewhere: Spent = {}
        self.workers: dict[str, int] = {}
        self._energy, self._began = Energy(counters), time.monotonic()

    def __enter__(self) -> "Spending":
        self._energy.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._energy.__exit__(*error)

    def joules(self) -> Spent:
        """What this machine has used in this attempt."""
        self._energy.look()
        used = (self._energy.cpu_joules, self._energy.gpu_joules)
        return {
            name: Amount(0.0, 1) if value is None else Amount(value) for name, value in zip(JOULES, used, strict=True)
        }

    def total(self) -> Spent:
        """Of all attempts and machines, up to now."""
        seconds = time.monotonic() - self._began
        timed = {name: Amount(seconds * count) for name, count in {"seconds": 1, **self.workers}.items()}
        return added(self.before, self.elsewhere, timed, self.joules())

    def facts(self) -> dict[str, float]:
        """For run.json: each total by its name; as ``<name>_at_least`` where a part of it was not measured."""
        found = {}
        for name, (value, unmeasured) in self.total().items():
            if not unmeasured:
                found[name] = round(value, 3)
            elif value:
                found[name + AT_LEAST] = round(value, 3)
        return found
