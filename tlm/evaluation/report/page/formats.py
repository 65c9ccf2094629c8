"""Scores, differences and costs as words, and tables that have a row for each arm."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tlm.evaluation.pages import units
from tlm.evaluation.pages.blocks import Line, Row, Span, Table
from tlm.evaluation.report.findings import hundred, plain_score

MOST_DIGITS = 5  # after the point; smaller numbers are written as powers of ten
Spread = dict[str, Any]  # of `tlm.evaluation.report.runs.spread`
Form = Callable[[Any], Line]


def interval(spread: Spread) -> str:
    """The 95 % interval of a score in hundredths."""
    return "–" if spread["low"] is None else f"{100 * spread['low']:.1f} – {100 * spread['high']:.1f}"


def in_units(spread: Spread | None) -> str:
    """An error in the unit of the targets, to three digits: ``1.92 ± 0.14``, ``3.1e-07``; "–" where none is known."""
    mean = spread["mean"] if spread else None
    if spread is None or mean is None:
        return "–"
    digits = max(0, 2 - math.floor(math.log10(mean))) if mean else 0
    if digits > MOST_DIGITS:
        return f"{mean:.2e}" + (f" ± {spread['std']:.1e}" if spread["std"] is not None else "")
    return plain_score(spread, digits=digits)


def score(scores: Mapping[str, Spread], name: str) -> str:
    """A score in hundredths, or an error in the unit of the targets."""
    return in_units(scores.get(name)) if name in ("rmse", "mae") else hundred(scores[name])


def signed(difference: dict[str, Any]) -> str:
    """The interval of a difference of scores in hundredths."""
    low, high = difference["low"], difference["high"]
    return "–" if low is None else f"{100 * low:+.1f} to {100 * high:+.1f}"


def device(stage: dict[str, Any]) -> str:
    """What a stage was trained on: a CPU with its threads, or a number of GPUs."""
    count = stage["threads" if stage["device"] == "cpu" else "processes"]
    name = f"{stage['device']} × {count}" if stage["device"] and count else stage["device"]
    return ", ".join(filter(None, (name, stage["precision"])))


def named(arm: dict[str, Any]) -> Span:
    """An arm's name in its colour."""
    return Span(arm["name"], "name", arm["role"])


def by_arm(
    arms: Sequence[dict[str, Any]], columns: Mapping[str, Form], head: str = "Arm", *, note: str = "", strong: str = ""
) -> Table:
    """A table with a row for each arm, from the format of each column; the row of the arm `strong` stands out."""
    rows: list[Row] = [(named(arm), *(form(arm) for form in columns.values())) for arm in arms]
    places = frozenset(place for place, arm in enumerate(arms) if arm["name"] == strong)
    return Table([head, *columns], rows, note, places)


def costs(found: Iterable[dict[str, Spread]]) -> dict[str, Form]:
    """The columns of a table of costs; a kind of cost that was measured nowhere gets none."""
    every = list(found)
    return {
        heading: _mean(name, form)
        for name, (heading, form) in COSTS.items()
        if any(cost[name]["values"] for cost in every)
    }


def _mean(name: str, form: units.Form) -> Form:
    """The mean of one kind of cost, in a format."""
    return lambda cost: "–" if cost[name]["mean"] is None else form(cost[name]["mean"])


COSTS: units.Columns = {  # heading and format of each kind of cost
    "steps": ("steps", units.amount),
    "tokens": ("tokens", units.amount),
    "flops": ("FLOPs", units.amount),
    "paper_flops": ("by the paper’s rule", units.amount),
    "seconds": ("time", units.time),
    "gpu_seconds": ("GPU time", units.time),
    "joules": ("energy", units.joules),
    "grams": ("CO₂e", units.grams),
    "money": ("money", units.money),
}
