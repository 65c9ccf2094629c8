"""Pictures of the page: the growth of a cost, and every ratio that has a target in one picture."""

import re
from collections.abc import Iterable
from itertools import takewhile
from pathlib import Path
from typing import Any

from research.benchmarks.row import PASS, Result, Row, number

REACHED, SHORT_OF, GREY = "#1f5fa8", "#d9822b", "#888888"
INCHES = 0.26  # height of a line of the overview

Line = tuple[str, float, list[Result]]


def growth(row: Row, result: Result, folder: Path) -> Path:
    """Both axes logarithmic, with the line of the fitted exponent and one of exponent 1; the file that was written."""
    pyplot, ticker = _matplotlib()
    figure, axes = pyplot.subplots(figsize=(4.8, 3.2), layout="constrained")
    sizes, values = zip(*sorted(result.points), strict=True)
    axes.loglog(sizes, values, "o-", color=REACHED, label=f"measured, exponent {result.ours:.2f}")
    middle = len(sizes) // 2
    straight = [values[middle] * size / sizes[middle] for size in sizes]
    axes.loglog(sizes, straight, "--", color=GREY, label="in proportion")
    axes.minorticks_off()
    axes.set_xticks(sizes, [number(size) for size in sizes])
    axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: number(value)))
    axes.set(xlabel=result.axes[0], ylabel=result.axes[1], title=result.label)
    axes.legend(frameon=False)
    return _save(figure, folder / f"{row.name}-{re.sub('[^a-z0-9]+', '-', result.label.lower()).strip('-')}.svg")


def overview(rows: Iterable[tuple[Row, list[Result]]], file: Path) -> Path:
    """Medians as dots, least to largest as bars, targets as ticks, on a logarithmic axis; the file that was written."""
    pyplot, ticker = _matplotlib()
    drawn = lines(rows)
    figure, axes = pyplot.subplots(figsize=(9, 1 + INCHES * len(drawn)), layout="constrained")
    axes.axvline(1, color=GREY, linewidth=0.8, zorder=0)
    for place, (_, target, results) in enumerate(drawn):
        axes.plot([target, target], [place - 0.38, place + 0.38], color="black", linewidth=1.6)
        for nth, result in enumerate(results):
            _dot(axes, result, place + 0.5 * ((nth + 0.5) / len(results) - 0.5))
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{number(value)}×"))
    axes.minorticks_off()
    axes.set_yticks(range(len(drawn)), [name for name, *_ in drawn], fontsize=8)
    axes.set_ylim(len(drawn) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    figure.supxlabel("times as good as the other; tick: to be reached; blue: reached, orange: short", fontsize=9)
    return _save(figure, file)


def lines(rows: Iterable[tuple[Row, list[Result]]]) -> list[Line]:
    """The name of each comparison, its target, and its results, in the rows' order."""
    found: dict[tuple[str, str, str], list[Result]] = {}
    for row, results in rows:
        for result in results:
            if result.ratio is not None and result.target:
                found.setdefault((row.stage, result.against, result.target), []).append(result)
    return [
        (_name(stage, other, [result.label for result in results]), float(re.findall(r"[\d.]+", target)[0]), results)
        for (stage, other, target), results in found.items()
    ]


def _name(stage: str, other: str, labels: list[str]) -> str:
    """With what the labels have in common, unless the stage says it."""
    parts = zip(*(label.split(", ") for label in labels), strict=False)
    common = ", ".join(part[0] for part in takewhile(lambda part: len(set(part)) == 1, parts))
    return ", ".join([stage, *[common] * (common not in stage), f"against {other}"])


def _dot(axes: Any, result: Result, height: float) -> None:
    color = REACHED if result.verdict == PASS else SHORT_OF
    if result.low is not None and result.high is not None:
        axes.plot([result.low, result.high], [height, height], color=color, linewidth=1, alpha=0.5)
    axes.plot([result.ratio], [height], "o", color=color, markersize=4.5, zorder=4)


def _matplotlib() -> tuple[Any, Any]:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "benchmarks"  # the same numbers give the same file
    from matplotlib import pyplot, ticker

    return pyplot, ticker


def _save(figure: Any, file: Path) -> Path:
    from matplotlib import pyplot

    figure.savefig(file, metadata={"Date": None})
    pyplot.close(figure)
    return file
