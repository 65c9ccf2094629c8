"""What a run cost: operations, tokens, time, energy, and money by given prices."""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from tlm.artifacts.artifact import Artifact
from tlm.errors import InputError
from tlm.spending import AT_LEAST, JOULES

HOUR, KILOWATT_HOUR = 3600.0, 3.6e6


@dataclass(frozen=True)
class Prices:
    """What an hour of a GPU, an hour of a CPU core and a kilowatt-hour cost, in any currency."""

    gpu_hour: float = 0.0
    cpu_hour: float = 0.0
    kilowatt_hour: float = 0.0

    def __post_init__(self) -> None:
        """Raises InputError for a price that is negative."""
        for part in fields(self):
            if not 0 <= getattr(self, part.name) < float("inf"):
                raise InputError(f"{part.name} is {getattr(self, part.name)}; expected a price, 0 or more")


@dataclass(frozen=True)
class Cost:
    """Cost of a stage or of several; None is what nobody counted.

    Attributes:
        steps: Of the optimizer.
        tokens: Real ones.
        padded_tokens: Up to the full length, as the paper counts.
        flops: Of our step on real tokens.
        paper_flops: 6 · parameters · padded tokens (the paper, section 4.1).
        seconds: Wall clock of all attempts; one that was interrupted counts up to its last snapshot.
        gpu_seconds: Wall clock times GPUs.
        cpu_seconds: Wall clock times threads, where no GPU did the work.
        joules: CPU and GPU together, of all attempts and machines, as far as these tell.
    """

    steps: float | None = None
    tokens: float | None = None
    padded_tokens: float | None = None
    flops: float | None = None
    paper_flops: float | None = None
    seconds: float | None = None
    gpu_seconds: float | None = None
    cpu_seconds: float | None = None
    joules: float | None = None

    @classmethod
    def of(cls, trained: Artifact) -> "Cost":
        """Of the one stage that made a `checkpoint` or `model`."""
        return cls.told(trained.details["cost"], trained.run())

    @classmethod
    def told(cls, counted: dict[str, Any], run: dict[str, Any]) -> "Cost":
        """From the counts in a manifest (tokens, flops, …) and the facts of its run.json."""
        energy = [run[name] for name in JOULES if run.get(name) is not None]
        whole = not any(name + AT_LEAST in run for name in JOULES)
        names = ("steps", "tokens", "padded_tokens", "flops", "paper_flops")
        return cls(
            **{name: counted.get(name) for name in names},
            seconds=run.get("seconds"),
            **_worked(run),
            joules=sum(energy) if energy and whole else None,
        )

    def money(self, prices: Prices) -> float | None:
        """By `prices`; None where what has a price was not measured, or nothing that was used has a price."""
        if self.gpu_seconds is None and self.cpu_seconds is None:
            return None
        if prices.kilowatt_hour and self.joules is None:
            return None
        hours = prices.gpu_hour * (self.gpu_seconds or 0) + prices.cpu_hour * (self.cpu_seconds or 0)
        return hours / HOUR + prices.kilowatt_hour * (self.joules or 0) / KILOWATT_HOUR or None


def _worked(run: dict[str, Any]) -> dict[str, float | None]:
    """Seconds times GPUs, and seconds times threads where no GPU did the work."""
    names = ("gpu_seconds", "cpu_seconds")
    if any(name + end in run for name in names for end in ("", AT_LEAST)):
        return {name: run.get(name) for name in names}
    seconds, device = run.get("seconds"), run.get("device")  # of a version that told no more; "cpu", or a GPU's name
    if seconds is None or device is None:
        return {}
    workers = int(run.get("processes", 1)) * (int(run.get("threads", 1)) if device == "cpu" else 1)
    return {"cpu_seconds" if device == "cpu" else "gpu_seconds": float(seconds) * workers}


def total(costs: Iterable[Cost]) -> Cost:
    """Of several stages or runs. What one of them did not count is not known of all, but for the kinds of seconds."""
    found = list(costs)

    def added(name: str) -> float | None:
        values = [getattr(cost, name) for cost in found]
        if name in ("gpu_seconds", "cpu_seconds"):  # a stage has one of the two
            values = [value for cost, value in zip(found, values, strict=True)
                      if value is not None or cost.seconds is None]  # fmt: skip
        return None if not values or None in values else float(sum(values))

    return Cost(**{part.name: added(part.name) for part in fields(Cost)})
