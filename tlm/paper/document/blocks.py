"""Headings, tables and lines, as Markdown or on a terminal."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from tlm.evaluation.report.findings import plain_score


class Block(NamedTuple):
    """A part of a page.

    Attributes:
        heading: Its heading.
        rows: A table whose first row has the names of the columns; [] for no table.
        lines: Lines below the table.
    """

    heading: str
    rows: list[tuple[str, ...]]
    lines: list[str]


def plus_minus(spread: dict[str, Any], digits: int = 1) -> str:
    """Mean ± standard deviation (number of seeds) of a `report.runs.spread`; "" if it has no values."""
    return f"{plain_score(spread, digits=digits)} ({len(spread['values'])})" if spread["values"] else ""


def compared(found: dict[str, Any]) -> str:
    """One of the `differences` between two models that has an interval, in hundredths, and who is ahead."""
    interval = f"95 % interval {100 * found['low']:+.1f} to {100 * found['high']:+.1f}"
    verdict = f"{found['ahead']} is ahead" if found["ahead"] else "no order is shown"
    return f"{found['first']} over {found['second']} {100 * found['mean']:+.1f} ({interval}): {verdict}"


def markdown(blocks: Sequence[Block]) -> str:
    """The blocks as GitHub Markdown."""
    lines = []
    for block in blocks:
        lines.append(f"### {block.heading}\n")
        if block.rows:
            head, *rows = block.rows
            lines += [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)] + [""]
        if block.lines:
            lines += [*(f"- {line}" for line in block.lines), ""]
    return "\n".join(lines)


def show(blocks: Sequence[Block]) -> None:
    """Print the blocks, as wide as the terminal."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    for block in blocks:
        console.print(f"\n{block.heading}", style="bold", markup=False)
        if block.rows:
            table = Table(*block.rows[0], show_lines=False)
            for row in block.rows[1:]:
                table.add_row(*map(Text, row))
            console.print(table)
        for line in block.lines:
            console.print(f"  {line}", markup=False, soft_wrap=True)
