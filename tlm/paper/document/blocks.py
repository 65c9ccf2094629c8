"""What the command prints: headings, tables and lines, as Markdown or on a terminal."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple


class Block(NamedTuple):
    """A heading, a table (its first row holds the names of the columns), and lines below it."""

    heading: str
    rows: list[tuple[str, ...]]
    lines: list[str]


def plus_minus(spread: dict[str, Any], digits: int = 1) -> str:
    """Mean ± standard deviation (how many seeds), as `report.runs.spread` has them; "" if there are none."""
    if spread["mean"] is None:
        return ""
    deviation = f" ± {spread['std']:.{digits}f}" if spread["std"] is not None else ""
    return f"{spread['mean']:.{digits}f}{deviation} ({len(spread['values'])})"


def markdown(blocks: Sequence[Block]) -> str:
    """The blocks as GitHub shows them."""
    return "\n".join(line for block in blocks for line in _markdown(block))


def show(blocks: Sequence[Block]) -> None:
    """The blocks on stdout, as wide as the terminal is."""
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


def _markdown(block: Block) -> Iterator[str]:
    yield f"### {block.heading}\n"
    if block.rows:
        head, *rows = block.rows
        yield _line(head)
        yield _line(["---"] * len(head))
        yield from (_line(row) for row in rows)
        yield ""
    yield from (f"- {line}" for line in block.lines)
    if block.lines:
        yield ""


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
