"""The amounts of the bill, each a number, or None for what was not measured."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from tlm.artifacts.artifact import Artifact
from tlm.evaluation.report.cost import KILOWATT_HOUR, Cost, total
from tlm.evaluation.report.lineage import Lineage
from tlm.evaluation.report.runs import spread
from tlm.options import Prices
from tlm.retrieval.select.selectors import WITHOUT_QUERIES
from tlm.spending import JOULES

Amounts = dict[str, float | None]
NOTHING_KNOWN = Cost()


def amounts(cost: Cost, prices: Prices) -> Amounts:
    """What the bill says of a cost: FLOPs, seconds, kWh, grams of CO2 equivalents, money."""
    return {
        **{name: getattr(cost, name) for name in ("flops", "seconds", "cpu_seconds", "gpu_seconds")},
        "kilowatt_hours": None if cost.joules is None else cost.joules / KILOWATT_HOUR,
        "grams": cost.grams(prices),
        "money": cost.money(prices),
    }


def scaled(cost: Cost, factor: float) -> Cost:
    """The cost of `factor` times as much of the same."""
    parts = {part.name: getattr(cost, part.name) for part in fields(cost)}
    return Cost(**{name: None if value is None else factor * value for name, value in parts.items()})


def spent_on(artifact: Artifact | None, lineage: Lineage, counted: Mapping[str, Any] | None = None) -> Cost:
    """What the step took that made an artifact; `counted` are its FLOPs, if it has any.

    Of what a search server did, nothing is known but how long we waited. Of a corpus that was loaded in parts, by
    several processes or pods at different times, CPU time alone is known: what each has noted.
    """
    if artifact is None:
        return NOTHING_KNOWN
    run = artifact.run()
    if "parts" in run:
        noted = run.get("parts_process_seconds")
        return NOTHING_KNOWN if noted is None else Cost(cpu_seconds=noted + run.get("process_seconds", 0.0))
    elsewhere = _searches(artifact, lineage)
    facts = {name: value for name, value in run.items() if not (elsewhere and name.startswith(JOULES))}
    if not elsewhere and run.get("device", "cpu") == "cpu" and "gpu_seconds" not in run:
        facts.setdefault("cpu_seconds", run.get("process_seconds"))
    return Cost.of_stage(dict(counted or {}), facts)


def summed(costs: Iterable[Cost]) -> Cost:
    """The sum. CPU and GPU time are known if each cost has one of the two; FLOPs are of those costs that have any."""
    found = list(costs)
    counted = [cost.flops for cost in found if cost.flops is not None]
    sums = replace(total(found), flops=sum(counted) if counted else None)
    whole = all(cost.cpu_seconds is not None or cost.gpu_seconds is not None for cost in found)
    return sums if whole else replace(sums, cpu_seconds=None, gpu_seconds=None)


def mean(costs: Sequence[Cost]) -> Cost:
    """The mean of each part, over the costs in which it is known."""
    return Cost(**{part.name: spread(getattr(cost, part.name) for cost in costs)["mean"] for part in fields(Cost)})


def _searches(artifact: Artifact, lineage: Lineage) -> bool:
    """Whether the step had a server work: it filled an index there, or searched it."""
    index = artifact if artifact.manifest.kind == "index" else lineage.follow(artifact, "index")
    if index is None or index.details.get("engine") != "elasticsearch":
        return False
    return index is artifact or artifact.details.get("arm") not in WITHOUT_QUERIES
