"""The tables for people: what the paper prints, our results, and the verdicts."""

from collections.abc import Sequence
from typing import NamedTuple

from tlm.paper.document import arms
from tlm.paper.document.blocks import Block, plus_minus
from tlm.paper.document.verdicts import MISS, NOT_RUN, Comparison, Outcome, comparisons, outcomes, tally
from tlm.paper.plan import ByKey, tasks_at
from tlm.paper.results import baseline_key
from tlm.paper.tables import PAPER, cells, expected, ladders, our_name, own_tables, title


class Report(NamedTuple):
    """The tables and the runs that miss the paper's value.

    Attributes:
        overview: One row for each of the paper's tables.
        blocks: The tables in detail.
        misses: Runs that miss at the paper's scales, by key, each with the tables that it is part of.
    """

    overview: Block
    blocks: list[Block]
    misses: dict[str, list[str]]


def report(results: ByKey, tables: Sequence[str], scales: Sequence[str], tolerance: float = 0.0) -> Report:
    """Compare every table at every scale with the paper; tables without results are in detail only if alone.

    Args:
        results: All results.
        tables: Numbers of the paper's tables, or names of our own.
        scales: Names of the scales; the paper's count as one, since no table has the same rows at two of them.
        tolerance: Minimum tolerance of a verdict at the paper's scales, in hundredths.
    """
    blocks, overview = [], []
    misses: dict[str, list[str]] = {}
    for table in tables:
        if table in own_tables():
            blocks += [block for scale in scales for block in arms.blocks(table, scale, results)]
            continue
        found = {scale: outcomes_at(table, scale, results, tolerance) for scale in scales}
        at_paper = [one for scale in scales if scale in PAPER for one in found[scale]]
        small = {scale: comparisons(found[scale]) for scale in scales if scale not in PAPER}
        run = {scale: [one.verdict for one in those if one.verdict != NOT_RUN] for scale, those in small.items()}
        ours = [f"{scale}: {tally(verdicts)}" for scale, verdicts in run.items() if verdicts]
        theirs = tally([one.verdict for one in at_paper])
        overview.append((table, expected()[table]["title"], theirs or "–", "; ".join(ours) or "–"))
        for scale, here in found.items():
            if here and (len(tables) == 1 or any(one.scores["values"] for one in here)):
                blocks.append(_block(table, scale, here, results))
        for key in dict.fromkeys(one.cell.key for one in at_paper if one.verdict == MISS):
            misses.setdefault(key, []).append(table)
    head = ("table", "what", "at the paper's scale", "the paper's order at small scale")
    return Report(Block("The paper's tables", [head, *overview], []), blocks, misses)


def outcomes_at(table: str, scale: str, results: ByKey, tolerance: float = 0.0) -> list[Outcome]:
    """The cells of a table at a scale with their results, also for tasks that only we have results of."""
    found = cells(table, scale, tasks_at(table, scale, results))
    return outcomes(found, results, judged=scale in PAPER, tolerance=tolerance)


def _block(table: str, scale: str, found: list[Outcome], results: ByKey) -> Block:
    facts, split = expected()[table], found[0].cell.split
    place = {(one.cell.row, one.cell.column): one for one in found}
    rows, columns = (list(dict.fromkeys(names)) for names in zip(*place, strict=True))
    lines = [f"published in {facts['source']}"]
    if scale in PAPER:
        lines.append("each cell: published → ours (mean ± standard deviation of so many seeds), verdict")
    else:
        run = {one.cell.column for one in found if one.scores["values"]}
        columns = [column for column in columns if column in run or not run]
        lines.append(f"{scale} stands for the small scale: {ladders()[scale]['note']}")
        lines.append("rows are the paper's; each cell: our score (seeds) and [what differs from the preset]")
        models = {one.cell.row: one.cell.start for one in found if one.cell.start}
        lines += [f"{row}: {model} stands for the paper's model" for row, model in models.items()]
    lines += [_compared(one) for one in comparisons(found) if one.verdict != NOT_RUN]
    grid = [("", *map(_column, columns)), *((row, *(_cell(place[row, column]) for column in columns)) for row in rows)]
    grid += _baseline(columns, results, split) if scale not in PAPER else []
    return Block(f"Table {table}: {facts['title']} ({scale}, {split})", grid, lines)


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
        runs = results.get(baseline_key(our_name(column)), {})
        scores = [f"{score:.1f}" for run in runs.values() if (score := run.score(split)) is not None]
        found.append(scores[0] if scores else "–")
    return [("tf-idf + linear", *found)] if set(found) != {"–"} else []


def _compared(one: Comparison) -> str:
    interval = f" (95 % interval {one.low:+.1f} to {one.high:+.1f})" if one.low is not None else ""
    paper = f"; the paper {one.paper:+.2f}" if one.paper is not None else ""
    return f"{_column(one.task)}: {one.chosen} over {one.other} {one.mean:+.1f}{interval}{paper}: {one.verdict}"
