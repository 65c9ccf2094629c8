"""The figure of a curve: a line for each model."""

import math

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from tlm.evaluation.mixture.kinds import KINDS, Row
from tlm.evaluation.pages.plots import COLOURS, INK, STYLE, svg
from tlm.evaluation.pages.text import power
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
        names = []
        for arm, own in points.items():
            row = Row.of(arm, "")
            if row.kind not in KINDS:
                continue
            tone = COLOURS.get(row.text or "baseline", COLOURS["other-0"])[0]
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
        place = lowest
        for mean, value, name, tone in sorted(names):  # from below, none over another
            place = max(mean, place + (highest - lowest) * NAME_HEIGHT)
            axes.annotate(name, (value, place), (6, 0), textcoords="offset points", va="center", fontsize=8, color=tone)
    head, end, rest = svg(drawn).partition("</style>")
    return f"{head}{end}{GROUND}{rest}"


def _extend(axes: Axes, line: tuple[float, float], paper: tuple[float, float] | None, last: float) -> None:
    """Draw a fitted line from the last value to the paper's point, if it has one for the task."""
    if paper is None:
        return
    (slope, intercept), (at, score) = line, paper
    ends = [last, at]
    axes.plot(ends, [slope * math.log10(end) + intercept for end in ends], ":", color=INK, linewidth=1)
    axes.plot([at], [score], "*", color=INK, markersize=9)
    axes.annotate("the paper", (at, score), (-6, 0), textcoords="offset points", ha="right", va="center", fontsize=8)
