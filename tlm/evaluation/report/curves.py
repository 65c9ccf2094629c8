"""Loss curves of a group: the mean over its seeds, thinned to as many points as a page can carry."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tlm.artifacts.artifact import Artifact
from tlm.errors import InputError
from tlm.evaluation.pages import plots
from tlm.evaluation.pages.blocks import Block, Drawn, Figure, Heading, Text
from tlm.evaluation.report.page.formats import named
from tlm.evaluation.report.runs import Group

BINS = 80
PANELS = {  # title: (artifact of a run, kind of batch or None, column)
    "Stage 1, external batches: masked LM": ("checkpoint", "external", "mlm"),
    "Stage 1, task batches: masked LM": ("checkpoint", "internal", "mlm"),
    "Stage 1, task batches: cross-entropy": ("checkpoint", "internal", "ce"),
    "Stage 2: cross-entropy": ("model", None, "ce"),
}


def curves(groups: list[Group], regression: bool) -> list[dict[str, Any]]:
    """One panel for each kind of loss in some group: {title, lines: [{group, points: [[step, loss]]}]}."""
    panels = []
    for title, (part, kind, column) in PANELS.items():
        points = {group.name: _line(group, part, kind, column) for group in groups}
        lines = [{"group": name, "points": line} for name, line in points.items() if line]
        if lines:
            shown = title.replace("cross-entropy", "squared error") if regression else title
            panels.append({"title": shown, "lines": lines})
    return panels


def _line(group: Group, part: str, kind: str | None, column: str) -> list[list[float]]:
    """Mean loss over all seeds in `BINS` equal parts of the steps; [] if there is no curve."""
    read = [_read(getattr(run, part), kind, column, run.values["task"]) for run in group.runs]
    steps, losses = (np.concatenate([one[index] for one in read]) for index in (0, 1))
    if not len(steps):
        return []
    edges = np.linspace(0, steps.max() + 1, min(BINS, int(steps.max()) + 1) + 1)
    place = np.searchsorted(edges, steps, side="right") - 1
    return [
        [round(float(steps[inside].mean()), 1), round(float(losses[inside].mean()), 4)]
        for index in range(len(edges) - 1)
        if (inside := place == index).any()
    ]


def _read(artifact: Artifact | None, kind: str | None, column: str, task: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Steps and losses; if stage 1 was for several tasks, only those of external batches and of `task`'s own."""
    nothing = np.zeros(0), np.zeros(0)
    if artifact is None:
        return nothing
    try:
        table = pq.ParquetFile(artifact.path("curve.parquet")).read()
    except InputError:
        return nothing
    values = np.asarray(table[column].to_pylist(), dtype=float)
    keep = np.isfinite(values)
    if kind is not None:
        keep &= np.asarray(table["kind"].to_pylist(), dtype=object) == kind
    if "task" in table.column_names:
        keep &= np.asarray([name in (task, None) for name in table["task"].to_pylist()])
    return np.asarray(table["step"].to_pylist(), dtype=float)[keep], values[keep]


def section(panels: Sequence[dict[str, Any]], groups: Sequence[dict[str, Any]]) -> Iterator[Block]:
    """The curves as figures."""
    if not panels:
        return
    drawn = {line["group"] for panel in panels for line in panel["lines"]}
    legend = Text(tuple(named(group) for group in groups if group["name"] in drawn), "legend")
    figures = [Figure(panel["title"], plots.lines(panel, groups)) for panel in panels]
    note = (
        "Losses are means over all seeds of an arm and over short intervals of steps. Lower is better; compare curves "
        "within a panel only."
    )
    yield Drawn((Heading("Training"), legend, *figures, Text(note, "small")))
