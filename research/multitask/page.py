"""The page of the report on several tasks."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from research.studies import listed
from tlm.evaluation.pages.blocks import Block, Column, Drawn, Heading, Row, Span, Table, Text, opening
from tlm.evaluation.pages.render import write_pages
from tlm.evaluation.report import bill
from tlm.evaluation.report.findings import interval_text, score_text
from tlm.evaluation.report.page import drawn_scores, key_of_scores, named

Rows = Sequence[dict[str, Any]]


def write_multitask(folder: Path, contents: dict[str, Any]) -> None:
    """Write report.html, report.md and report.json."""
    title = ", ".join(task["name"] for task in contents["tasks"])
    write_pages(folder, "report", title, list(_blocks(contents)), contents)


def _blocks(contents: dict[str, Any]) -> Iterator[Block]:
    tasks, arms = contents["tasks"], contents["arms"]
    names = listed([Span(task["name"]) for task in tasks])
    facts = f"{len(tasks)} tasks, trained together and each alone"
    yield from opening("TLM report on several tasks", names, facts, contents["findings"])
    yield from _results(tasks, arms)
    yield from _cost(arms, contents["prices"])
    yield Heading("The reports of the tasks")
    reports = listed([(Span(task["name"]), " ", Span(task["report"], "code")) for task in tasks])
    end = ". Training one encoder for several tasks is our addition; the paper names it as future work."
    yield Text(("Each task has its own report: ", *reports, end), "small")


def _results(tasks: Rows, arms: Rows) -> Iterator[Block]:
    heads = [column for arm in arms for column in (Column(named(arm)), Column("95 % interval"))]
    rows: list[Row] = [
        (Span(task["name"]), task["metric_name"], *_scores([group["test"] for group in task["groups"]]))
        for task in tasks
    ]
    rows.append(("mean of the tasks", "", *_scores([arm["mean"] for arm in arms])))
    note = (
        "Scores on test in hundredths, mean ± standard deviation over seeds. Intervals account for the choice of seeds "
        "(with 3 seeds or more) and of test examples. The mean of the tasks is computed for each seed, then over seeds."
    )
    yield Heading("Results")
    yield Table(["Task", Column("metric", "left"), *heads], rows, note, frozenset([len(tasks)]))
    figures = [
        drawn_scores(task["groups"], f"{task['metric_name']} on test", f"{task['name']}, a dot for each seed or draw")
        for task in tasks
    ]
    yield Drawn((*figures, key_of_scores([group for task in tasks for group in task["groups"]])))


def _scores(spreads: Rows) -> list[str]:
    return [form(spread) for spread in spreads for form in (score_text, interval_text)]


def _cost(arms: Rows, prices: dict[str, float]) -> Iterator[Block]:
    means = [{name: arm["total"][name]["mean"] for name in bill.AMOUNTS} for arm in arms]
    columns = bill.known(bill.AMOUNTS, means)
    rows: list[Row] = []
    sums = []
    for arm in arms:
        trainings = [(one["stage"], one["tasks"], one) for one in arm["trainings"]]
        for stage, names, cost in [*trainings, ("all", [], arm["total"])] if trainings else []:
            whose = listed([Span(name) for name in names])
            mean = {name: cost[name]["mean"] for name in bill.AMOUNTS}
            rows.append((named(arm), stage, whose, *(form(mean) for form in columns.values())))
        sums += [len(rows) - 1] if trainings else []
    note = (
        "Cost of one seed, mean over seeds. A stage 1 that several tasks share is one training and counts once here; "
        "the report of each task counts its whole cost. Tokens and FLOPs are counted without padding. The paper’s rule "
        "is 6 · parameters · tokens with padding."
    ) + f" Prices: {bill.paid(prices)}." * ("money" in columns)
    heads: list[Column | str] = ["Arm", Column("stage", "left"), Column("tasks", "words"), *columns]
    yield Heading("Cost")
    yield Table(heads, rows, note, frozenset(sums))
