"""The marked sections of a page: tables that are rewritten from the kept results, between prose that is not."""

import os
import re
from pathlib import Path

from tlm.errors import InputError
from tlm.paper.document import arms, page
from tlm.paper.document.blocks import markdown
from tlm.paper.plan import ByKey
from tlm.paper.tables import PAPER, check_names, expected, ladders, own_tables

MARKED = re.compile(
    r"(?P<begin><!-- tlm paper(?: (?P<table>\S+) --scale (?P<scale>\S+))? --update \S+ -->\n)"
    r"(?P<text>.*?)(?:(?P<end><!-- end -->)|(?=<!-- tlm paper)|\Z)",
    re.DOTALL,
)

KEY = (
    "Left ours: means, a small dot for each seed, bands for 95 % intervals (over seeds only where predictions were not "
    "kept), dashed tf-idf + linear. "
    "Right the paper's: means and one standard deviation."
)


def update(path: Path, folder: Path, results: ByKey, table: str = "", scale: str = "") -> list[Path]:
    """Rewrite the sections of a page from the kept results; the files that changed, each whole or not at all.

    Args:
        path: The page, Markdown.
        folder: Of the results; pictures lie in it.
        results: All results.
        table: Only the section of this table at this scale; empty: all, that of the overview too.
        scale: Its scale.

    Raises:
        InputError: there is no such section or file, or a section has no end.
    """
    before = after = _read(path)
    files: dict[Path, str] = {}
    for match in reversed(_sections(path, before, table, scale)):
        text, picture = _made(match["table"], match["scale"], results)
        if picture:
            place = folder / f"table-{match['table']}" / f"{match['scale']}.svg"
            files[place] = picture
            link = Path(os.path.relpath(place, path.parent)).as_posix()
            text += f"\n![Table {match['table']} at scale {match['scale']}: ours beside the paper's]({link})\n\n{KEY}\n"
        after = f"{after[: match.start('text')]}\n{text}\n{after[match.end('text') :]}"
    files[path] = after  # last: it shows the pictures
    return [each for each, text in files.items() if _replaced(each, text)]


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read ({error}); name a Markdown file with marked sections") from None


def _sections(path: Path, text: str, table: str, scale: str) -> list[re.Match[str]]:
    found = list(MARKED.finditer(text))
    for match in found:
        if not match["end"]:
            raise InputError(f"{path}: the section {match['begin'].strip()} has no end; put <!-- end --> below it")
    chosen = [match for match in found if not table or (match["table"], match["scale"]) == (table, scale)]
    if not chosen:
        marker = f"tlm paper {table} --scale {scale} --update {path}" if table else f"tlm paper --update {path}"
        raise InputError(f"{path} has no section <!-- {marker} -->; put it, and <!-- end -->, where its table belongs")
    return chosen


def _made(table: str | None, scale: str, results: ByKey) -> tuple[str, str]:
    """Text of a section (table None: of the overview), and its picture as SVG, "" if it has none."""
    if table is None:
        return markdown(page.report(results, list(expected()), [*PAPER, *ladders()]).blocks[:1]), ""
    check_names(table, scale)
    if table in own_tables():
        return markdown(arms.blocks(table, scale, results)), ""
    blocks = page.report(results, [table], [scale]).blocks[1:]
    if not blocks:
        raise InputError(f"table {table} cannot be had at scale {scale}; remove its section")
    return markdown(blocks), _picture(table, scale, results)


def _picture(table: str, scale: str, results: ByKey) -> str:
    if scale in PAPER:
        return ""
    from tlm.paper.document.figure import figure

    return figure(table, page.outcomes_at(table, scale, results), results)


def _replaced(path: Path, text: str) -> bool:
    """Write `text`, whole or not at all; False if the file has it already."""
    data = text.encode()
    if path.exists() and path.read_bytes() == data:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    part.write_bytes(data)
    part.replace(path)
    return True
