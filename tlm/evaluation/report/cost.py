"""The cost of a run: operations, tokens, time, energy; at given prices and grid intensity, also money and CO2e."""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from tlm.artifacts.spending import AT_LEAST, JOULES
from tlm.settings.options import Prices

HOUR, KILOWATT_HOUR = 3600.0, 3.6e6


@dataclass(frozen=True)
class Cost:
    """Cost of one training stage or of several; None for what was not measured.

    Attributes:
        steps: Optimizer steps.
        tokens: Tokens without padding.
        padded_tokens: Tokens with every text padded to the full length, as the paper counts.
        flops: Operations of our training step on the tokens without padding.
        paper_flops: 6 · parameters · padded tokens (the paper, section 4.1).
        seconds: Wall-clock time of all attempts; an interrupted one counts up to its last snapshot.
        gpu_seconds: Wall-clock time multiplied by the number of GPUs.
        cpu_seconds: Wall-clock time multiplied by the number of threads, for work without a GPU.
        joules: Energy of CPUs and GPUs over all attempts and machines; None if GPUs worked and did not report theirs.
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
    def of_stage(cls, counted: dict[str, Any], run: dict[str, Any]) -> "Cost":
        """The cost of a stage from the counts in its manifest (tokens, flops, …) and the facts in its run.json."""
        energy = [run[name] for name in JOULES if run.get(name) is not None]
        on_gpu = run.get("device", "cpu") != "cpu" or any("gpu_seconds" + end in run for end in ("", AT_LEAST))
        whole = not any(name + AT_LEAST in run for name in JOULES) and ("gpu_joules" in run or not on_gpu)
        amounts = {name: counted.get(name) for name in ("steps", "tokens", "padded_tokens", "flops", "paper_flops")}
        times = {name: run.get(name) for name in ("seconds", "gpu_seconds", "cpu_seconds")}
        return cls(**amounts, **times, joules=sum(energy) if energy and whole else None)

    def money(self, prices: Prices) -> float | None:
        """The cost at `prices`; None if something with a price was not measured, or nothing used has a price."""
        if self.gpu_seconds is None and self.cpu_seconds is None:
            return None
        if prices.kilowatt_hour and self.joules is None:
            return None
        hours = prices.gpu_hour * (self.gpu_seconds or 0) + prices.cpu_hour * (self.cpu_seconds or 0)
        return hours / HOUR + prices.kilowatt_hour * (self.joules or 0) / KILOWATT_HOUR or None

    def grams(self, prices: Prices) -> float | None:
        """Grams of CO2 equivalents; None if the energy was not measured, or no grid intensity is given."""
        if self.joules is None or not prices.grams_per_kwh:
            return None
        return prices.grams_per_kwh * self.joules / KILOWATT_HOUR


def total(costs: Iterable[Cost]) -> Cost:
    """Sum the costs of several stages or runs. A part is None if one of the costs lacks it.

    GPU and CPU seconds are the exception: a stage has only one of the two, so the other one counts as 0 in a stage
    whose time is known.
    """
    found = list(costs)

    def added(name: str) -> float | None:
        of_processor = name in ("gpu_seconds", "cpu_seconds")
        known = [cost for cost in found if not of_processor or getattr(cost, name) is not None or cost.seconds is None]
        values = [getattr(cost, name) for cost in known]
        return None if not values or None in values else float(sum(values))

    return Cost(**{part.name: added(part.name) for part in fields(Cost)})
