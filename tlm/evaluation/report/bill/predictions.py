"""How fast each model predicts, how large it is, and what a million predictions cost, from what `evaluate` measured."""

from collections.abc import Mapping, Sequence
from typing import Any

from tlm.evaluation.predict.speed import SPEED
from tlm.evaluation.report.bill.amounts import NOTHING_KNOWN, amounts, mean, scaled
from tlm.evaluation.report.cost import Cost
from tlm.evaluation.report.runs import Group, spread
from tlm.evaluation.score.imported import IMPORTED
from tlm.options import Prices

MILLION = 1_000_000
Speed = Mapping[str, Any]  # of `tlm.evaluation.predict.speed`
Row = dict[str, Any]


def predictions(groups: Sequence[Group], prices: Prices) -> list[Row]:
    """A row for each model, mean over seeds: name, speed, size, memory, and the amounts of a million predictions."""
    return [_row(group, prices) for group in groups if group.row.kind != IMPORTED]


def million(speed: Speed) -> Cost:
    """The cost of a million predictions, if they are as those that were measured."""
    if not speed.get("texts"):
        return NOTHING_KNOWN
    return scaled(Cost.of_stage(dict(speed), dict(speed)), MILLION / speed["texts"])


def _row(group: Group, prices: Prices) -> Row:
    speeds = [run.artifact.run().get(SPEED, {}) for run in group.runs]
    alone = [speed.get("alone", {}) for speed in speeds]
    return {
        "name": group.name,
        "texts_per_cpu_second": _mean(_rate(speed, "cpu_seconds", "gpu_seconds") for speed in speeds),
        "texts_per_gpu_second": _mean(_rate(speed, "gpu_seconds", "cpu_seconds") for speed in speeds),
        **{name: _mean(one.get(name) for one in alone) for name in ("median_ms", "p99_ms")},
        **{name: _mean(speed.get(name) for speed in speeds) for name in ("bytes", "peak_memory")},
        "million": amounts(mean([million(speed) for speed in speeds]), prices),
    }


def _rate(speed: Speed, worker: str, other: str) -> float | None:
    """Texts a second of one kind of processor; None for a mixture whose models need both kinds."""
    return speed["texts"] / speed[worker] if speed.get(worker) and other not in speed else None


def _mean(values: Any) -> float | None:
    found: float | None = spread(values)["mean"]
    return found
