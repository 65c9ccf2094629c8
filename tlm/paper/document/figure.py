"""The figure of a table that varies one setting: our results with intervals beside the paper's values."""

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tlm.evaluation.pages.plots import COLOURS, INK, MUTED, STYLE, svg
from tlm.paper.document.verdicts import Outcome
from tlm.paper.plan import ByKey
from tlm.paper.results import baseline_key
from tlm.paper.tables import all_tables, title

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
    for task in dict.fromkeys(one.cell.task for one in found):
        mine = [one for one in found if one.cell.task == task]
        ours: list[Point] = []
        theirs: list[Point] = []
        for one in mine:
            scores = one.scores
            if scores["values"]:
                name = _value(one.cell.settings().get(setting))
                ours.append((name, scores["mean"], scores["low"], scores["high"], scores["values"]))
            if one.cell.published:
                mean, deviation = one.cell.published[0], one.cell.published[1] or 0
                name = _value(rows[one.cell.row].get(setting))
                theirs.append((name, mean, mean - deviation, mean + deviation, ()))
        if len(ours) > 1:
            panels.append((mine[0].cell, ours, theirs))
    return _drawn(panels, SYMBOLS[setting], results) if panels else ""


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
    return "none" if value is None else "∞" if str(value) == "inf" else f"{float(value):g}"


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
