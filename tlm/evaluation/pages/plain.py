"""Blocks without a browser: as GitHub Markdown, and for a terminal."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tlm.evaluation.pages import blocks as page
from tlm.evaluation.pages.text import BIDI_AND_CONTROLS, code, prose, spelled

LONGEST_NAME = 80
STYLES = {"bold": "bold", "small": "dim"}  # of words on a terminal


def markdown(blocks: Iterable[page.Block]) -> str:
    """The blocks as GitHub Markdown. Texts from outside are in code spans; figures are left out."""
    return "\n\n".join(part for block in blocks for part in _markdown(block)) + "\n"


def _markdown(block: page.Block) -> Iterator[str]:
    match block:
        case page.Heading():
            yield f"{'#' * block.level} {f'{prose(block.kicker)}: ' if block.kicker else ''}{_line(block.line)}"
        case page.Text():
            yield _paragraph(block.line)
        case page.Items():
            yield "\n".join(f"- {_paragraph(line)}" for line in block.lines)
        case page.Table():
            yield "\n".join(_rows(block))
            if block.note:
                yield _paragraph(block.note)
        case page.Card():
            yield from map(_paragraph, block.lines)  # no list: Kubeflow's page shows lists without bullets or distances
        case page.Details():
            yield _bold(prose(block.summary))
            yield from (part for inner in block.blocks for part in _markdown(inner))


def _rows(table: page.Table) -> Iterator[str]:
    columns = table.whole_columns
    yield _row(_cell(column.name) for column in columns)
    yield f"|{'|'.join('--:' if column.kind == 'number' else '---' for column in columns)}|"
    for place, row in enumerate(table.rows):
        cells = [*map(_cell, row), *[""] * (len(columns) - len(row))]
        yield _row(map(_bold, cells) if len(row) == 1 or place in table.strong else cells)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(line: page.Line) -> str:
    return re.sub(r"(?<!\\)\|", r"\\|", _line(line))


def _paragraph(line: page.Line) -> str:
    """A line that does not begin as a list or a rule does, and is not empty."""
    return re.sub(r"^(\d*)([-+=.)])(?=[\s=-]|$)", r"\1\\\2", _line(line)) or "–"


def _bold(text: str) -> str:
    return f"**{text.strip()}**" if text.strip() else ""


def _line(line: page.Line) -> str:
    return "".join(map(_inline, page.inlines(line))).strip()


def _inline(inline: page.Inline) -> str:
    match inline:
        case page.Span(kind="bold"):
            return _bold(prose(inline.text))
        case page.Span(kind="small"):
            return f"({prose(inline.text).strip()})"
        case page.Span():
            return code(inline.text, LONGEST_NAME)
        case page.Quote():
            return code(inline.text)
        case _:
            return prose(inline)


def terminal(blocks: Iterable[page.Block], *, styled: bool | None = None) -> str:
    """The blocks as wide as the terminal; `styled` with bold and underlined words, by default where it shows them."""
    given: Any = {} if styled is None else {"force_terminal": styled, "color_system": "standard" if styled else None}
    console = Console(highlight=False, **given)
    console.is_jupyter = False  # else a notebook shows an empty output for each table
    with console.capture() as captured:
        for shown in (one for block in blocks for one in _shown(block, console.width)):
            console.print(shown, soft_wrap=isinstance(shown, Text) and not console.is_terminal)
    return captured.get().strip("\n")


def _shown(block: page.Block, width: int) -> Iterator[Table | Text]:
    """What a terminal shows of a block, in order."""
    match block:
        case page.Heading():
            yield _styled("\n", block.line, style="bold")
        case page.Text():
            yield _styled(block.line, style="bold" if block.style == "lede" else "")
        case page.Items() | page.Card():
            start = "- " if isinstance(block, page.Items) else "  "
            yield from (_styled(start, line) for line in block.lines)
        case page.Table():
            for number, grid in enumerate(_grids(block, width)):
                yield from (Text(), grid) if number else (grid,)
            if block.note:
                yield _styled(block.note)
        case page.Details():
            yield _styled("\n", block.summary, style="bold")
            yield from (one for inner in block.blocks for one in _shown(inner, width))


def _grids(table: page.Table, room: int) -> Iterator[Table]:
    """A table as wide as the room. If its numbers would break, several ones, each with the names of the rows."""
    columns, rows = table.whole_columns, [[_styled(cell) for cell in row] for row in table.rows]
    names = [_styled(column.name) for column in columns]
    cells = [[row[place].cell_len for row in rows if place < len(row)] for place in range(len(names))]
    least = [max([0, *own, *map(cell_len, name.plain.split())]) for own, name in zip(cells, names, strict=True)]
    needs = [min(size, room // 2 if one.kind == "number" else 16) for size, one in zip(least, columns, strict=True)]
    needs[0] = min(least[0], 24)
    parts: list[list[int]] = [[0]]
    for place in range(1, len(columns)):
        if len(parts[-1]) > 1 and sum(needs[one] + 2 for one in parts[-1]) + needs[place] > room:
            parts.append([0])
        parts[-1].append(place)
    for part in parts:
        grid = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
        is_tight = sum(max(least[place], names[place].cell_len) + 2 for place in part) - 2 > room
        for place in part:
            is_number = columns[place].kind == "number"
            width = needs[place] if is_number and is_tight else None
            grid.add_column(names[place], justify="right" if is_number else "left", width=width, overflow="fold")
        for number, row in enumerate(rows):
            strong = "bold" if len(row) == 1 or number in table.strong else ""
            grid.add_row(*(row[place] for place in part if place < len(row)), style=strong)
        yield grid


def _styled(*lines: page.Line, style: str = "") -> Text:
    words = Text(style=style)
    for inline in (inline for line in lines for inline in page.inlines(line)):
        match inline:
            case page.Span():
                words.append(_visible(inline.text), STYLES.get(inline.kind, ""))
            case page.Quote():
                for piece, marked in inline.pieces:
                    words.append(_visible(piece), "underline" if marked else "")
            case _:
                words.append(_visible(inline))
    return words


def _visible(text: str) -> str:
    return BIDI_AND_CONTROLS.sub(spelled, text)
