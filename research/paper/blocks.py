"""Parts of the page of results: a heading, a table, and lines below it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tlm.evaluation.pages import blocks as pages
from tlm.evaluation.pages import plain
from tlm.evaluation.report.findings import score_text


class Block(NamedTuple):
    """A part of a page.

    Attributes:
        heading: Its heading.
        rows: A table whose first row has the names of the columns; [] for no table.
        lines: Lines below the table.
    """

    heading: str
    rows: list[tuple[str, ...]]
    lines: Sequence[pages.Line]


def plus_minus(spread: Mapping[str, Any], digits: int = 1) -> str:
    """Mean ± standard deviation (number of seeds) of a `spread`; "" if it has no values."""
    return f"{score_text(spread, 1.0, digits)} ({len(spread['values'])})" if spread["values"] else ""


def compared(found: Mapping[str, Any]) -> str:
    """One of the `differences` between two models that has an interval, in hundredths, and who is ahead."""
    interval = f"95 % interval {100 * found['low']:+.1f} to {100 * found['high']:+.1f}"
    verdict = f"{found['ahead']} is ahead" if found["ahead"] else "no order is shown"
    return f"{found['first']} over {found['second']} {100 * found['mean']:+.1f} ({interval}): {verdict}"


def markdown(blocks: Sequence[Block]) -> str:
    """The blocks as GitHub Markdown."""
    return plain.markdown(_parts(blocks))


def show(blocks: Sequence[Block]) -> None:
    """Print the blocks, as wide as the terminal."""
    print(plain.terminal(_parts(blocks)))


def _parts(blocks: Sequence[Block]) -> Iterator[pages.Block]:
    for block in blocks:
        yield pages.Heading(block.heading, 3)
        if block.rows:
            yield pages.Table([pages.Column(name, "left") for name in block.rows[0]], block.rows[1:])
        if block.lines:
            yield pages.Items(tuple(block.lines))
