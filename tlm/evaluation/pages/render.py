"""Blocks as an HTML page without script and without any address outside; every text is escaped here."""

import base64
import html as escapes
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tlm.artifacts.stores.local import write_whole
from tlm.evaluation.pages import blocks as page
from tlm.evaluation.pages.plain import markdown
from tlm.evaluation.pages.text import BIDI_AND_CONTROLS, spelled

STYLES = Path(__file__).with_name("page.css")
TAGS = {"name": "bdi", "bold": "strong", "code": "code", "label": 'span class="label"', "small": 'span class="small"'}
KINDS = {"number": "", "left": "left", "words": "left words"}
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def write_pages(folder: Path, kind: str, title: str, blocks: Sequence[page.Block], contents: Mapping[str, Any]) -> None:
    """Write ``<kind>.html``, ``<kind>.md`` and ``<kind>.json``; equal blocks and contents give equal bytes.

    Args:
        folder: Where to write the files.
        kind: What the pages are: report or study.
        title: What the browser names the page.
        blocks: The page.
        contents: The data behind it.
    """
    data = json.dumps(contents, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    texts = {"html": html(f"{title} · TLM {kind}", blocks), "md": markdown(blocks), "json": data}
    for form, text in texts.items():
        write_whole(folder / f"{kind}.{form}", text)


def html(title: str, blocks: Iterable[page.Block]) -> str:
    """A self-contained page, for light and dark mode."""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{_escaped(title)}</title>
<style>
:root {{ {page.css_colours(1)} }}
@media (prefers-color-scheme: dark) {{ :root {{ {page.css_colours(2)} }} }}
{STYLES.read_text(encoding="utf-8")}</style>
</head>
<body><main>
{_all(blocks)}
</main></body>
</html>
"""


def _all(blocks: Iterable[page.Block]) -> str:
    return "\n".join(map(_block, blocks))


def _block(block: page.Block) -> str:
    match block:
        case page.Heading():
            kicker = f'<p class="kicker">{_escaped(block.kicker)}</p>\n' if block.kicker else ""
            return f"{kicker}<h{block.level}>{_line(block.line)}</h{block.level}>"
        case page.Text():
            return f"<p{_class(block.style)}>{_line(block.line)}</p>"
        case page.Items():
            items = "".join(f"<li>{_line(line)}</li>\n" for line in block.lines)
            return f"<ul{_class(block.style)}>\n{items}</ul>"
        case page.Table():
            return _table(block)
        case page.Figure():
            image = f'<img src="{_source(block.svg)}" alt="{_escaped(f"{block.caption}: {block.says}")}">'
            if block.narrow:
                narrow = f'<source media="(max-width: 34rem)" srcset="{_source(block.narrow)}">'
                image = f"<picture>{narrow}{image}</picture>"
            return f"<figure{_class(block.style)}><figcaption>{_escaped(block.caption)}</figcaption>{image}</figure>"
        case page.Drawn():
            return _all(block.blocks)
        case page.Card():
            lines = "".join(f"<p>{_line(line)}</p>\n" for line in block.lines)
            return f'<article class="card">\n{lines}</article>'
        case page.Details():
            return f"<details>\n<summary>{_escaped(block.summary)}</summary>\n{_all(block.blocks)}\n</details>"


def _source(svg: str) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"


def _table(table: page.Table) -> str:
    columns = table.whole_columns
    head = (f'<th scope="col"{_class(KINDS[column.kind])}>{_line(column.name)}</th>' for column in columns)
    body = (f"<tr{_class(style)}>{cells}</tr>\n" for style, cells in _rows(table))
    note = f'\n<p class="small">{_line(table.note)}</p>' if table.note else ""
    whole = f"<thead><tr>{''.join(head)}</tr></thead>\n<tbody>\n{''.join(body)}</tbody>"
    names = ", ".join(filter(None, (page.words(column.name) for column in columns)))
    style = f'class="wide matrix" style="{_tone(table.role)}"' if table.shares else 'class="wide"'
    reachable = f'tabindex="0" role="group" aria-label="Table: {_escaped(names)}"'  # a keyboard can scroll a wide one
    return f"<div {style} {reachable}><table>\n{whole}\n</table></div>{note}"


def _rows(table: page.Table) -> Iterator[tuple[str, str]]:
    """The style and the cells of each row."""
    columns = table.whole_columns
    for place, row in enumerate(table.rows):
        if len(row) == 1:
            yield "group", f'<th scope="rowgroup" colspan="{len(columns)}">{_line(row[0])}</th>'
            continue
        cells = f'<th scope="row">{_line(row[0])}</th>'
        for at, (column, cell) in enumerate(zip(columns[1:], row[1:], strict=True)):
            cells += f"<td{_class(KINDS[column.kind])}{_shade(table, place, at)}>{_line(cell)}</td>"
        yield "strong" if place in table.strong else "", cells


def _shade(table: page.Table, row: int, column: int) -> str:
    """The attributes of a number that is shaded by its share of the row."""
    if not table.shares:
        return ""
    share = table.shares[row][column]
    classes = ("right" if row == column else "", "" if share else "zero")
    return f'{_class(" ".join(filter(None, classes)))} style="--share: {share:.3f}"'


def _line(line: page.Line) -> str:
    return "".join(map(_inline, page.inlines(line)))


def _inline(inline: page.Inline) -> str:
    match inline:
        case page.Span():
            dot = f'<span class="chip" style="{_tone(inline.role)}"></span>' if inline.role else ""
            words = dot + _escaped(inline.text)
            tag = TAGS[inline.kind]
            return f"<{tag}>{words}</{tag.partition(' ')[0]}>"
        case page.Quote():
            pieces = (f"<mark>{_escaped(text)}</mark>" if marked else _escaped(text) for text, marked in inline.pieces)
            return f'<span class="theirs" lang="" dir="auto">{"".join(pieces)}</span>'
        case _:
            return _escaped(inline)


def _tone(role: str) -> str:
    if role not in page.COLOURS:
        raise ValueError(f"{role} is no role; expected one of {', '.join(page.COLOURS)}")
    dash = page.DASHES.get(role)
    return f"--tone: var(--{role})" + (f"; --on: {2 * dash[0]:g}px; --off: {2 * dash[1]:g}px" if dash else "")


def _class(names: str) -> str:
    return f' class="{names}"' if names else ""


def _escaped(text: str) -> str:
    return escapes.escape(BIDI_AND_CONTROLS.sub(spelled, text))
