"""The report's sections on what everything took: the bill, and the cost of training."""

from collections.abc import Iterator, Sequence
from typing import Any

from tlm.evaluation.pages import units
from tlm.evaluation.pages.blocks import Block, Column, Drawn, Figure, Heading, Line, Row, Span, Table, Text
from tlm.evaluation.pages.compute import Point, published, score_against_compute
from tlm.evaluation.report.page.formats import costs, device, named

Groups = Sequence[dict[str, Any]]


def bill(contents: dict[str, Any]) -> Iterator[Block]:
    """What was spent, what a million predictions would take, and how fast and large the models are."""
    found, roles = contents["bill"], {group["name"]: group["role"] for group in contents["groups"]}
    columns, speed = units.columns(found)
    rows: list[Row] = []
    for shared, heading in units.SHARED.items():
        own = [row for row in found["spent"] if row["shared"] == shared]
        rows += [(heading,)] if own else []
        rows += [(_part(row, roles), *_cells(columns, row)) for row in own]
    yield Heading("The bill")
    yield Table(["What was spent", *_heads(columns)], rows, f"{units.given(contents['prices'])} {units.SPENT}")
    if models := found["predictions"]:
        names = [Span(row["name"], "name", roles.get(row["name"], "")) for row in models]
        million: list[Row] = [(name, *_cells(columns, row["million"])) for name, row in zip(names, models, strict=True)]
        alone: list[Row] = [(name, *_cells(speed, row)) for name, row in zip(names, models, strict=True)]
        yield Heading("A million predictions", 3)
        yield Table(["Model", *_heads(columns)], million, units.MILLION)
        yield Heading("Speed and size", 3)
        yield Table(["Model", *_heads(speed)], alone, units.ALONE)


def _part(row: dict[str, Any], roles: dict[str, str]) -> Line:
    part, size = units.PARTS[row["part"]], row["passages"]
    arm = (" ", Span(row["arm"], "name", roles.get(row["arm"], ""))) if row["arm"] else ()
    return (part, *arm, *((" ", Span(f"{size:,} passages", "small")) if size is not None else ()))


def _heads(columns: units.Columns) -> list[str]:
    return [heading for heading, _ in columns.values()]


def _cells(columns: units.Columns, row: dict[str, Any]) -> list[str]:
    return ["–" if row[name] is None else form(row[name]) for name, (_, form) in columns.items()]


def training(contents: dict[str, Any]) -> Iterator[Block]:
    """The cost of training, stage by stage, and score against compute."""
    groups = contents["groups"]
    if not any(group["stages"] for group in groups):
        return
    columns = costs(cost for group in groups for cost in (group["cost"], *group["stages"].values()))
    rows: list[Row] = []
    for group in groups:
        if " + " not in group["kind"]:
            stages = group["stages"] | ({"both": group["cost"]} if len(group["stages"]) > 1 else {})
            devices = "; ".join(filter(None, dict.fromkeys(map(device, group["stages"].values()))))
            name = (named(group), *((" ", Span(devices, "small")) if devices else ()))
            rows += [(name, stage, *(form(cost) for form in columns.values())) for stage, cost in stages.items()]
    yield Heading("Cost of training")
    yield Table(["Arm", Column("stage", "left"), *columns], rows, _told(columns, contents["prices"]), merged=True)
    yield from _compute(groups, contents["task"])


def _told(columns: dict[str, Any], prices: dict[str, float]) -> str:
    energy = (
        " Energy is that of the machine’s CPUs, including other processes, and of the GPUs in use, as far as they "
        "report it."
    )
    return (
        "Cost of one run, mean over seeds or draws. A mixture costs what its parts cost. Beside an arm’s name: its "
        "device and the number of threads (CPU) or processes (GPUs). Tokens and FLOPs are counted without padding. The "
        "paper’s rule is 6 · parameters · tokens with padding. Time is wall-clock time. Time and energy include all "
        "attempts; an interrupted attempt counts up to its last snapshot."
        + energy * ("energy" in columns)
        + f" Prices: {units.paid(prices)}." * ("money" in columns)
    )


def _compute(groups: Groups, task: dict[str, Any]) -> Iterator[Block]:
    """The picture of score against compute, if an arm has FLOPs."""
    arms = [
        Point(
            group["name"],
            group["cost"]["paper_flops"]["mean"] or 0.0,
            [100 * score for score in group["test"]["values"]],
            group["role"],
        )
        for group in groups
    ]
    if not any(arm.flops for arm in arms):
        return
    drawn = score_against_compute(arms, published(), f"{task['metric_name']} on test")
    note = (
        "Left: a dot for each seed, a stroke for the mean; arms with equal compute are drawn side by side. Right, for "
        "scale: Table 2 of the paper. Scores on the two sides are not comparable, so each side has its own axis: ours "
        f"are for {task['name']} alone, the paper’s are an average of eight tasks."
    )
    yield Drawn((Figure("Score against compute", drawn, "full"), Text(note, "small")))
