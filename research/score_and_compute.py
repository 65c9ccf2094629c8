"""Plot score against compute: our runs, and in a panel of their own the paper's models (Table 2, published.toml)."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator
from matplotlib.transforms import ScaledTranslation

from research.paper.tables import data
from tlm.evaluation.pages.blocks import COLOURS, INK, MUTED
from tlm.evaluation.pages.plots import STYLE, short, svg
from tlm.evaluation.pages.text import power

SAME = 1.1  # arms whose FLOPs differ by less are drawn side by side
APART = 13.0  # distance between them in points


@dataclass(frozen=True)
class Point:
    """A model, or an arm with its seeds.

    Attributes:
        name: Label beside the point or in the legend.
        flops: FLOPs of training by the paper's rule, for comparison with the paper; 0 if unknown.
        scores: Score of each seed in hundredths. The point is drawn at their mean.
        role: Role of its colour; ``paper`` is TLM in the paper, ``pretrained`` a pretrained model there.
    """

    name: str
    flops: float
    scores: Sequence[float] = ()
    role: str = "pretrained"

    @property
    def score(self) -> float:
        """The mean score."""
        return sum(self.scores) / len(self.scores)


def published() -> list[Point]:
    """The paper's models with their average test score on its eight tasks."""
    return [
        Point(model["name"], model["flops"], [model["score"]], model["role"])
        for model in data("published.toml")["model"]
    ]


def score_against_compute(ours: Sequence[Point], papers: Sequence[Point], label: str, under: str = "") -> str:
    """Draw score against FLOPs (logarithmic) as SVG, in two panels with a break between and separate score axes.

    The paper's scores are for other tasks and mostly at far more compute; on a shared score axis, both panels would be
    flat lines. A power of ten has the same width in both panels.

    Args:
        ours: Our arms: a dot for each seed, a stroke for the mean; a dashed line for an arm without FLOPs.
        papers: The paper's models: TLM as filled dots with a line through them, the others as rings.
        label: Label of our scores, such as "macro-F1 on test".
        under: What our FLOPs leave out.
    """
    counted = [point.flops for point in ours if point.flops]
    ends = [_decades(counted), _decades([point.flops for point in papers])]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(7.4, 3.8), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=[math.log10(high / low) for low, high in ends])
        _ours(left, ours)
        _papers(right, papers)
        for axes, (low, high) in zip((left, right), ends, strict=True):
            axes.set_xscale("log")
            axes.set_xlim(low, high)
            axes.xaxis.set_major_locator(LogLocator(numticks=12))
            axes.xaxis.set_minor_locator(NullLocator())
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: power(value).removeprefix("1·")))
            axes.tick_params(axis="x", pad=7)
        right.yaxis.tick_right()
        right.yaxis.set_label_position("right")
        right.spines["right"].set_visible(True)
        right.spines["left"].set_visible(False)
        for axes, corner in ((left, 1), (right, 0)):  # the axis is broken here
            axes.plot([corner], [0], transform=axes.transAxes, clip_on=False, color=MUTED,
                      marker=[(-0.4, -1), (0.4, 1)], markersize=9)  # fmt: skip
        left.set_title("Our runs", loc="left", fontsize=10, color=INK)
        right.set_title(f"The paper’s models{_distance(counted, papers)}", loc="left", fontsize=10, color=INK)
        left.set_ylabel(label)
        left.set_xlabel(under)
        right.set_ylabel("average test score of its eight tasks")
        right.set_xlabel("FLOPs of training, by the paper’s rule")
        figure.legend(loc="outside lower left", ncols=3, frameon=False, fontsize=9, handletextpad=0.4,
                      labelcolor=INK)  # fmt: skip
        return svg(figure)


def _decades(flops: Sequence[float]) -> tuple[float, float]:
    """The powers of ten around these values, with some room."""
    low, high = math.log10(min(flops, default=1e12)), math.log10(max(flops, default=1e12))
    return 10.0 ** math.floor(low - 0.3), 10.0 ** math.ceil(high + 0.3)


def _distance(counted: Sequence[float], papers: Sequence[Point]) -> str:
    times = min(point.flops for point in papers) / max(counted, default=math.inf)
    return f": {power(float(f'{times:.1g}'))} times our compute and more" if times >= 10 else ""


def _ours(axes: Axes, points: Sequence[Point]) -> None:
    scores = [score for point in points for score in point.scores]
    room = 0.08 * (max(scores) - min(scores)) or 1.0  # matplotlib does not count points that are moved aside
    axes.set_ylim(min(scores) - room, max(scores) + room)
    for point, place in _side_by_side(points):
        tone = COLOURS[point.role][0]
        if not point.flops:
            axes.axhline(point.score, color=tone, linewidth=1.2, linestyle=(0, (4, 3)), label=short(point.name))
            continue
        assert axes.figure is not None
        moved = axes.transData + ScaledTranslation(place * APART / 72, 0, axes.figure.dpi_scale_trans)
        axes.plot([point.flops] * len(point.scores), point.scores, "o", color=tone, markersize=5, alpha=0.75,
                  markeredgewidth=0, transform=moved, label=short(point.name))  # fmt: skip
        axes.plot([point.flops], [point.score], "_", color=tone, markersize=13, markeredgewidth=2.2,
                  transform=moved)  # fmt: skip


def _side_by_side(points: Sequence[Point]) -> Iterator[tuple[Point, float]]:
    """Each point with its position among those of about the same FLOPs, counted from their middle."""
    for point in points:
        near = [other for other in points if 1 / SAME < (other.flops or 1) / (point.flops or 1) < SAME]
        yield point, near.index(point) - (len(near) - 1) / 2


def _papers(axes: Axes, points: Sequence[Point]) -> None:
    axes.margins(y=0.14)
    beside: dict[str, Any] = {"xytext": (9, -3), "ha": "left", "va": "center"}
    below: dict[str, Any] = {"xytext": (16, -7), "ha": "right", "va": "top"}
    for role, tone, named in (("paper", INK, beside), ("pretrained", MUTED, below)):
        chosen = sorted((point for point in points if point.role == role), key=lambda point: point.flops)
        flops, scores = [point.flops for point in chosen], [point.score for point in chosen]
        axes.plot(flops, scores, "o", color=tone, linestyle="-" if role == "paper" else "none", linewidth=1,
                  markersize=7, markerfacecolor=tone if role == "paper" else "none", markeredgewidth=1.4)  # fmt: skip
        for point in chosen:
            axes.annotate(point.name, (point.flops, point.score), textcoords="offset points", fontsize=8.5, color=tone,
                          **named)  # fmt: skip
