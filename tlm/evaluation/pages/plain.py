"""Blocks without a browser: as GitHub Markdown, and for a terminal."""

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from tlm.evaluation.pages.blocks import (
    Block,
    Card,
    Details,
    Heading,
    Inline,
    Items,
    Line,
    Matrix,
    Quote,
    Span,
    Table,
    Text,
    inlines,
)
from tlm.evaluation.pages.text import BIDI_AND_CONTROLS, code, prose, spelled

if TYPE_CHECKING:
    from rich.table import Table as Grid
    from rich.text import Text as Words


LONGEST_NAME = 80
STYLES = {"bold": "bold", "small": "dim"}  # of words on a terminal


def markdown(blocks: Iterable[Block]) -> str:
    """The blocks as GitHub Markdown. Texts from outside are in code spans; figures are left out."""
    return "\n\n".join(part for block in blocks for part in _markdown(block)) + "\n"


def _markdown(block: Block) -> Iterator[str]:
    match block:
        case Heading():
            yield f"{'#' * block.level} {f'{prose(block.kicker)}: ' if block.kicker else ''}{_line(block.line)}"
        case Text():
            yield _paragraph(block.line)
        case Items():
            yield "\n".join(f"- {_paragraph(line)}" for line in block.lines)
        case Table():
            yield "\n".join(_rows(block))
            if block.note:
                yield _paragraph(block.note)
        case Matrix():
            yield from _markdown(block.table)
        case Card():
            first, *others = _told(block)
            yield "\n".join([f"- {_paragraph(first)}", *(f"  - {_paragraph(line)}" for line in others)])
        case Details():
            yield _bold(prose(block.summary))
            yield from (part for inner in block.blocks for part in _markdown(inner))


def _told(card: Card) -> list[Line]:
    """The lines of a card."""
    lines: list[Line] = []
    for part in card.parts:
        lines.append((*inlines(part.about), ": ", part.text) if part.text else part.about)
        lines += part.lines
    return lines


def _rows(table: Table) -> Iterator[str]:
    columns = table.whole_columns
    yield _row(_cell(column.name) for column in columns)
    yield f"|{'|'.join('--:' if column.kind == 'number' else '---' for column in columns)}|"
    for place, row in enumerate(table.rows):
        cells = [_cell(cell) for cell in row] + [""] * (len(columns) - len(row))
        strong = len(row) == 1 or place in table.strong
        yield _row(map(_bold, cells) if strong else cells)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(line: Line) -> str:
    return re.sub(r"(?<!\\)\|", r"\\|", _line(line))


def _paragraph(line: Line) -> str:
    """A line that does not begin as a list or a rule does, and is not empty."""
    return re.sub(r"^(\d*)([-+=.)])(?=[\s=-]|$)", r"\1\\\2", _line(line)) or "–"


def _bold(text: str) -> str:
    return f"**{text.strip()}**" if text.strip() else ""


def _line(line: Line) -> str:
    return "".join(map(_inline, inlines(line))).strip()


def _inline(inline: Inline) -> str:
    match inline:
        case Span(kind="bold"):
            return _bold(prose(inline.text))
        case Span(kind="small"):
            return f"({prose(inline.text).strip()})"
        case Span():
            return code(inline.text, LONGEST_NAME)
        case Quote():
            return code(inline.text)
        case _:
            return prose(inline)


def terminal(blocks: Iterable[Block], *, styled: bool | None = None) -> str:
    """The blocks as wide as the terminal; `styled` with bold and underlined words, by default where it shows them."""
    from rich.console import Console

    colours = {"force_terminal": True, "color_system": "standard"} if styled else {}
    console = Console(highlight=False, no_color=styled is False, **colours)  # type: ignore[arg-type]
    with console.capture() as captured:
        for block in blocks:
            if isinstance(block, Table | Matrix):
                console.print(_grid(block if isinstance(block, Table) else block.table))
            for text in _texts(block):
                console.print(text, soft_wrap=True)
    return captured.get()


def _grid(table: Table) -> "Grid":
    from rich.table import Table as Grid

    grid = Grid()
    for column in table.whole_columns:
        grid.add_column(_styled(column.name), justify="right" if column.kind == "number" else "left")
    for row in table.rows:
        grid.add_row(*map(_styled, row))
    return grid


def _texts(block: Block) -> "Iterator[Words]":
    """A block's lines, other than those of a table."""
    match block:
        case Heading():
            yield _styled("\n", block.line, style="bold")
        case Text():
            yield _styled(block.line)
        case Items():
            yield from (_styled("  ", line) for line in block.lines)
        case Table() if block.note:
            yield _styled(block.note)
        case Card():
            yield from (_styled("  ", line) for line in _told(block))
        case Details():
            yield _styled(block.summary)
            yield from (text for inner in block.blocks for text in _texts(inner))


def _styled(*lines: Line, style: str = "") -> "Words":
    from rich.text import Text as Words

    words = Words(style=style)
    for inline in (inline for line in lines for inline in inlines(line)):
        match inline:
            case Span():
                words.append(_shown(inline.text), STYLES.get(inline.kind, ""))
            case Quote():
                for piece, marked in inline.pieces:
                    words.append(_shown(piece), "underline" if marked else "")
            case _:
                words.append(_shown(inline))
    return words


def _shown(text: str) -> str:
    return BIDI_AND_CONTROLS.sub(spelled, text)
