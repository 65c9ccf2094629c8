"""Figures of the retrieval study, in the report's colours."""

from collections.abc import Sequence
from textwrap import wrap
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from matplotlib.ticker import LogLocator, NullFormatter

from tlm.evaluation.pages.blocks import COLOURS, INK, MUTED, RULE
from tlm.evaluation.pages.plots import STYLE, WIDTH, panels, plain_rows, short, svg

HALF = 3.6  # inches: half the width of the page's text


@mpl.rc_context(STYLE)
def overlap(inside: Sequence[Sequence[float]], subsets: Sequence[dict[str, Any]]) -> str:
    """Draw a heat map: the share of the row's passages that are also in the column's subset."""
    size, tone = len(subsets), COLOURS["bm25"][0]
    figure, [axes] = panels(min(WIDTH, 1.6 + 0.85 * size), 0.9 + 0.45 * size)
    for row in range(size):
        for column in range(size):
            share = inside[row][column]
            if row != column:
                axes.add_patch(Rectangle((column - 0.48, row - 0.46), 0.96, 0.92, color=tone, alpha=0.85 * share**0.5))
            text = "–" if row == column else f"{100 * share:.1f}" if share < 0.0995 else f"{100 * share:.0f}"
            axes.text(column, row, text, ha="center", va="center", color=MUTED if row == column else INK, fontsize=10)
    names = [short(one["name"], 26) for one in subsets]
    if size <= 4:
        axes.set_xticks(range(size), ["\n".join(wrap(name, 12)) for name in names], color=INK)
    else:
        axes.set_xticks(range(size), names, color=INK, rotation=30, ha="left")
    axes.set_yticks(range(size), names, color=INK)
    axes.xaxis.tick_top()
    axes.set(xlim=(-0.5, size - 0.5), ylim=(size - 0.5, -0.5))
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    return svg(figure)


@mpl.rc_context(STYLE)
def ranks(subsets: Sequence[dict[str, Any]]) -> str:
    """Draw the share of passages by their best rank, cumulative, one line for each subset."""
    figure, [axes] = panels(HALF, 2.3)
    for one in subsets:
        if one["ranks"]:
            rank, share = zip(*one["ranks"], strict=True)
            axes.plot(rank, [100 * value for value in share], color=COLOURS[one["role"]][0], linewidth=1.8)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=9))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set(ylim=(0, 104), xlabel="best rank, at most", ylabel="% of the passages")
    return svg(figure)


@mpl.rc_context(STYLE)
def shared(subsets: Sequence[dict[str, Any]]) -> str:
    """Draw the share of passages by the number of examples that they were retrieved for, bars side by side."""
    shown = [one for one in subsets if one["shared_by"]]
    names = [row["examples"] for row in shown[0]["shared_by"]]
    figure, [axes] = panels(HALF, 2.3)
    width = 0.8 / len(shown)
    for number, one in enumerate(shown):
        total = sum(row["passages"] for row in one["shared_by"])
        places = [place + (number - (len(shown) - 1) / 2) * width for place in range(len(names))]
        heights = [100 * row["passages"] / total for row in one["shared_by"]]
        axes.bar(places, heights, width=0.94 * width, color=COLOURS[one["role"]][0])
    axes.set_xticks(range(len(names)), names, fontsize=8)
    axes.grid(axis="x", visible=False)
    axes.set(xlabel="examples that a passage was retrieved for", ylabel="% of the passages")
    return svg(figure)


@mpl.rc_context(STYLE)
def sources(rows: Sequence[dict[str, Any]], subsets: Sequence[dict[str, Any]]) -> str:
    """Draw a row for each source: a ring for its share of the corpus, a dot for its share of each subset."""
    figure, [axes] = panels(WIDTH, 0.6 + 0.26 * len(rows))
    for place, row in enumerate(rows):
        values = [100 * share for share in row["subsets"]]
        axes.plot([100 * row["corpus"], *values], [place] * (len(values) + 1), color=RULE, linewidth=2, zorder=1)
        axes.plot([100 * row["corpus"]], [place], "o", color=MUTED, fillstyle="none", markersize=8, markeredgewidth=1.4)
        for one, value in zip(subsets, values, strict=True):
            axes.plot([value], [place], "o", color=COLOURS[one["role"]][0], markersize=6, markeredgewidth=0)
    name_rows(axes, [row["source"] for row in rows], len(rows))
    axes.set(xlim=(-0.4, None), xlabel="% of the passages")
    return svg(figure)


@mpl.rc_context(STYLE)
def words(shift: dict[str, Any], role: str, largest: float) -> str:
    """Draw the z-scores of over-represented words (right) and of others (left), on a scale up to `largest`."""
    over, under = shift["over"], shift["under"]
    longest = max(len(over), len(under), 1)
    figure, [left, right] = panels(WIDTH, 0.65 + 0.215 * longest, columns=2)
    for axes, found, tone, title in (
        (left, under, MUTED, "less frequent than in the rest of the corpus"),
        (right, over, COLOURS[role][0], "more frequent"),
    ):
        axes.barh(range(len(found)), [abs(word["z"]) for word in found], height=0.66, color=tone, alpha=0.8)
        name_rows(axes, [word["word"] for word in found], longest)
        axes.set_title(title, loc="left", fontsize=9.5, color=INK)
        axes.set(xlim=(0, 1.04 * largest), xlabel="z-score")
    return svg(figure)


def name_rows(axes: Axes, names: Sequence[str], rows: int) -> None:
    """Name the rows of a chart with room for `rows` of them, the first at the top."""
    axes.set_yticks(range(len(names)), [short(name, 26) for name in names], color=INK)
    axes.set_ylim(rows - 0.4, -0.6)
    plain_rows(axes)
