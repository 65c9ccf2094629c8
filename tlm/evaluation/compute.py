"""Score against compute: our runs beside the paper's models (Table 2), which are given as data."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from tlm.evaluation.plots import COLOURS, INK, MUTED, STYLE, svg
from tlm.evaluation.text import power


@dataclass(frozen=True)
class Point:
    """A model, or an arm with its seeds.

    Attributes:
        name: As it is written beside the point.
        flops: Of its training, by the paper's rule, so that it compares with the paper's.
        scores: In hundredths; one for each seed. The point stands at their mean.
        role: Of its colour; ``paper`` is TLM in the paper, ``pretrained`` a pretrained model there.
        std: Published, where there are no single scores.
    """

    name: str
    flops: float
    scores: Sequence[float] = field(default_factory=tuple)
    role: str = "pretrained"
    std: float | None = None

    @property
    def score(self) -> float:
        """The mean."""
        return sum(self.scores) / len(self.scores)


def score_against_compute(ours: Sequence[Point], published: Sequence[Point], label: str) -> str:
    """SVG: score (y) against FLOPs (x, logarithmic). Ours are filled dots, the paper's are rings, TLM's of it joined.

    Args:
        ours: Our arms; all seeds are drawn, small, around the mean.
        published: The paper's Table 2, for one task or the average of the eight.
        label: Of the y-axis, such as "macro-F1 on test".
    """
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(7.4, 3.4), layout="constrained")
        axes = figure.add_subplot()
        tlm = sorted((point for point in published if point.role == "paper"), key=lambda point: point.flops)
        axes.plot([point.flops for point in tlm], [point.score for point in tlm], color=INK, linewidth=1, zorder=1)
        crowded = len(ours) > 0
        for role, tone, side in (("paper", INK, 1), ("pretrained", MUTED, -1)):
            chosen = sorted((point for point in published if point.role == role), key=lambda point: point.flops)
            for place, point in enumerate(chosen):
                inside = tone if role == "paper" else "none"
                axes.plot([point.flops], [point.score], "o", markersize=7, markerfacecolor=inside, markeredgecolor=tone,
                          markeredgewidth=1.4)  # fmt: skip
                away = 8 + 14 * (place % 2) * crowded  # neighbours' names at different heights
                _name(axes, point, tone, (0, side * away))
        for point in ours:
            tone = COLOURS[point.role][0]
            axes.plot([point.flops] * len(point.scores), point.scores, "o", color=tone, markersize=4, alpha=0.45,
                      markeredgewidth=0)  # fmt: skip
            axes.plot([point.flops], [point.score], "o", color=tone, markersize=8, markeredgewidth=0)
            _name(axes, point, tone, (9, 0))
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(numticks=12))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: power(value).removeprefix("1·")))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.margins(x=0.1, y=0.14)
        axes.set_xlabel("FLOPs of training, by the paper’s rule")
        axes.set_ylabel(label)
        axes.tick_params(length=0, which="both")
        return svg(figure)


def data_uri(drawn: str) -> str:
    """An SVG as the address of an image in a page."""
    return "data:image/svg+xml;base64," + base64.b64encode(drawn.encode()).decode()


def _name(axes: Axes, point: Point, tone: str, offset: tuple[int, int]) -> None:
    beside, above = offset[0] > 0, offset[1] > 0
    axes.annotate(point.name, (point.flops, point.score), offset, textcoords="offset points",
                  ha="left" if beside else "center", va="center" if beside else "bottom" if above else "top",
                  fontsize=8.5, color=tone)  # fmt: skip
