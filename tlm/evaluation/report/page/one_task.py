"""The page of the report on one task, section by section."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tlm.evaluation.pages.blocks import Block, Span, opening
from tlm.evaluation.pages.page import write_pages
from tlm.evaluation.report import curves, dropped, evidence, lineage
from tlm.evaluation.report.bill.section import bill, training
from tlm.evaluation.report.page.results import predictions, results


def write_report(folder: Path, contents: dict[str, Any]) -> None:
    """Write report.html, report.md and report.json."""
    write_pages(folder, "report", contents["task"]["name"], list(_blocks(contents)), contents)


def _blocks(contents: dict[str, Any]) -> Iterator[Block]:
    task = contents["task"]
    yield from opening("TLM report", Span(task["name"]), _facts(task), contents["findings"], contents["gone"])
    yield from results(contents)
    yield from curves.section(contents["curves"], contents["groups"])
    yield from predictions(contents)
    yield from evidence.section(contents["evidence"])
    yield from dropped.section(contents["dropped"])
    yield from bill(contents)
    yield from training(contents)
    yield from lineage.section(contents["lineage"])


def _facts(task: dict[str, Any]) -> str:
    kind = f"{task['classes']} classes" if task["classes"] else "regression"
    counts = [f"{task['counts'][part]:,} {part}" for part in ("train", "dev", "test") if part in task["counts"]]
    return " · ".join([kind, *counts, f"metric: {task['metric_name']}"])
