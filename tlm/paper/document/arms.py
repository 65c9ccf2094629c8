"""The arms beside the linear baseline: tables of our own, with all that a run is compared by."""

from collections.abc import Iterable, Iterator
from typing import Any

from tlm.evaluation.pages.text import power
from tlm.evaluation.report.runs import BASELINE as LINEAR
from tlm.evaluation.report.runs import spread, with_interval
from tlm.evaluation.score.intervals import all_differences
from tlm.evaluation.score.metrics import METRIC_NAMES
from tlm.paper.document.blocks import Block, plus_minus
from tlm.paper.examples import arm_of, copies_in, in_hundredths, summed
from tlm.paper.plan import ByKey
from tlm.paper.results import BASELINE, Result
from tlm.paper.tables import cells, own_tables, title

HEAD = ("arm", "dev", "test", "95 % interval, test", "masked-LM loss on unseen text", "FLOPs")


def blocks(table: str, scale: str, results: ByKey) -> list[Block]:
    """For each task of which an arm was run as `table` has it at this scale, a table; else a line that says so."""
    tasks = _tasks(table, scale, results)
    found = [_block(table, task, scale, rows) for task in tasks if (rows := _rows(table, task, scale, results))]
    return found or [Block(f"Table {table} ({scale})", [], ["nothing is run yet"])]


def _tasks(table: str, scale: str, results: ByKey) -> list[str]:
    own = [*own_tables()[table]["row"][0]["values"]]
    places = [run.values["cell"] for runs in results.values() for run in runs.values()]
    kept_for_it = [place for place in places if (place["table"], place["scale"]) == (table, scale)]
    more = {place["column"].partition("/")[0] for place in kept_for_it}
    return [*own, *sorted(more - set(own))]


def _rows(table: str, task: str, scale: str, results: ByKey) -> dict[str, list[Result]]:
    """Results by row, in the order of seeds, the baseline first; empty where no arm was run."""
    keys = {cell.row: cell.key for cell in cells(table, scale, [task])}
    found = {row: [runs[seed] for seed in sorted(runs)] for row, key in keys.items() if (runs := results.get(key))}
    linear = results.get(f"{BASELINE}-{task}", {})
    return {LINEAR: [*linear.values()], **found} if found and linear else found


def _block(table: str, task: str, scale: str, rows: dict[str, list[Result]]) -> Block:
    metric = METRIC_NAMES[next(iter(rows.values()))[0].values["metric"]]
    copies = any(copies_in(runs, "test") for runs in rows.values())
    head = (*HEAD[:4], *(["test without copies"] if copies else []), *HEAD[4:])
    lines = [
        f"{metric} in hundredths; mean ± standard deviation (seeds); intervals over seeds and test examples",
        *_orders(rows),
    ]
    heading = f"{title(task)}: {own_tables()[table]['title']} ({scale})"
    return Block(heading, [head, *(_row(row, runs, copies=copies) for row, runs in rows.items())], lines)


def _row(name: str, runs: list[Result], *, copies: bool) -> tuple[str, ...]:
    dev, test = (summed(runs, split) for split in ("dev", "test"))
    loss = spread(run.values["mlm_loss"] for run in runs)
    scores = [plus_minus(dev) or "–", plus_minus(test) or "–", _interval(test)]
    if copies:
        left = arm_of(runs, "test", without_copies=True)
        scores.append(plus_minus(in_hundredths(with_interval(left))) if left is not None else "–")
    return (name, *scores, plus_minus(loss, 2) or "–", _flops(runs))


def _interval(found: dict[str, Any]) -> str:
    if found["low"] is None:
        return "–"
    return f"{found['low']:.1f} – {found['high']:.1f}{' (seeds only)' if found['seeds_only'] else ''}"


def _orders(rows: dict[str, list[Result]]) -> Iterator[str]:
    """Who is ahead on test: every row against the baseline, and the pairs whose order is shown."""
    found = {name: arm for name, runs in rows.items() if (arm := arm_of(runs, "test")) is not None}
    if left := [name for name in rows if name not in found]:
        who = "; ".join(left) if found else "all rows"
        yield f"seeds only, so no order is claimed (runs kept without their predictions): {who}"
    names = list(found)
    open_pairs = 0
    for one in all_differences(list(found.values())):
        first, second, (mean, low, high) = names[one.first], names[one.second], one.difference
        if low is None or high is None or (not one.difference.sign and LINEAR not in (first, second)):
            open_pairs += 1
            continue
        told = f"{100 * mean:+.1f} (95 % interval {100 * low:+.1f} to {100 * high:+.1f})"
        ahead = {1: f"{first} is ahead", -1: f"{second} is ahead", 0: "no order is shown"}[one.difference.sign]
        yield f"{first} over {second} {told}: {ahead}"
    if open_pairs:
        yield f"no order is shown between the other {open_pairs} pairs"


def _flops(runs: Iterable[Result]) -> str:
    told = [sum(stage["flops"] for stage in run.values["cost"].values()) for run in runs]
    return power(sum(told) / len(told)) if any(told) else "–"
