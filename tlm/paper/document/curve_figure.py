"""The figure of a curve: a line for each model."""

import math
from itertools import cycle
from typing import NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from tlm.evaluation.mixture.kinds import KINDS, PARTS, Row
from tlm.evaluation.pages.plots import COLOURS, INK, SPARE_ROLES, STYLE
from tlm.evaluation.pages.text import power
from tlm.evaluation.score.baseline import STATIC
from tlm.paper.curves import curves
from tlm.paper.document.curves import Points, fit, points_of, values_of
from tlm.paper.document.figure import on_ground
from tlm.paper.examples import summed
from tlm.paper.plan import ByKey
from tlm.paper.tables import title

NAME_HEIGHT = 0.15  # inches: of a line's name
FRAME = 0.7  # inches: title, ticks and label of a panel
LEAST_HEIGHT = 2.9  # inches: of a panel
# From a name to its line.
LEADER = {"arrowstyle": "-", "linewidth": 0.6, "relpos": (0, 0.5), "shrinkA": 1, "shrinkB": 3}


class End(NamedTuple):
    """Where a line ends, its name and its colour."""

    mean: float
    value: float
    name: str
    tone: str


def figure(curve: str, results: ByKey) -> str:
    """A panel for each task, as SVG; "" if nothing is run."""
    found = points_of(curve, results)
    return _drawn(curve, found) if found else ""


@mpl.rc_context(STYLE)
def _drawn(curve: str, found: dict[str, Points]) -> str:
    rows = {task: _rows(curve, points) for task, points in found.items()}
    heights = [max(LEAST_HEIGHT, FRAME + NAME_HEIGHT * len(arms)) for arms in rows.values()]
    drawn = Figure(figsize=(7.6, 0.4 + sum(heights)), layout="constrained")
    grid = drawn.subplots(len(found), 1, squeeze=False, height_ratios=heights)
    for (task, points), (axes,), height in zip(found.items(), grid, heights, strict=True):
        axes.set_title(title(task), fontsize=10, loc="left", color=INK)
        ends = _lines(axes, points, rows[task])
        axes.set_xscale("log")
        ticks = values_of(points)
        if line := fit(curves()[curve], points):
            _extend(axes, line, curves()[curve]["paper"].get(task), max(ticks))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: power(value).removeprefix("1·")))
        else:
            axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
        axes.margins(x=0.3)
        axes.set_xlabel(curves()[curve]["axis"])
        axes.set_ylabel("test, hundredths")
        _name_lines(axes, ends, NAME_HEIGHT / (height - FRAME))
    return on_ground(drawn)


def _lines(axes: Axes, points: Points, rows: dict[str, Row]) -> list[End]:
    """Draw a line for each row, and return their ends."""
    ends, spare = [], _spare_tones(points)
    for arm, row in rows.items():
        role = row.text or "baseline"
        tone = COLOURS.get(role, COLOURS[spare.get(role, "other-0")])[0]
        values = sorted(points[arm])
        means = [summed(points[arm][value], "test")["mean"] for value in values]
        style = "--" if row.kind == STATIC else "-"
        axes.plot(values, means, style, marker="o", color=tone, linewidth=1.6, markersize=4)
        ends.append(End(means[-1], values[-1], row.name, tone))
    return ends


def _name_lines(axes: Axes, ends: list[End], gap: float) -> None:
    """Write the name of each line beside its end, `gap` (a part of the axis) apart, with a thin line to it."""
    lowest, highest = axes.get_ylim()
    ends = sorted(ends)
    places = apart([end.mean for end in ends], (highest - lowest) * gap, lowest, highest)
    for place, (mean, value, name, tone) in zip(places, ends, strict=True):
        axes.annotate(
            name,
            (value, mean),
            (18, place),
            textcoords=("offset points", "data"),
            va="center",
            fontsize=8,
            color=tone,
            arrowprops={"color": tone, **LEADER},
        )


def _rows(curve: str, points: Points) -> dict[str, Row]:
    """The rows that have a line, by arm."""
    rows = {arm: Row.of(arm, "") for arm in points}
    undrawn = curves()[curve].get("undrawn", ())
    return {arm: row for arm, row in rows.items() if row.kind in KINDS and row.kind not in undrawn}


def apart(heights: list[float], gap: float, lowest: float, highest: float) -> list[float]:
    """Ascending heights, moved until they are `gap` apart: up first, and down again from `highest`."""
    found: list[float] = []
    for height in heights:
        found.append(max(height, found[-1] + gap if found else lowest))
    limit = highest
    for place in reversed(range(len(found))):
        found[place] = min(found[place], limit)
        limit = found[place] - gap
    return found


def _spare_tones(points: Points) -> dict[str, str]:
    """A colour role for each text that has none of its own, in the order of the rows."""
    texts = dict.fromkeys(Row.of(arm, "").text for arm in points)
    others = [text for text in texts if text and text not in COLOURS and PARTS not in text]
    return dict(zip(others, cycle(SPARE_ROLES), strict=False))


def _extend(axes: Axes, line: tuple[float, float], paper: tuple[float, float] | None, last: float) -> None:
    """Draw a fitted line from the last value to the paper's point, if it has one for the task."""
    if paper is None:
        return
    (slope, intercept), (at, score) = line, paper
    ends = [last, at]
    axes.plot(ends, [slope * math.log10(end) + intercept for end in ends], ":", color=INK, linewidth=1)
    axes.plot([at], [score], "*", color=INK, markersize=9)
    axes.annotate("the paper", (at, score), (-6, 0), textcoords="offset points", ha="right", va="center", fontsize=8)
