"""The figure of a table that varies one setting: our results with intervals beside the paper's values."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tlm.evaluation.pages.plots import COLOURS, INK, MUTED, STYLE, svg
from tlm.paper.document.verdicts import Outcome
from tlm.paper.plan import ByKey
from tlm.paper.results import BASELINE
from tlm.paper.tables import all_tables, title

SYMBOLS = {"retrieve.top_k": "K", "train.rho1": "rho1", "train.rho2": "rho2"}
OURS, THEIRS = COLOURS["bm25"][0], COLOURS["random"][0]
# A background of its own, light or dark, makes the figure readable on any page.
GROUND = (
    "<style>:root{--card:#ffffff}@media(prefers-color-scheme:dark){:root{--card:#0d1117}}</style>"
    '<rect width="100%" height="100%" fill="var(--card)"/>'
)


class Point(NamedTuple):
    """A row of the table as a point in a panel.

    Attributes:
        name: Its name on the axis.
        mean: Mean score.
        low: Lower end of the interval; None if there is no interval.
        high: Upper end of the interval.
        values: Scores of the seeds.
    """

    name: str
    mean: float
    low: float | None
    high: float | None
    values: Sequence[float] = ()


def figure(table: str, found: Sequence[Outcome], results: ByKey) -> str:
    """Draw two panels for each task with results of several rows, as SVG; "" if the table varies no single setting."""
    rows = {row["name"]: row.get("set", {}) for row in all_tables()[table]["row"]}
    varied = {name for changes in rows.values() for name in changes}
    if len(varied) != 1 or len(rows) < 3:
        return ""
    (setting,) = varied
    panels = []
    for task in dict.fromkeys(one.cell.task for one in found):
        mine = [one for one in found if one.cell.task == task]
        ours = [
            Point(_value(one.cell.settings().get(setting)), *(one.scores[name] for name in Point._fields[1:]))
            for one in mine
            if one.scores["values"]
        ]
        theirs = [
            Point(_value(rows[one.cell.row].get(setting)), mean, mean - (deviation or 0), mean + (deviation or 0))
            for one in mine
            if one.cell.published
            for mean, deviation in [one.cell.published]
        ]
        if len(ours) > 1:
            panels.append((mine[0].cell, ours, theirs))
    return _drawn(panels, SYMBOLS[setting], results) if panels else ""


@mpl.rc_context(STYLE)
def _drawn(panels: list[Any], symbol: str, results: ByKey) -> str:
    drawn = Figure(figsize=(7.6, 0.3 + 2.3 * len(panels)), layout="constrained")
    grid = drawn.subplots(len(panels), 2, squeeze=False)
    for (cell, ours, theirs), (left, right) in zip(panels, grid, strict=True):
        _panel(left, ours, OURS, f"{title(cell.task)}, {cell.scale}")
        for run in results.get(f"{BASELINE}-{cell.task}", {}).values():
            score, tone = run.score(cell.split) or 0.0, COLOURS["baseline"][0]
            left.axhline(score, color=tone, linewidth=1.2, linestyle=(0, (4, 3)), zorder=1)
        _panel(right, theirs, THEIRS, f"{title(cell.task)}, the paper")
        for axes in (left, right):
            axes.set_xlabel(symbol)
        left.set_ylabel(f"{cell.split}, hundredths")
    head, end, rest = svg(drawn).partition("</style>")
    return f"{head}{end}{GROUND}{rest}"


def _value(value: Any) -> str:
    return "none" if value is None else "∞" if str(value) == "inf" else f"{float(value):g}"


def _panel(axes: Axes, points: list[Point], tone: str, heading: str) -> None:
    axes.set_title(heading, fontsize=10, loc="left", color=INK)
    axes.tick_params(length=0)
    axes.margins(x=0.12, y=0.12)
    if not points:
        axes.set(xticks=[], yticks=[])
        axes.text(0.5, 0.5, "not in the paper", ha="center", va="center", transform=axes.transAxes, color=MUTED)
        return
    axes.grid(axis="x", visible=False)
    axes.set_xticks(range(len(points)), [point.name for point in points])
    axes.plot(range(len(points)), [point.mean for point in points], "-o", color=tone, linewidth=1.6, markersize=5)
    for place, point in enumerate(points):
        if point.low is not None and point.high is not None:
            ends = [point.low, point.high]
            axes.plot([place, place], ends, color=tone, linewidth=7, alpha=0.25, solid_capstyle="butt")
        places = [place] * len(point.values)
        axes.plot(places, point.values, "o", color=tone, markersize=3, alpha=0.6, markeredgewidth=0)
