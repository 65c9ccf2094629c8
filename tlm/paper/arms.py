"""The arms beside the linear baseline: tables of our own, with all that a run is compared by."""

from collections.abc import Iterable
from typing import Any

from tlm.evaluation.metrics import METRIC_NAMES
from tlm.evaluation.runs import BASELINE as LINEAR
from tlm.evaluation.runs import spread
from tlm.evaluation.text import power
from tlm.paper.blocks import Block, plus_minus
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
    lines = [f"{metric} in hundredths; mean ± standard deviation (seeds), and the t-interval of the mean"]
    heading = f"{title(task)}: {own_tables()[table]['title']} ({scale})"
    return Block(heading, [HEAD, *(_row(row, runs) for row, runs in rows.items())], lines)


def _row(name: str, runs: list[Result]) -> tuple[str, ...]:
    dev, test = (spread(run.score(split) for run in runs) for split in ("dev", "test"))
    loss = spread(run.values["mlm_loss"] for run in runs)
    return (
        name,
        plus_minus(dev) or "–",
        plus_minus(test) or "–",
        _interval(test),
        plus_minus(loss, 2) or "–",
        _flops(runs),
    )


def _interval(found: dict[str, Any]) -> str:
    return "–" if found["low"] is None else f"{found['low']:.1f} – {found['high']:.1f}"


def _flops(runs: Iterable[Result]) -> str:
    told = [sum(stage["flops"] for stage in run.values["cost"].values()) for run in runs]
    return power(sum(told) / len(told)) if any(told) else "–"
