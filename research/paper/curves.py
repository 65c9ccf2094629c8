"""Curves as tables: a row for each model, a column for each value; and what retrieved text gains."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from research.paper.blocks import Block, compared, plus_minus
from research.paper.plan import ByKey
from research.paper.results import Result, arm_of, copies_in, copies_of, summed
from research.paper.tables import curves, title
from tlm.evaluation.pages.blocks import OWN_ROLES
from tlm.evaluation.score.intervals import Arm, differences
from tlm.evaluation.score.mix import ReportRow
from tlm.evaluation.score.scores import METRIC_NAMES

Points = dict[str, dict[float, list[Result]]]  # runs by arm and value


def blocks(curve: str, results: ByKey) -> list[Block]:
    """A table for each task that has results; a line that says so if there are none.

    A task whose test has copies of training texts has a second table, without them.
    """
    found = []
    for task, points in points_of(curve, results).items():
        found.append(_block(curve, task, points))
        if copies_in(_all(points), "test"):
            found.append(_block(curve, task, points, without_copies=True))
    return found or [Block(f"Curve {curve}", [], ["nothing is run yet"])]


def points_of(curve: str, results: ByKey) -> dict[str, Points]:
    """The runs of a curve by task, arm and value, in the order of a report's rows."""
    found: dict[str, Points] = {}
    for runs in results.values():
        for run in runs.values():
            cell = run.values["cell"]
            if cell["table"] == curve:
                found.setdefault(cell["column"], {}).setdefault(cell["row"], {}).setdefault(cell["at"], []).append(run)
    order = {task: sorted(points, key=_place) for task, points in sorted(found.items())}
    return {task: {arm: found[task][arm] for arm in arms} for task, arms in order.items()}


def _place(arm: str) -> tuple[int, int, str]:
    row = ReportRow.of(arm, "")
    return row.place, OWN_ROLES.index(row.text) if row.text in OWN_ROLES else len(OWN_ROLES), arm


def values_of(points: Points) -> list[float]:
    """The values at which something was run."""
    return sorted({at for own in points.values() for at in own})


def _all(points: Points) -> list[Result]:
    return [run for own in points.values() for runs in own.values() for run in runs]


def _block(curve: str, task: str, points: Points, *, without_copies: bool = False) -> Block:
    facts, values = curves()[curve], values_of(points)
    runs = _all(points)

    def row(arm: str) -> tuple[str, ...]:
        spreads = (summed(points[arm].get(value, []), "test", without_copies=without_copies) for value in values)
        return ReportRow.of(arm, "").name, *(plus_minus(spread) or "–" for spread in spreads)

    head = (facts["axis"], *(f"{value:g}" for value in values))
    metric = METRIC_NAMES[runs[0].values["metric"]]
    lines = [f"{metric} on test in hundredths; mean ± standard deviation (draws); {facts['source']}"]
    name = title(task)
    if without_copies:
        copies, texts = copies_of(runs, "test")
        name += " (distinct texts)"
        lines.append(f"without the {copies} of the {texts} test texts that are copies of training texts")
    lines += _worth(facts, points, without_copies=without_copies)
    if not without_copies:
        lines += _more(facts, task, points)
    return Block(f"{name}: {facts['title']}", [head, *map(row, points)], lines)


def fit(facts: dict[str, Any], points: Points) -> tuple[float, float] | None:
    """Slope and intercept of mean scores over the decimal logarithm of the axis; None with fewer than two values."""
    own = points.get(facts.get("fitted", ""), {})
    if len(own) < 2:
        return None
    values = sorted(own)
    slope, intercept = np.polyfit(np.log10(values), [summed(own[value], "test")["mean"] for value in values], 1)
    return float(slope), float(intercept)


def _more(facts: dict[str, Any], task: str, points: Points) -> Iterator[str]:
    """Say what the fitted line gives for ten times as much, and at the paper's size."""
    found = fit(facts, points)
    if found is None:
        return
    slope, intercept = found
    yield f"fitted to the means of {facts['fitted']}: {slope:+.1f} points for ten times as much"
    if task in facts["paper"]:
        at, score = facts["paper"][task]
        there = slope * math.log10(at) + intercept
        yield f"the line has {there:.1f} at {at:.1e}, where the paper has {score:.1f} (its small scale)"


def _worth(facts: dict[str, Any], points: Points, *, without_copies: bool) -> Iterator[str]:
    """The gain of the first model of each pair over the second, value by value; all intervals corrected."""
    named = {ReportRow.of(arm, "").name: own for arm, own in points.items()}
    arms: dict[str, Arm] = {}
    asked: list[tuple[str, str]] = []
    for ours, theirs in facts["pairs"]:
        our_runs, their_runs = named.get(ours, {}), named.get(theirs, {})
        for value in sorted(our_runs.keys() & their_runs.keys()):
            first = arm_of(our_runs[value], "test", without_copies=without_copies)
            second = arm_of(their_runs[value], "test", without_copies=without_copies)
            if first is not None and second is not None:
                names = f"{ours} at {value:g}", f"{theirs} at {value:g}"
                arms |= {names[0]: first, names[1]: second}
                asked.append(names)
    for found in differences(arms, asked):
        if found["low"] is not None:
            yield compared(found)
        else:
            gain = f"{found['first']} over {found['second']} {100 * found['mean']:+.1f}"
            yield f"{gain}: fewer than three draws, so no order is claimed"
