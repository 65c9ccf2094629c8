"""The plots of reports and studies: SVG with colours for light and dark mode.

No text in an image can run. Matplotlib draws with marker colours, which are then replaced by CSS variables. Equal data
give equal bytes.
"""

import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tlm.evaluation.pages.blocks import COLOURS, DASHES, INK, MUTED, RULE, css_colours

TICKS = {"color": RULE, "labelcolor": MUTED, "labelsize": 9, "major.size": 0, "minor.size": 0}
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "tlm",
    "font.size": 10,
    "text.color": INK,
    "text.parse_math": False,
    "axes.edgecolor": RULE,
    "axes.labelcolor": MUTED,
    "axes.labelsize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": RULE,
    "grid.linewidth": 0.6,
    **{f"{axis}tick.{name}": value for axis in "xy" for name, value in TICKS.items()},
}
WIDTH, NARROW = 7.4, 3.7  # inches: the width of the page's text, and of a phone's
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif"


@mpl.rc_context(STYLE)
def dots(groups: Sequence[Mapping[str, Any]], label: str, *, best: str = "", narrow: bool = False) -> str:
    """Test scores, a row for each group: dots (seeds), a band (95 % interval), a stroke (mean); a line (the baseline).

    Where there is no interval, dots are hollow. The name of the group `best` is bold. In a narrow plot, names stand
    above their rows.
    """
    width, height, longest, reach = (NARROW, 0.56, 44, 0.22) if narrow else (WIDTH, 0.38, 64, 0.3)
    rows = range(len(groups))
    figure, [axes] = panels(width, 0.7 + height * len(groups))
    for row, group in enumerate(reversed(groups)):
        tone, spread = _tone(group), group["test"]
        if group["arm"] == "baseline":
            spans = [(one - 0.42, one + 0.25) for one in rows] if narrow else [(-0.5, len(groups) - 0.5)]
            for low, high in spans:  # not through names
                axes.vlines(100 * spread["mean"], low, high, color=tone, linewidth=1.2, linestyle=(0, (4, 3)), zorder=1)
        if spread["low"] is not None:
            axes.hlines(row, 100 * spread["low"], 100 * spread["high"], color=tone, linewidth=8, alpha=0.22)
        axes.vlines(100 * spread["mean"], row - reach, row + reach, color=tone, linewidth=2.2)
        values = [100 * value for value in spread["values"]]
        filled: dict[str, Any] = {"markeredgewidth": 0} if spread["low"] is not None else {"fillstyle": "none"}
        axes.plot(values, [row] * len(values), "o", color=tone, markersize=5, alpha=0.75, **filled)
    above: dict[str, Any] = {"ha": "left", "va": "bottom"} if narrow else {}
    names = [short(group["name"], longest) for group in reversed(groups)]
    axes.set_yticks([row + 0.28 * narrow for row in rows], names, color=INK, **above)
    for name, group in zip(axes.get_yticklabels(), reversed(groups), strict=True):
        name.set_fontweight("bold" if group["name"] == best else "normal")
    axes.set_ylim(-0.6, len(groups) - 0.4 + 0.2 * narrow)
    plain_rows(axes)
    axes.margins(x=0.08)
    axes.set_xlabel(label, loc="right")  # beside long names, a label in the middle would be cut off
    return svg(figure)


@mpl.rc_context(STYLE)
def lines(panel: dict[str, Any], groups: Sequence[Mapping[str, Any]]) -> str:
    """A panel of loss curves: a line for each group."""
    figure, [axes] = panels(4.0, 2.4)
    styles: dict[str, dict[str, Any]] = {
        group["name"]: {"color": _tone(group), "linestyle": (0, DASHES.get(group["role"]))} for group in groups
    }
    for line in panel["lines"]:
        steps, losses = zip(*line["points"], strict=True)
        axes.plot(steps, losses, linewidth=1.6, solid_joinstyle="round", **styles[line["group"]])
    axes.set_xlabel("step")
    return svg(figure)


@mpl.rc_context(STYLE)
def coverage(rows: Sequence[Mapping[str, Any]], role: str) -> str:
    """Accuracy against the share of texts that are answered, on dev (dashed) and test, with a dot at each threshold."""
    figure, [axes] = panels(4.2, 2.6)
    for split, tone, style in (("dev", MUTED, (0, (4, 3))), ("test", COLOURS[role][0], "solid")):
        dots = [(100 * row[split]["share"], 100 * row[split]["accuracy"]) for row in rows if row[split]["share"]]
        axes.plot(*zip(*dots, strict=True), marker="o", color=tone, linestyle=style, markersize=4, label=split)
    axes.legend(frameon=False, fontsize=9, labelcolor=MUTED)
    axes.set(xlabel="texts answered, %", ylabel="accuracy of these, %")
    return svg(figure)


@mpl.rc_context(STYLE)
def scatter(gold: Sequence[float], predicted: Sequence[float], role: str) -> str:
    """Predicted against gold values of a regression task, with the line of equality."""
    figure, [axes] = panels(4.2, 3.6)
    axes.axline((float(gold[0]), float(gold[0])), slope=1, color=MUTED, linewidth=1.2)
    axes.plot(gold, predicted, "o", color=COLOURS[role][0], markersize=3.5, alpha=0.5, markeredgewidth=0)
    axes.set(xlabel="gold", ylabel="predicted")
    return svg(figure)


def panels(width: float, height: float, rows: int = 1, columns: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure of this size in inches, and its axes row by row."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False).ravel().tolist()


def plain_rows(axes: Axes) -> None:
    """Remove the horizontal grid lines and the left spine."""
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_visible(False)


def _tone(group: Mapping[str, Any]) -> str:
    return COLOURS[group["role"]][0]


def short(name: str, longest: int = 34) -> str:
    """Cut a name in the middle to at most `longest` characters: arms of one published model differ at their ends."""
    half = longest // 2
    return name if len(name) <= longest else f"{name[: longest - 1 - half]}…{name[-half:]}"


def svg(figure: Figure) -> str:
    """The figure as an SVG file with colours for light and dark mode."""
    figure.patch.set_visible(False)
    for axes in figure.axes:
        axes.patch.set_visible(False)
    buffer = io.BytesIO()
    with mpl.rc_context(STYLE):
        figure.savefig(buffer, format="svg")
    drawn = buffer.getvalue().decode()
    for role, (marker, _, _) in COLOURS.items():
        drawn = drawn.replace(marker, f"var(--{role})")
    drawn = re.sub(r"<metadata>.*?</metadata>\s*", "", re.sub(r"font-family: [^;]*;", "", drawn), flags=re.DOTALL)
    dark = f"@media(prefers-color-scheme:dark){{:root{{{css_colours(2)}}}}}"
    style = f"<style>:root{{{css_colours(1)}}}{dark}text{{font-family:{FONT}}}</style>"
    head, _, rest = drawn.partition("<defs>")
    return f"{head}{style}<defs>{rest}"
