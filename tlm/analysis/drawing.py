"""What the figures of both studies share."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

WIDTH = 7.4  # inches: the width of the page's text


def panels(width: float, height: float, rows: int = 1, columns: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure of this size in inches, and its axes, row by row."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False).ravel().tolist()


def plain_rows(axes: Axes) -> None:
    """Remove horizontal grid lines, the left spine and the ticks of a chart with one row for each name."""
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_visible(False)
    axes.tick_params(length=0)


def short(name: str, longest: int) -> str:
    """Cut a name to at most `longest` characters."""
    return name if len(name) <= longest else f"{name[: longest - 1]}…"
