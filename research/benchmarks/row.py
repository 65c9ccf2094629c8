"""Rows of the table: what is measured against what, and what was found."""

import importlib.util
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from research.benchmarks.measure import Measured, Quantity

PASS, SHORT, NOT_MEASURED = "PASS", "short", "not measured"
STEEPEST = 1.1  # exponent above which growth is to be explained or repaired


class NotMeasured(Exception):
    """A row cannot be measured here; the message says what is missing, and what to do."""


@dataclass(frozen=True)
class Result:
    """One line of a row.

    Attributes:
        label: What differs from the row's other lines ("K = 50").
        ours: Median of our side, in `unit`; None where not measured.
        theirs: Median of the other side; None where there is none.
        unit: Of both.
        ratio: How many times as good ours is; None where there is no other side.
        target: What is to be reached, as text; "" where nothing is.
        verdict: ``PASS``, ``short``, ``not measured: why``, or "" where there is no target.
        against: The other side.
        low: Smallest ratio of the repeats.
        high: Largest.
        note: What a reader has to know of this line.
        points: (size, value) where growth was measured; drawn on the page.
        axes: Names of size and value, with units.
    """

    label: str
    ours: float | None
    theirs: float | None
    unit: str
    ratio: float | None
    target: str
    verdict: str
    against: str = ""
    low: float | None = None
    high: float | None = None
    note: str = ""
    points: list[tuple[float, float]] = field(default_factory=list)
    axes: tuple[str, str] = ("", "")


class Row(NamedTuple):
    """A stage, against whom it is measured, and how.

    Attributes:
        name: Name of its module.
        stage: What is measured.
        against: Whom it is compared with.
        target: What is to be reached, in words.
        what: A few sentences for the page: what both sides do, on which data, what is counted.
        run: Measures; with True in a minute, on small sizes. May raise `NotMeasured`.
        packages: Distributions whose versions are kept with the numbers.
        command: What measures it, where that is not `python -m research.benchmarks` with its name.
    """

    name: str
    stage: str
    against: str
    target: str
    what: str
    run: Callable[[bool], list[Result]]
    packages: tuple[str, ...] = ()
    command: str = ""


def against(
    label: str,
    measured: Measured,
    theirs: str,
    quantity: Quantity,
    *,
    ours: str = "ours",
    at_least: float | None = None,
    note: str = "",
) -> Result:
    """Our side beside another one, by name; `at_least` is the ratio to reach."""
    ratio = measured.ratio(ours, theirs, quantity)
    return Result(
        label,
        measured.spread(ours, quantity).middle,
        measured.spread(theirs, quantity).middle,
        quantity.unit,
        ratio.middle,
        "" if at_least is None else f"≥ {at_least:g}×",
        _verdict(None if at_least is None else ratio.middle >= at_least),
        theirs,
        ratio.low,
        ratio.high,
        note,
    )


def limit(label: str, value: float, unit: str, at_most: float | None = None, note: str = "") -> Result:
    """A value of ours that has to stay below a bound."""
    target = "" if at_most is None else f"≤ {at_most:g} {unit}".rstrip()
    return Result(
        label, value, None, unit, None, target, _verdict(None if at_most is None else value <= at_most), note=note
    )


def growth(
    label: str,
    points: Sequence[tuple[float, float]],
    axes: tuple[str, str],
    at_most: float | None = STEEPEST,
    note: str = "",
) -> Result:
    """The exponent with which a cost grows: the slope of its logarithm over that of the size, by least squares."""
    value = exponent(points)
    target = "" if at_most is None else f"≤ {at_most:g}"
    verdict = _verdict(None if at_most is None else value <= at_most)
    return Result(label, value, None, "exponent", None, target, verdict, note=note, points=list(points), axes=axes)


def exponent(points: Sequence[tuple[float, float]]) -> float:
    """b of the power law a·size^b nearest to `points` (least squares of logarithms)."""
    sizes, values = ([math.log(point[axis]) for point in points] for axis in (0, 1))
    middle, level = sum(sizes) / len(sizes), sum(values) / len(values)
    above = sum((size - middle) * (value - level) for size, value in zip(sizes, values, strict=True))
    return above / sum((size - middle) ** 2 for size in sizes)


def not_measured(label: str, reason: str, target: str = "", theirs: str = "") -> Result:
    """A line that could not be measured, and why."""
    return Result(label, None, None, "", None, target, f"{NOT_MEASURED}: {reason}", theirs)


def need(*modules: str) -> None:
    """Raise `NotMeasured` where a module that only benchmarks need is not installed."""
    absent = [module for module in modules if importlib.util.find_spec(module) is None]
    if absent:
        raise NotMeasured(f"install {', '.join(absent)} (pip install -r research/benchmarks/requirements.txt)")


def number(value: float | None) -> str:
    """Three digits that count, thousands separated; "–" where there is none."""
    if value is None:
        return "–"
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _verdict(reached: bool | None) -> str:
    return "" if reached is None else PASS if reached else SHORT
