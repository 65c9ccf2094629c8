"""The tables for people: what the paper prints, our results, and the verdicts."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from math import hypot
from typing import Any, NamedTuple

from research.paper.blocks import Block, compared, plus_minus
from research.paper.plan import ByKey, tasks_at
from research.paper.results import Result, arm_of, baseline_key, copies_in, summed
from research.paper.tables import PAPER, Cell, cells, expected, ladders, our_name, own_tables, title
from tlm.evaluation.pages.text import power
from tlm.evaluation.score.intervals import Arm, difference, differences, spread
from tlm.evaluation.score.scores import METRIC_NAMES

OK, NEAR, MISS, NOT_RUN = "OK", "near", "miss", "not run"
SHOWN, NOT_SHOWN, REVERSED, OPEN = "shown", "not shown", "reversed", "open"
NO_CLAIM, SEEDS_ONLY = "no claim", "seeds only"
NEAR_TIMES = 2  # "near" allows this multiple of the distance that "OK" allows


class Outcome(NamedTuple):
    """A cell with its results.

    Attributes:
        cell: The cell.
        scores: Scores of its finished runs in hundredths, as `summed` returns them.
        verdict: At the paper's scales OK if the mean is within one published standard deviation of the published mean
            (within the table's tolerance if the deviation is not printed or 0), near if within two, else miss; "" at
            other scales.
        arm: The predictions; None if nothing was run, or runs were kept without their predictions.
    """

    cell: Cell
    scores: dict[str, Any]
    verdict: str
    arm: Arm | None = None


class Comparison(NamedTuple):
    """The row that the paper chose for a task and another row of the table.

    Attributes:
        task: Column of the table.
        chosen: The row that the paper chose.
        other: The row that it is compared with.
        claim: +1 if the paper has `chosen` ahead by more than both deviations together, -1 if behind, else 0. A task
            that the paper does not have gets the claim that all of the paper's tasks share.
        paper: The paper's difference in hundredths; None for such a task.
        mean: Our difference in hundredths.
        low: Lower end of its 95 % interval over seeds and examples, corrected for the number of comparisons in the
            table; None if there are too few seeds or predictions were not kept.
        high: Upper end of the interval.
        verdict: shown, not shown (the interval includes 0) or reversed; open (too few seeds); seeds only (runs were
            kept without their predictions); no claim; not run.
    """

    task: str
    chosen: str
    other: str
    claim: int
    paper: float | None
    mean: float | None
    low: float | None
    high: float | None
    verdict: str


def outcomes(found: Sequence[Cell], results: ByKey, *, judged: bool, tolerance: float = 0.0) -> list[Outcome]:
    """The cells with their results; `judged` at the paper's scales, with a tolerance of at least `tolerance`."""
    made = []
    for cell in found:
        runs = [*results.get(cell.key, {}).values()]
        scores, arm = summed(runs, cell.split, cell.metric), arm_of(runs, cell.split, cell.metric)
        made.append(Outcome(cell, scores, _verdict(cell, scores["mean"], tolerance) if judged else "", arm))
    return made


def _verdict(cell: Cell, mean: float | None, tolerance: float) -> str:
    if mean is None or cell.published is None:
        return NOT_RUN
    published, deviation = cell.published
    allowed = max(deviation or cell.tolerance, tolerance)
    distance = round(abs(mean - published), 9)  # both have two decimals: 0.15 is not more than 0.15
    if distance <= allowed:
        return OK
    return NEAR if distance <= NEAR_TIMES * allowed else MISS


def comparisons(found: Sequence[Outcome]) -> list[Comparison]:
    """The row that the paper chose against each other row, for each task, in the order of the table."""
    pairs = [
        (chosen, other)
        for chosen in found
        for other in found
        if chosen.cell.chosen and not other.cell.chosen and other.cell.column == chosen.cell.column
    ]
    claimed = [*zip(pairs, _claims([(chosen.cell, other.cell) for chosen, other in pairs]), strict=True)]
    judged = sum(bool(claim and chosen.arm and other.arm) for (chosen, other), claim in claimed)
    return [_compared_cell(chosen, other, claim, max(1, judged)) for (chosen, other), claim in claimed]


def _claims(pairs: Sequence[tuple[Cell, Cell]]) -> list[int]:
    """The paper's claim on each pair; on a task that it does not have, the claim that all its tasks share, else 0."""
    published = [_published_claim(chosen, other) for chosen, other in pairs]
    of_rows: dict[tuple[str, str], set[int]] = {}
    for (chosen, other), claim in zip(pairs, published, strict=True):
        if claim is not None:
            of_rows.setdefault((chosen.row, other.row), set()).add(claim)
    claims = []
    for (chosen, other), claim in zip(pairs, published, strict=True):
        shared = of_rows.get((chosen.row, other.row), set())
        if claim is not None:
            claims.append(claim)
        else:
            claims.append(next(iter(shared)) if len(shared) == 1 else 0)
    return claims


def _published_claim(chosen: Cell, other: Cell) -> int | None:
    if chosen.published is None or other.published is None:
        return None
    ahead = chosen.published[0] - other.published[0]
    noise = hypot(chosen.published[1] or 0.0, other.published[1] or 0.0) or chosen.tolerance
    if abs(ahead) <= noise:
        return 0
    return 1 if ahead > 0 else -1


def _compared_cell(chosen: Outcome, other: Outcome, claim: int, judged: int) -> Comparison:
    """Compare two rows; `judged` is the number of comparisons in the table that can be decided."""
    ours, theirs = chosen.cell.published, other.cell.published
    paper = ours[0] - theirs[0] if ours and theirs else None
    rows = chosen.cell.row, other.cell.row
    result = Comparison(chosen.cell.column, *rows, claim, paper, mean=None, low=None, high=None, verdict=NOT_RUN)
    if chosen.scores["mean"] is None or other.scores["mean"] is None:
        return result
    result = result._replace(mean=chosen.scores["mean"] - other.scores["mean"])
    if not (chosen.arm and other.arm and chosen.arm.splits[0].same_examples(other.arm.splits[0])):
        return result._replace(verdict=SEEDS_ONLY if claim else NO_CLAIM)
    found = difference(chosen.arm, other.arm, judged)
    if found.low is None or found.high is None:
        return result._replace(verdict=OPEN if claim else NO_CLAIM)
    return result._replace(low=100 * found.low, high=100 * found.high, verdict=_decided(claim, found.sign))


def _decided(claim: int, sign: int) -> str:
    """The verdict on a claim where the interval has this sign; 0 if it includes 0."""
    if not claim:
        return NO_CLAIM
    if sign == claim:
        return SHOWN
    return REVERSED if sign == -claim else NOT_SHOWN


def tally(verdicts: Sequence[str]) -> str:
    """Count the verdicts: ``3 OK, 1 near, 12 not run``."""
    order = (OK, NEAR, MISS, SHOWN, NOT_SHOWN, REVERSED, OPEN, SEEDS_ONLY, NO_CLAIM, NOT_RUN)
    counted = Counter(verdicts)
    return ", ".join(f"{counted[name]} {name}" for name in order if counted[name])


LINEAR = "tf-idf + linear"


def arms_blocks(table: str, scale: str, results: ByKey) -> list[Block]:
    """A table for each task that has results of an arm at this scale; a line that says so if there are none."""
    tasks = tasks_at(table, scale, results)
    found = [_arms_block(table, task, scale, rows) for task in tasks if (rows := _rows(table, task, scale, results))]
    return found or [Block(f"Table {table} ({scale})", [], ["nothing is run yet"])]


def _rows(table: str, task: str, scale: str, results: ByKey) -> dict[str, list[Result]]:
    """Results by row, in the order of seeds, the baseline first; {} if no arm was run."""
    keys = {cell.row: cell.key for cell in cells(table, scale, [task])}
    found = {row: [*runs.values()] for row, key in keys.items() if (runs := results.get(key))}
    linear = results.get(baseline_key(task), {})
    return {LINEAR: [*linear.values()], **found} if found and linear else found


def _arms_block(table: str, task: str, scale: str, rows: dict[str, list[Result]]) -> Block:
    metric = METRIC_NAMES[next(iter(rows.values()))[0].values["metric"]]
    copies = any(copies_in(runs, "test") for runs in rows.values())
    without = ["test without copies"] if copies else []
    head = ("arm", "dev", "test", "95 % interval, test", *without, "masked-LM loss on unseen text", "FLOPs")
    legend = f"{metric} in hundredths; mean ± standard deviation (seeds); intervals over seeds and test examples"
    heading = f"{title(task)}: {own_tables()[table]['title']} ({scale})"
    found = [_row(row, runs, copies=copies) for row, runs in rows.items()]
    return Block(heading, [head, *found], [legend, *_orders(rows)])


def _row(name: str, runs: list[Result], *, copies: bool) -> tuple[str, ...]:
    dev, test = (summed(runs, split) for split in ("dev", "test"))
    scores = [plus_minus(dev), plus_minus(test), _interval(test)]
    if copies:
        scores.append(plus_minus(summed(runs, "test", without_copies=True)))
    loss = plus_minus(spread(run.values["mlm_loss"] for run in runs), 2)
    flops = [sum(stage["flops"] for stage in run.values["cost"].values()) for run in runs]
    mean = power(sum(flops) / len(flops)) if any(flops) else ""
    return (name, *(text or "–" for text in (*scores, loss, mean)))


def _interval(found: dict[str, Any]) -> str:
    if found["low"] is None:
        return ""
    return f"{found['low']:.1f} – {found['high']:.1f}{' (seeds only)' if found['seeds_only'] else ''}"


def _orders(rows: dict[str, list[Result]]) -> Iterator[str]:
    """Comparisons on test: every row with the baseline, and the other pairs whose order is certain."""
    found = {name: arm for name, runs in rows.items() if (arm := arm_of(runs, "test")) is not None}
    if without := [name for name in rows if name not in found]:
        which = "; ".join(without) if found else "all rows"
        yield f"seeds only, so no order is claimed (runs kept without their predictions): {which}"
    open_pairs = 0
    for one in differences(found, [*combinations(found, 2)]):
        if one["low"] is None or not (one["ahead"] or LINEAR in (one["first"], one["second"])):
            open_pairs += 1
            continue
        yield compared(one)
    if open_pairs:
        yield f"no order is shown between the other {open_pairs} pairs"


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
            blocks += [block for scale in scales for block in arms_blocks(table, scale, results)]
            continue
        found = {scale: outcomes_at(table, scale, results, tolerance) for scale in scales}
        at_paper = [outcome for scale in scales if scale in PAPER for outcome in found[scale]]
        theirs, ours = tally([outcome.verdict for outcome in at_paper]), _orders_at_our_scales(found)
        overview.append((table, expected()[table]["title"], theirs or "–", ours or "–"))
        for scale, here in found.items():
            if here and (len(tables) == 1 or any(outcome.scores["values"] for outcome in here)):
                blocks.append(_block(table, scale, here, results))
        for key in dict.fromkeys(outcome.cell.key for outcome in at_paper if outcome.verdict == MISS):
            misses.setdefault(key, []).append(table)
    head = ("table", "what", "at the paper's scale", "the paper's order at small scale")
    return Report(Block("The paper's tables", [head, *overview], []), blocks, misses)


def _orders_at_our_scales(found: Mapping[str, Sequence[Outcome]]) -> str:
    """Count the verdicts on the paper's orders, for each of our scales at which something was run."""
    counted = []
    for scale, outcomes in found.items():
        if scale not in PAPER:
            verdicts = [comparison.verdict for comparison in comparisons(outcomes)]
            run = [verdict for verdict in verdicts if verdict != NOT_RUN]
            counted += [f"{scale}: {tally(run)}"] if run else []
    return "; ".join(counted)


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
    return [(LINEAR, *found)] if set(found) != {"–"} else []


def _compared(one: Comparison) -> str:
    interval = f" (95 % interval {one.low:+.1f} to {one.high:+.1f})" if one.low is not None else ""
    paper = f"; the paper {one.paper:+.2f}" if one.paper is not None else ""
    return f"{_column(one.task)}: {one.chosen} over {one.other} {one.mean:+.1f}{interval}{paper}: {one.verdict}"
