"""What the figures of both studies share."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tlm.evaluation.pages.plots import INK

WIDTH = 7.4  # inches: the width of the page's text


def panels(width: float, height: float, rows: int = 1, columns: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure of this size in inches, and its axes row by row; ticks have labels but no marks."""
    figure = Figure(figsize=(width, height), layout="constrained")
    grid: list[Axes] = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
    for axes in grid:
        axes.tick_params(which="both", length=0)
    return figure, grid


def plain_rows(axes: Axes) -> None:
    """Remove the horizontal grid lines and the left spine."""
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_visible(False)


def name_rows(axes: Axes, names: Sequence[str], rows: int) -> None:
    """Name the rows of a chart with room for `rows` of them, the first at the top."""
    axes.set_yticks(range(len(names)), [short(name, 26) for name in names], color=INK)
    axes.set_ylim(rows - 0.4, -0.6)
    plain_rows(axes)


def short(name: str, longest: int) -> str:
    """Cut a name to at most `longest` characters."""
    return name if len(name) <= longest else f"{name[: longest - 1]}…"
