"""Our own tables: the arms beside the linear baseline, with all scores, losses and FLOPs."""

from collections.abc import Iterator
from itertools import combinations
from typing import Any

from tlm.evaluation.pages.text import power
from tlm.evaluation.report.runs import spread
from tlm.evaluation.score.intervals import differences
from tlm.evaluation.score.metrics import METRIC_NAMES
from tlm.paper.document.blocks import Block, compared, plus_minus
from tlm.paper.examples import arm_of, copies_in, summed
from tlm.paper.plan import ByKey, tasks_at
from tlm.paper.results import Result, baseline_key
from tlm.paper.tables import cells, own_tables, title

LINEAR = "tf-idf + linear"


def blocks(table: str, scale: str, results: ByKey) -> list[Block]:
    """A table for each task that has results of an arm at this scale; a line that says so if there are none."""
    tasks = tasks_at(table, scale, results)
    found = [_block(table, task, scale, rows) for task in tasks if (rows := _rows(table, task, scale, results))]
    return found or [Block(f"Table {table} ({scale})", [], ["nothing is run yet"])]


def _rows(table: str, task: str, scale: str, results: ByKey) -> dict[str, list[Result]]:
    """Results by row, in the order of seeds, the baseline first; {} if no arm was run."""
    keys = {cell.row: cell.key for cell in cells(table, scale, [task])}
    found = {row: [*runs.values()] for row, key in keys.items() if (runs := results.get(key))}
    linear = results.get(baseline_key(task), {})
    return {LINEAR: [*linear.values()], **found} if found and linear else found


def _block(table: str, task: str, scale: str, rows: dict[str, list[Result]]) -> Block:
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
    """Who is ahead on test: every row against the baseline, and the other pairs whose order is shown."""
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
