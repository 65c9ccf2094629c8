"""A table that varies one setting as a picture: ours with intervals beside what the paper prints."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tlm.evaluation.pages.plots import COLOURS, INK, MUTED, STYLE, svg
from tlm.paper.document.verdicts import Outcome
from tlm.paper.plan import ByKey
from tlm.paper.results import BASELINE
from tlm.paper.tables import Cell, all_tables, title

SYMBOLS = {"retrieve.top_k": "K", "train.rho1": "rho1", "train.rho2": "rho2"}
OURS, THEIRS = COLOURS["bm25"][0], COLOURS["random"][0]
CARD = ("#ffffff", "#0d1117")  # its own ground, light and dark: whatever page it stands on, it can be read


class Point(NamedTuple):
    """A row of the table: its name on the axis, mean, ends of the interval (None: no interval), values."""

    name: str
    mean: float
    low: float | None
    high: float | None
    values: list[float]


def varied(table: str) -> str:
    """The one setting that a table varies, as section.name; "" if it is another kind of table."""
    rows = all_tables()[table]["row"]
    names = {name for row in rows for name in row.get("set", {})}
    return names.pop() if len(names) == 1 and len(rows) > 2 else ""


def figure(table: str, told: Sequence[Outcome], results: ByKey) -> str:
    """SVG of a table at one of our scales: a line of panels for each task of which several rows were run; else ""."""
    setting = varied(table)
    tasks = [task for task in dict.fromkeys(one.cell.task for one in told) if len(_ours(told, task, setting)) > 1]
    if not setting or not tasks:
        return ""
    with mpl.rc_context(STYLE):
        drawn = Figure(figsize=(7.6, 0.3 + 2.3 * len(tasks)), layout="constrained")
        grid = drawn.subplots(len(tasks), 2, squeeze=False)
        for task, (left, right) in zip(tasks, grid, strict=True):
            mine = [one for one in told if one.cell.task == task]
            _panel(left, _ours(told, task, setting), OURS, f"{title(task)}, {mine[0].cell.scale}")
            _linear(left, task, mine[0].cell.split, results)
            _panel(right, _theirs(mine, setting), THEIRS, f"{title(task)}, the paper")
            for axes in (left, right):
                axes.set_xlabel(SYMBOLS[setting])
            left.set_ylabel(f"{mine[0].cell.split}, hundredths")
    return _on_a_card(svg(drawn))


def _ours(told: Sequence[Outcome], task: str, setting: str) -> list[Point]:
    return [
        Point(
            _value(one.cell.settings().get(setting)), *(one.scores[part] for part in ("mean", "low", "high", "values"))
        )
        for one in told
        if one.cell.task == task and one.scores["values"]
    ]


def _theirs(told: Sequence[Outcome], setting: str) -> list[Point]:
    values = {row["name"]: row.get("set", {}).get(setting) for row in all_tables()[told[0].cell.table]["row"]}
    return [_published(one.cell, _value(values[one.cell.row])) for one in told if one.cell.published]


def _published(cell: Cell, name: str) -> Point:
    mean, deviation = cell.published or (0.0, None)
    return Point(name, mean, mean - (deviation or 0), mean + (deviation or 0), [])


def _value(value: Any) -> str:
    return "none" if value is None else {"inf": "∞"}.get(str(value), f"{float(value):g}")


def _panel(axes: Axes, points: list[Point], tone: str, heading: str) -> None:
    axes.set_title(heading, fontsize=10, loc="left", color=INK)
    axes.tick_params(length=0)
    axes.margins(x=0.12, y=0.12)
    if not points:
        axes.set_xticks([])
        axes.set_yticks([])
        axes.text(0.5, 0.5, "not in the paper", ha="center", va="center", transform=axes.transAxes, color=MUTED)
        return
    axes.grid(axis="x", visible=False)
    axes.set_xticks(range(len(points)), [point.name for point in points])
    axes.plot(range(len(points)), [point.mean for point in points], "-o", color=tone, linewidth=1.6, markersize=5)
    for place, point in enumerate(points):
        if point.low is not None and point.high is not None:
            axes.plot(
                [place, place], [point.low, point.high], color=tone, linewidth=7, alpha=0.25, solid_capstyle="butt"
            )
        axes.plot(
            [place] * len(point.values), point.values, "o", color=tone, markersize=3, alpha=0.6, markeredgewidth=0
        )


def _linear(axes: Axes, task: str, split: str, results: ByKey) -> None:
    for run in results.get(f"{BASELINE}-{task}", {}).values():
        axes.axhline(
            run.score(split) or 0.0, color=COLOURS["baseline"][0], linewidth=1.2, linestyle=(0, (4, 3)), zorder=1
        )


def _on_a_card(drawn: str) -> str:
    dark = f"@media(prefers-color-scheme:dark){{:root{{--card:{CARD[1]}}}}}"
    ground = f'<style>:root{{--card:{CARD[0]}}}{dark}</style><rect width="100%" height="100%" fill="var(--card)"/>'
    head, end, rest = drawn.partition("</style>")
    return f"{head}{end}{ground}{rest}"
