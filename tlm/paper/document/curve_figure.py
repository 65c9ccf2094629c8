"""The figure of a curve: a line for each model."""

import math
from itertools import cycle

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from tlm.evaluation.mixture.kinds import KINDS, PARTS, Row
from tlm.evaluation.pages.plots import COLOURS, INK, STYLE, svg
from tlm.evaluation.pages.text import power
from tlm.evaluation.report.runs import SPARE_ROLES
from tlm.evaluation.score.baseline import STATIC
from tlm.paper.curves import curves
from tlm.paper.document.curves import Points, fit, points_of, values_of
from tlm.paper.document.figure import GROUND
from tlm.paper.examples import summed
from tlm.paper.plan import ByKey
from tlm.paper.tables import title

NAME_HEIGHT = 0.05  # of a line's name, as a part of the axis


def figure(curve: str, results: ByKey) -> str:
    """A panel for each task, as SVG; "" if nothing is run."""
    found = points_of(curve, results)
    return _drawn(curve, found) if found else ""


@mpl.rc_context(STYLE)
def _drawn(curve: str, found: dict[str, Points]) -> str:
    drawn = Figure(figsize=(7.6, 0.4 + 2.9 * len(found)), layout="constrained")
    grid = drawn.subplots(len(found), 1, squeeze=False)
    for (task, points), (axes,) in zip(found.items(), grid, strict=True):
        axes.set_title(title(task), fontsize=10, loc="left", color=INK)
        names, spare = [], _spare_tones(points)
        for arm, own in points.items():
            row = Row.of(arm, "")
            if row.kind not in KINDS or row.kind in curves()[curve].get("undrawn", ()):
                continue
            role = row.text or "baseline"
            tone = COLOURS.get(role, COLOURS[spare.get(role, "other-0")])[0]
            values = sorted(own)
            means = [summed(own[value], "test")["mean"] for value in values]
            axes.plot(
                values, means, "--" if row.kind == STATIC else "-", marker="o", color=tone, linewidth=1.6, markersize=4
            )
            names.append((means[-1], values[-1], row.name, tone))
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
        lowest, highest = axes.get_ylim()
        names.sort()
        heights = apart([mean for mean, *_ in names], (highest - lowest) * NAME_HEIGHT, lowest, highest)
        for place, (_, value, name, tone) in zip(heights, names, strict=True):
            axes.annotate(name, (value, place), (6, 0), textcoords="offset points", va="center", fontsize=8, color=tone)
    head, end, rest = svg(drawn).partition("</style>")
    return f"{head}{end}{GROUND}{rest}"


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
