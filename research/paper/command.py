"""The command `paper`: the tables with verdicts, the runs that are missing, and the marked sections of a page."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from research.paper import curves as curve_pages
from research.paper import page
from research.paper.blocks import Block, show
from research.paper.blocks import markdown as as_markdown
from research.paper.plan import ByKey, command_for, missing, once
from research.paper.results import FOLDER, by_key, fault, read_results, replaced
from research.paper.tables import (
    PAPER,
    all_tables,
    cells,
    check_names,
    curves,
    expected,
    is_of,
    ladders,
    our_name,
    own_tables,
    task_of,
    title,
)
from tlm.errors import InputError, TlmError, nearest
from tlm.evaluation.pages.blocks import Line, Span
from tlm.progress import say

MARKED = re.compile(
    r"(?P<begin><!-- python -m research paper(?: (?P<table>\S+) --scale (?P<scale>\S+))? --update \S+ -->\n)"
    r"(?P<text>.*?)(?:(?P<end><!-- end -->)|(?=<!-- python -m research paper)|\Z)",
    re.DOTALL,
)

KEY = (
    "Left, ours: means, a small dot for each seed, bands for 95 % intervals (over seeds only, if predictions were not "
    "kept), and tf-idf + linear, dashed. Right, the paper's: means and one standard deviation."
)

CURVE_KEY = "Means over draws. Dashed: static vectors alone. The intervals of the differences are in the lines above."


def update_page(path: Path, folder: Path, results: ByKey, table: str = "", scale: str = "") -> list[Path]:
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
        marker = (
            f"python -m research paper {table} --scale {scale} --update {path}"
            if table
            else f"python -m research paper --update {path}"
        )
        raise InputError(f"{path} has no section <!-- {marker} -->; put it, and <!-- end -->, where its table belongs")
    return chosen


def _made(table: str | None, scale: str, results: ByKey) -> tuple[str, str]:
    """Text of a section (of the overview if `table` is None) and its figure as SVG, or "" if it has none."""
    if table is None:
        return as_markdown([page.report(results, list(expected()), [*PAPER, *ladders()]).overview]), ""
    if table in curves():
        from research.paper import figure as curve_figure

        return as_markdown(curve_pages.blocks(table, results)), curve_figure.curve_figure(table, results)
    check_names(table, scale)
    blocks = page.report(results, [table], [scale]).blocks
    if not blocks:
        raise InputError(f"table {table} cannot be had at scale {scale}; remove its section")
    if scale in PAPER or table in own_tables():
        return as_markdown(blocks), ""
    from research.paper.figure import figure

    return as_markdown(blocks), figure(table, page.outcomes_at(table, scale, results), results)


def paper(
    table: str = "",
    *,
    scale: str = "",
    check: bool = False,
    task: str = "",
    tolerance: float = 0.0,
    markdown: bool = False,
    update: str = "",
    results: str = FOLDER,
    root: str = "",
) -> None:
    """Compare kept results with the paper's tables, and list the runs that are still missing.

    With a table, print its cells and the commands for missing runs; without one, all tables. With --check, exit with 1
    if a cell misses the paper's value at the paper's scale, or a kept result does not match its run. With --update,
    rewrite the marked sections of a page from the kept results, and print nothing.

    Args:
        table: Number of one of the paper's tables; arms or hour for ours, which have all scores of each arm; dilution
            or labels for our curves.
        scale: One of tiny, demo, pocket, mini, small, medium and large; by default all.
        check: Compare the kept results with the paper's values and with their runs.
        task: List only the missing runs of this task, which may be one that the paper does not have.
        tolerance: Minimum tolerance at the paper's scales, in hundredths.
        markdown: Print Markdown.
        update: Markdown file whose section of this table and scale to rewrite; without a table, all its sections.
        results: Folder of the kept results.
        root: Store of the runs, to compare the results with their metrics if these still exist.
    """
    printed = (lambda blocks: print(as_markdown(blocks))) if markdown else show
    tables = [table] if table else list(expected())
    scales = [scale] if scale else [*PAPER, *(name for name in ladders() if name != "tiny")]
    if table not in curves():
        check_names(tables[0], scales[0])
    if tolerance < 0:
        raise InputError(f"tolerance is {tolerance}; expected 0 or more, in hundredths")
    kept = read_results(Path(results))
    found = by_key(kept)
    if update:
        return _update(update, results, found, table, scale)
    if table in curves():
        blocks, misses = curve_pages.blocks(table, found), dict[str, list[str]]()
    else:
        overview, blocks, misses = page.report(found, tables, scales, tolerance)
        blocks = [*blocks, *_missing(table, scales, task, found)] if table else [overview, *blocks]
    faults = [sentence for result in kept if (sentence := fault(result, root or None))]
    if check:
        blocks.append(Block(f"{len(kept)} results are kept, {len(faults)} do not match", [], faults))
    printed(blocks)
    if check and (misses or faults):
        raise TlmError("; ".join(_failures(misses, faults)))


def _update(page_file: str, folder: str, results: ByKey, table: str, scale: str) -> None:
    """Rewrite the section of a table at a scale, or all sections, and say which files that changes."""
    if bool(table) != bool(scale):
        raise InputError(f"--update has {table or scale} alone; give a table and its --scale, or neither for all")
    changed = ", ".join(map(str, update_page(Path(page_file), Path(folder), results, table, scale)))
    say(f"rewritten: {changed}" if changed else f"nothing changes: {page_file} has what the results give")


def _failures(misses: Mapping[str, list[str]], faults: Sequence[str]) -> Iterator[str]:
    """Say why a check fails, with examples."""
    if misses:
        named = "; ".join(f"{key} (table {', '.join(tables)})" for key, tables in list(misses.items())[:3])
        yield f"missed the paper's value: {len(misses)}, such as {named}"
    if faults:
        yield f"results that do not match their runs: {len(faults)}, such as {faults[0]}"


def _missing(table: str, scales: list[str], task: str, results: ByKey) -> list[Block]:
    """The runs without a result, for each scale, with the commands that run them."""
    blocks = []
    for scale in scales:
        found = cells(table, scale, [our_name(task)] if task else [])
        seeds: dict[tuple[str, str], list[int]] = {}
        for cell, left in missing(once(found), results):
            seeds.setdefault((cell.task, "" if is_of(cell, "") else cell.corpus), []).extend(left)
        total = sum(map(len, seeds.values()))
        heading = f"Still to be run for table {table} at scale {scale}: {f'{total} runs' if total else 'nothing'}"
        lines: list[Line] = []
        for (name, corpus), left in seeds.items():
            command = command_for(table, scale, name, sorted(set(left)), corpus)
            lines.append((f"{title(name)}, {len(left)} runs: ", Span(command, "code")))
        if found:
            blocks.append(Block(heading, [], lines))
    if task and not blocks:
        known = list(map(task_of, all_tables()[table]["row"][0]["values"]))
        raise InputError(f"table {table} has no task '{task}'{nearest(task, known)}")
    return blocks
