"""The paper's tables for people: what it prints, what came out, and the verdicts."""

from collections.abc import Sequence
from typing import NamedTuple

from tlm.paper.document.blocks import Block, plus_minus
from tlm.paper.document.verdicts import MISS, NOT_RUN, Comparison, Outcome, comparisons, outcomes, tally
from tlm.paper.plan import ByKey
from tlm.paper.results import BASELINE
from tlm.paper.tables import PAPER, cells, expected, ladders, our_name, title


class Report(NamedTuple):
    """What there is to print, and which runs miss at the paper's scales, each with the tables that it stands in."""

    blocks: list[Block]
    misses: dict[str, list[str]]


def report(results: ByKey, tables: Sequence[str], scales: Sequence[str], tolerance: float = 0.0) -> Report:
    """Every table at every scale: an overview, then those in detail of which something was run (or that were named).

    Args:
        results: All results.
        tables: Numbers of the tables.
        scales: Names; the paper's count as one, since no table has the same rows at two of them.
        tolerance: Least room of a verdict at the paper's scales, in hundredths.
    """
    blocks, overview = [], []
    misses: dict[str, list[str]] = {}
    for table in tables:
        found = [(scale, outcomes_at(table, scale, results, tolerance)) for scale in scales]
        at_paper = [one for scale, told in found if scale in PAPER for one in told]
        overview.append((table, expected()[table]["title"], *_summary(at_paper, found)))
        for scale, told in found:
            ran = any(one.scores["values"] for one in told)
            if told and (ran or len(tables) == 1):
                blocks.append(_block(table, scale, told, results))
        for key in dict.fromkeys(one.cell.key for one in at_paper if one.verdict == MISS):
            misses.setdefault(key, []).append(table)
    head = ("table", "what", "at the paper's scale", "the paper's order at small scale")
    return Report([Block("The paper's tables", [head, *overview], []), *blocks], misses)


def outcomes_at(table: str, scale: str, results: ByKey, tolerance: float = 0.0) -> list[Outcome]:
    """The cells of a table at a scale with what came out, also for tasks that only we have results of."""
    tasks = _tasks(table, scale, results)
    return outcomes(cells(table, scale, tasks), results, judged=scale in PAPER, tolerance=tolerance)


def _tasks(table: str, scale: str, results: ByKey) -> list[str]:
    """The table's own, and at our scales those others of which there is a result of this table."""
    own = [column.partition("/")[0] for column in expected()[table]["row"][0]["values"]]
    if scale in PAPER:
        return own
    places = [run.values["cell"] for runs in results.values() for run in runs.values()]
    more = {place["column"] for place in places if (place["table"], place["scale"]) == (table, scale)}
    return [*own, *sorted(more - set(own))]


def _summary(at_paper: list[Outcome], found: list[tuple[str, list[Outcome]]]) -> tuple[str, str]:
    told = []
    for scale, here in found:
        if scale not in PAPER:
            verdicts = [one.verdict for one in comparisons(here)]
            if set(verdicts) - {NOT_RUN}:
                told.append(f"{scale}: {tally([one for one in verdicts if one != NOT_RUN])}")
    return tally([one.verdict for one in at_paper]) or "–", "; ".join(told) or "–"


def _block(table: str, scale: str, told: list[Outcome], results: ByKey) -> Block:
    facts = expected()[table]
    rows = list(dict.fromkeys(one.cell.row for one in told))
    columns = list(dict.fromkeys(one.cell.column for one in told))
    if scale not in PAPER:
        columns = [column for column in columns if any(_ran(one, column) for one in told)] or columns
    place = {(one.cell.row, one.cell.column): one for one in told}
    grid = [("", *(_column(column) for column in columns))]
    grid += [(row, *(_cell(place[row, column]) for column in columns)) for row in rows]
    grid += _baseline(columns, results, told[0].cell.split) if scale not in PAPER else []
    heading = f"Table {table}: {facts['title']} ({scale}, {told[0].cell.split})"
    lines = [f"published in {facts['source']}"]
    if scale in PAPER:
        lines.append("each cell: published → ours (mean ± standard deviation of so many seeds), verdict")
    else:
        lines.append(f"{scale} stands for the small scale: {ladders()[scale]['note']}")
        lines.append("rows are the paper's; each cell: ours (seeds) and [what differs from the preset]")
        models = {one.cell.row: one.cell.start for one in told if one.cell.start}
        lines += [f"{row}: {model} stands for the paper's model" for row, model in models.items()]
    lines += [_compared(one) for one in comparisons(told) if one.verdict != NOT_RUN]
    return Block(heading, grid, lines)


def _ran(one: Outcome, column: str) -> bool:
    return one.cell.column == column and bool(one.scores["values"])


def _column(column: str) -> str:
    task, _, metric = column.partition("/")
    return f"{title(task)} {metric}".strip()


def _cell(one: Outcome) -> str:
    ours = plus_minus(one.scores)
    if one.cell.scale not in PAPER:
        changed = " ".join(override.partition(".")[2] for override in one.cell.overrides)
        return f"{ours or NOT_RUN}{f' [{changed}]' if changed else ''}"
    mean, deviation = one.cell.published or (0.0, None)
    published = f"{mean:.2f}" + (f" ± {deviation:.2f}" if deviation is not None else "")
    return f"{published} → {ours} {one.verdict}" if ours else published


def _baseline(columns: Sequence[str], results: ByKey, split: str) -> list[tuple[str, ...]]:
    found = []
    for column in columns:
        runs = results.get(f"{BASELINE}-{our_name(column)}", {})
        scores = [run.score(split) for run in runs.values()]
        found.append(f"{scores[0]:.1f}" if scores and scores[0] is not None else "–")
    return [("tf-idf + linear", *found)] if set(found) != {"–"} else []


def _compared(one: Comparison) -> str:
    interval = f" (95 % interval {one.low:+.1f} to {one.high:+.1f})" if one.low is not None else ""
    paper = f"; the paper {one.paper:+.2f}" if one.paper is not None else ""
    return f"{_column(one.task)}: {one.chosen} over {one.other} {one.mean:+.1f}{interval}{paper}: {one.verdict}"
