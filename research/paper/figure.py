"""The figures of tables and curves."""

import math
from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any, NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from research.paper.curves import Points, fit, points_of, values_of
from research.paper.page import Outcome
from research.paper.plan import ByKey
from research.paper.results import baseline_key, summed
from research.paper.tables import all_tables, curves, title
from tlm.evaluation.pages.blocks import COLOURS, INK, MUTED, SPARE_ROLES
from tlm.evaluation.pages.plots import STYLE, svg
from tlm.evaluation.pages.text import power
from tlm.evaluation.score.baseline import STATIC
from tlm.evaluation.score.mix import KINDS, PARTS, ReportRow

SYMBOLS = {"retrieve.top_k": "K", "train.rho1": "rho1", "train.rho2": "rho2"}
OURS, THEIRS = COLOURS["bm25"][0], COLOURS["random"][0]
GROUND = (
    "<style>:root{--card:#ffffff}@media(prefers-color-scheme:dark){:root{--card:#0d1117}}</style>"
    '<rect width="100%" height="100%" fill="var(--card)"/>'
)


# A row of the table: its name on the axis, mean, ends of the interval (None without one), and scores of the seeds.
Point = tuple[str, float, float | None, float | None, Sequence[float]]


def figure(table: str, found: Sequence[Outcome], results: ByKey) -> str:
    """Draw two panels for each task with results of several rows, as SVG; "" if the table varies no single setting."""
    rows = {row["name"]: row.get("set", {}) for row in all_tables()[table]["row"]}
    varied = {name for changes in rows.values() for name in changes}
    if len(varied) != 1 or len(rows) < 3:
        return ""
    (setting,) = varied
    panels = []
    for task in dict.fromkeys(outcome.cell.task for outcome in found):
        of_task = [outcome for outcome in found if outcome.cell.task == task]
        ours, theirs = _ours(of_task, setting), _theirs(of_task, setting, rows)
        if len(ours) > 1:
            panels.append((of_task[0].cell, ours, theirs))
    return _drawn(panels, SYMBOLS[setting], results) if panels else ""


def _ours(found: Sequence[Outcome], setting: str) -> list[Point]:
    """Our points of a task: scores by the value of a setting."""
    points: list[Point] = []
    for outcome in found:
        scores = outcome.scores
        if scores["values"]:
            name = _value(outcome.cell.settings().get(setting))
            points.append((name, scores["mean"], scores["low"], scores["high"], scores["values"]))
    return points


def _theirs(found: Sequence[Outcome], setting: str, rows: Mapping[str, Mapping[str, Any]]) -> list[Point]:
    """The paper's points of a task, by its own values of a setting; `rows` are what its rows change."""
    points: list[Point] = []
    for outcome in found:
        if outcome.cell.published:
            mean, deviation = outcome.cell.published[0], outcome.cell.published[1] or 0
            name = _value(rows[outcome.cell.row].get(setting))
            points.append((name, mean, mean - deviation, mean + deviation, ()))
    return points


@mpl.rc_context(STYLE)
def _drawn(panels: list[Any], symbol: str, results: ByKey) -> str:
    drawn = Figure(figsize=(7.6, 0.3 + 2.3 * len(panels)), layout="constrained")
    grid = drawn.subplots(len(panels), 2, squeeze=False)
    for (cell, ours, theirs), (left, right) in zip(panels, grid, strict=True):
        _panel(left, ours, OURS, f"{title(cell.task)}, {cell.scale}")
        for run in results.get(baseline_key(cell.task), {}).values():
            score, tone = run.score(cell.split) or 0.0, COLOURS["baseline"][0]
            left.axhline(score, color=tone, linewidth=1.2, linestyle=(0, (4, 3)), zorder=1)
        _panel(right, theirs, THEIRS, f"{title(cell.task)}, the paper")
        for axes in (left, right):
            axes.set_xlabel(symbol)
        left.set_ylabel(f"{cell.split}, hundredths")
    return on_ground(drawn)


def on_ground(drawn: Figure) -> str:
    """A figure as SVG with a background of its own, light or dark, which makes it readable on any page."""
    head, end, rest = svg(drawn).partition("</style>")
    return f"{head}{end}{GROUND}{rest}"


def _value(value: Any) -> str:
    if value is None:
        return "none"
    return "∞" if str(value) == "inf" else f"{float(value):g}"


def _panel(axes: Axes, points: list[Point], tone: str, heading: str) -> None:
    axes.set_title(heading, fontsize=10, loc="left", color=INK)
    axes.margins(x=0.12, y=0.12)
    if not points:
        axes.set(xticks=[], yticks=[])
        axes.text(0.5, 0.5, "not in the paper", ha="center", va="center", transform=axes.transAxes, color=MUTED)
        return
    axes.grid(axis="x", visible=False)
    names, means, *_ = zip(*points, strict=True)
    axes.set_xticks(range(len(points)), names)
    axes.plot(range(len(points)), means, "-o", color=tone, linewidth=1.6, markersize=5)
    for place, (_, _, low, high, values) in enumerate(points):
        if low is not None and high is not None:
            axes.plot([place, place], [low, high], color=tone, linewidth=7, alpha=0.25, solid_capstyle="butt")
        axes.plot([place] * len(values), values, "o", color=tone, markersize=3, alpha=0.6, markeredgewidth=0)


NAME_HEIGHT = 0.15  # inches: of a line's name
FRAME = 0.7  # inches: title, ticks and label of a panel
LEAST_HEIGHT = 2.9  # inches: of a panel
# From a name to its line.
LEADER = {"arrowstyle": "-", "linewidth": 0.6, "relpos": (0, 0.5), "shrinkA": 1, "shrinkB": 3}


class End(NamedTuple):
    """The end of a line, its name and its colour."""

    mean: float
    value: float
    name: str
    tone: str


def curve_figure(curve: str, results: ByKey) -> str:
    """A panel for each task, as SVG; "" if nothing is run."""
    found = points_of(curve, results)
    return _curves_drawn(curve, found) if found else ""


@mpl.rc_context(STYLE)
def _curves_drawn(curve: str, found: dict[str, Points]) -> str:
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


def _lines(axes: Axes, points: Points, rows: dict[str, ReportRow]) -> list[End]:
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


def _rows(curve: str, points: Points) -> dict[str, ReportRow]:
    """The rows that have a line, by arm."""
    rows = {arm: ReportRow.of(arm, "") for arm in points}
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
    texts = dict.fromkeys(ReportRow.of(arm, "").text for arm in points)
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
