"""The marked sections of a page: tables rewritten from the kept results, between prose that is left alone."""

import os
import re
from pathlib import Path

from tlm.errors import InputError
from tlm.paper.curves import curves
from tlm.paper.document import curves as curve_pages
from tlm.paper.document import page
from tlm.paper.document.blocks import markdown
from tlm.paper.plan import ByKey
from tlm.paper.results import replaced
from tlm.paper.tables import PAPER, check_names, expected, ladders, own_tables

MARKED = re.compile(
    r"(?P<begin><!-- tlm paper(?: (?P<table>\S+) --scale (?P<scale>\S+))? --update \S+ -->\n)"
    r"(?P<text>.*?)(?:(?P<end><!-- end -->)|(?=<!-- tlm paper)|\Z)",
    re.DOTALL,
)

KEY = (
    "Left, ours: means, a small dot for each seed, bands for 95 % intervals (over seeds only, if predictions were not "
    "kept), and tf-idf + linear, dashed. Right, the paper's: means and one standard deviation."
)

CURVE_KEY = "Means over draws. Dashed: static vectors alone. The intervals of the differences are in the lines above."


def update(path: Path, folder: Path, results: ByKey, table: str = "", scale: str = "") -> list[Path]:
    """Rewrite the sections of a page from the kept results, and return the files that changed.

    Args:
        path: The page, in Markdown.
        folder: Folder of the results, where figures are written.
        results: All results.
        table: Rewrite only the section of this table at this scale; by default all sections, with the overview.
        scale: Scale of the table.

    Raises:
        InputError: There is no such file or section, or a section has no end. Nothing is written then.
    """
    try:
        before = after = path.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read ({error}); name a Markdown file with marked sections") from None
    files: dict[Path, str] = {}
    for match in reversed(_sections(path, before, table, scale)):
        text, svg = _made(match["table"], match["scale"], results)
        if svg:
            place = folder / f"table-{match['table']}" / f"{match['scale']}.svg"
            files[place] = svg
            link = Path(os.path.relpath(place, path.parent)).as_posix()
            text += f"\n{_shown(match['table'], match['scale'], link)}\n"
        after = f"{after[: match.start('text')]}\n{text}\n{after[match.end('text') :]}"
    files[path] = after  # last, because it shows the figures
    return [each for each, text in files.items() if replaced(each, text.encode())]


def _shown(table: str, scale: str, link: str) -> str:
    """The figure of a section, with what its marks mean."""
    if table in curves():
        return f"![{curves()[table]['title']}]({link})\n\n{CURVE_KEY}"
    return f"![Table {table} at scale {scale}: ours beside the paper's]({link})\n\n{KEY}"


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
    """Text of a section (of the overview if `table` is None) and its figure as SVG, or "" if it has none."""
    if table is None:
        return markdown([page.report(results, list(expected()), [*PAPER, *ladders()]).overview]), ""
    if table in curves():
        from tlm.paper.document import curve_figure

        return markdown(curve_pages.blocks(table, results)), curve_figure.figure(table, results)
    check_names(table, scale)
    blocks = page.report(results, [table], [scale]).blocks
    if not blocks:
        raise InputError(f"table {table} cannot be had at scale {scale}; remove its section")
    if scale in PAPER or table in own_tables():
        return markdown(blocks), ""
    from tlm.paper.document.figure import figure

    return markdown(blocks), figure(table, page.outcomes_at(table, scale, results), results)
