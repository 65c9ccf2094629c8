"""Plot what finished models score against the CPU time that they took."""

from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from tlm.evaluation.pages.blocks import COLOURS, INK, MUTED
from tlm.evaluation.pages.plots import STYLE, svg

TICKS = {10: "10 s", 30: "30 s", 60: "1 min", 120: "2", 300: "5", 600: "10", 1800: "30", 3600: "1 h", 7200: "2"}
NEAR, APART = 6.5, 0.045  # names at times within this factor differ by this share of the height
Row = dict[str, Any]  # task, arm, seed, test, cpu_seconds


def score_against_minutes(rows: Sequence[Row]) -> str:
    """The picture as SVG: a panel a task, a dot for each seed, and the name of each arm beside its mean."""
    tasks = sorted({row["task"] for row in rows}, reverse=True)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(7.4, 4.3 * len(tasks)), layout="constrained")
        panels = figure.subplots(len(tasks), 1, squeeze=False)[:, 0]
        for axes, task in zip(panels, tasks, strict=True):
            _panel(axes, [row for row in rows if row["task"] == task])
            axes.set_title(task, loc="left", fontsize=10, color=INK)
            axes.set_ylabel("macro-F1 on test")
        panels[-1].set_xlabel("CPU time of training, the choice of its text included")
        return svg(figure)


def _panel(axes: Axes, rows: Sequence[Row]) -> None:
    axes.set_xscale("log")
    times = [row["cpu_seconds"] for row in rows]
    axes.set_xlim(min(times) / 1.3, 20 * max(times))  # room for names
    axes.xaxis.set_major_locator(FixedLocator(list(TICKS)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda value, _: TICKS[round(value)])
    axes.margins(y=0.08)
    arms = {row["arm"]: [one for one in rows if one["arm"] == row["arm"]] for row in rows}
    for arm, own in arms.items():
        scores, tone = [100 * one["test"] for one in own], COLOURS[_role(arm)][0]
        time, mean = _place(own)
        axes.plot([time] * len(own), scores, "o", color=tone, markersize=4, alpha=0.6, markeredgewidth=0)
        axes.plot([time], [mean], "_", color=tone, markersize=11, markeredgewidth=2)
    for name, place, height, tone in _names(arms, axes.get_ylim()):
        axes.annotate(name, place, (1.13 * place[0], height), color=tone, fontsize=7.5, va="center",
                      arrowprops={"arrowstyle": "-", "color": MUTED, "linewidth": 0.4, "shrinkA": 0})  # fmt: skip


def _place(own: Sequence[Row]) -> tuple[float, float]:
    """The time and the score of an arm: the longest of its runs, and their mean in hundredths."""
    return max(one["cpu_seconds"] for one in own), 100 * fmean(one["test"] for one in own)


def _role(arm: str) -> str:
    """The colour of an arm: that of its text; published models have one of their own."""
    texts = [text for text in ("bm25", "random", "task-only") if text in arm]
    published = "published" in arm or "embeddings" in arm
    return ("other-2" if texts else "other-0") if published else texts[0] if texts else "baseline"


def _names(
    arms: dict[str, list[Row]], ends: tuple[float, float]
) -> Iterator[tuple[str, tuple[float, float], float, str]]:
    """The name of each arm, its point, the height of its name, and its colour; names do not overlap."""
    placed: list[tuple[float, float]] = []
    for arm, (time, score) in sorted(((arm, _place(own)) for arm, own in arms.items()), key=lambda item: -item[1][1]):
        beside = [height for other, height in placed if 1 / NEAR < other / time < NEAR]
        height = min([score, *(taken - APART * (ends[1] - ends[0]) for taken in beside)])
        placed.append((time, height))
        shown = arm.replace("all-MiniLM-L6-v2", "MiniLM").replace("baseline", "linear")
        yield shown, (time, score), height, COLOURS[_role(arm)][0]
