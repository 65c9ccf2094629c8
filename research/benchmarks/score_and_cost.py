"""Plot what a selector's text gains beside what choosing it took: ``python -m research.benchmarks.score_and_cost``.

Both come from kept results: CPU seconds from the row `selectors`, scores from the points of the curve `selectors`.
"""

from collections import defaultdict
from itertools import cycle
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from research.benchmarks.kept import NUMBERS, read
from research.paper.figure import on_ground
from research.paper.results import FOLDER, Result, read_results, summed
from research.paper.tables import title
from tlm.evaluation.pages.blocks import COLOURS, INK, MUTED, SPARE_ROLES
from tlm.evaluation.pages.plots import STYLE
from tlm.evaluation.score.baseline import STATIC
from tlm.evaluation.score.mix import LINEAR, ReportRow
from tlm.settings.selectors import SELECTORS

PICTURE = "table-selectors/cost.svg"
TICKS = (0.01, 0.1, 1, 10, 100, 1000)
MIXED = f"{STATIC} + {LINEAR}"
OTHERS = sorted(SELECTORS.keys() - {"bm25", "random"})
ROLES = {"bm25": "bm25", "random": "random", **dict(zip(OTHERS, cycle(SPARE_ROLES), strict=False))}
Place = tuple[str, float]  # task, share of the corpus on topic


def draw(results: Path) -> str:
    """A panel for each task and share, as SVG: CPU seconds of choosing, test score of the text mixed with linear."""
    taken, scored = seconds(results), scores(results)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(7.6, 5.6), layout="constrained")
        panels = figure.subplots(2, 2, sharex=True).flat
        for axes, place in zip(panels, sorted(taken, reverse=True), strict=True):
            _panel(axes, place, taken[place], scored[place])
        named = figure.axes[0].get_legend_handles_labels()
        figure.legend(*named, loc="outside upper left", ncols=7, frameon=False, columnspacing=1.2, handletextpad=0)
        figure.supxlabel("CPU seconds of choosing (one core)", fontsize=9.5, color=MUTED)
        figure.supylabel("test, hundredths", fontsize=9.5, color=MUTED)
        return on_ground(figure)


def seconds(results: Path) -> dict[Place, dict[str, float]]:
    """The CPU seconds of each selector, as ``python -m research.benchmarks selectors`` kept them."""
    found: dict[Place, dict[str, float]] = defaultdict(dict)
    facts = read("selectors", results / NUMBERS)
    for result in facts.results if facts else ():
        if result.ours is not None:
            task, share, arm = result.label.split(", ")
            found[task, int(share.split("%")[0]) / 100][arm] = result.ours
    return found


def scores(results: Path) -> dict[Place, dict[str, list[Result]]]:
    """The runs of each selector's static model mixed with the linear one; under "", those of the linear one alone."""
    found: dict[Place, dict[str, list[Result]]] = defaultdict(lambda: defaultdict(list))
    for run in read_results(results):
        cell = run.values["cell"]
        row = ReportRow.of(cell["row"], "")
        if cell["table"] == "selectors" and row.kind in (MIXED, LINEAR):
            found[cell["column"], cell["at"]][row.text].append(run)
    return found


def _panel(axes: Axes, place: Place, taken: dict[str, float], runs: dict[str, list[Result]]) -> None:
    task, share = place
    axes.set_title(f"{title(task)}, {share:.0%} on topic", fontsize=10, loc="left", color=INK)
    axes.axhline(summed(runs[""], "test")["mean"], color=COLOURS["baseline"][0], linewidth=1.2, linestyle=(0, (4, 3)))
    for arm, cost in taken.items():
        tone, score = COLOURS[ROLES[arm]][0], summed(runs[arm], "test")
        axes.plot([cost, cost], [score["low"], score["high"]], color=tone, linewidth=5, alpha=0.25)
        axes.plot([cost], [score["mean"]], "o", color=tone, markersize=6, label=arm)
    axes.set_xscale("log")
    axes.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS])
    axes.minorticks_off()
    axes.margins(x=0.12, y=0.12)


if __name__ == "__main__":
    Path(FOLDER, PICTURE).write_text(draw(Path(FOLDER)), encoding="utf-8")
    print(Path(FOLDER, PICTURE))
