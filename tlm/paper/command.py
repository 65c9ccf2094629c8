"""The command `paper`: the tables with verdicts, and what is still to be run."""

from pathlib import Path

from tlm.errors import InputError, TlmError, nearest
from tlm.paper.document import arms, page, sections
from tlm.paper.document.blocks import Block, show
from tlm.paper.document.blocks import markdown as as_markdown
from tlm.paper.plan import ByKey, command_for, missing, once
from tlm.paper.results import FOLDER, by_key, fault, read_results
from tlm.paper.tables import (
    PAPER,
    Cell,
    all_tables,
    cells,
    check_names,
    expected,
    is_of,
    ladders,
    our_name,
    own_tables,
    title,
)
from tlm.progress import say


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
    """Lay what was run beside the paper's tables, and list what is still to be run.

    With a table, its cells and the commands for what is missing; without one, all tables. With --check the
    exit code is 1 if a cell misses the paper's value at the paper's scale, or a kept result is not its run's. With
    --update marked sections of a page are rewritten from the kept results, and nothing is printed.

    Args:
        table: Number of one of the paper's tables; arms or hour: ours, with all scores of each arm.
        scale: One of tiny, demo, pocket, mini, small, medium, large; empty: all.
        check: Compare the kept results with the paper's values and with their runs.
        task: List only what this task still needs; also one that the paper does not have.
        tolerance: Hundredths that always count as within, at the paper's scales.
        markdown: Print Markdown.
        update: Markdown file whose section of this table and scale is rewritten; without a table, all its sections.
        results: Folder of the kept results.
        root: Where the runs' artifacts may still be, to compare the results with them.
    """
    tables = [table] if table else list(expected())
    scales = [scale] if scale else [*PAPER, *(name for name in ladders() if name != "tiny")]
    check_names(tables[0], scales[0])
    if tolerance < 0:
        raise InputError(f"tolerance is {tolerance}; expected 0 or more, in hundredths")
    kept = read_results(Path(results))
    found = by_key(kept)
    if update:
        _update(Path(update), Path(results), found, table, scale)
        return
    told = page.report(found, [one for one in tables if one not in own_tables()], scales, tolerance)
    blocks = told.blocks
    if table:
        own = [block for one in scales for block in arms.blocks(table, one, found)] if table in own_tables() else []
        blocks = [*blocks[1:], *own, *_to_run(table, scales, task, found)]
    faults = [sentence for result in kept if (sentence := fault(result, root or None))]
    if check:
        blocks.append(Block(f"{len(kept)} results are kept, {len(faults)} do not match", [], faults))
    if markdown:
        print(as_markdown(blocks))
    else:
        show(blocks)
    if check and (told.misses or faults):
        raise TlmError(_failure(told.misses, faults))


def _update(path: Path, results: Path, kept: ByKey, table: str, scale: str) -> None:
    if bool(table) != bool(scale):
        raise InputError(
            f"--update has {table or scale} alone; give a table and its --scale, or neither for all sections"
        )
    changed = sections.update(path, results, kept, table, scale)
    say(
        f"rewritten: {', '.join(map(str, changed))}"
        if changed
        else f"nothing changes: {path} has what the results give"
    )


def _failure(misses: dict[str, list[str]], faults: list[str]) -> str:
    parts = []
    if misses:
        named = "; ".join(f"{key} (table {', '.join(tables)})" for key, tables in list(misses.items())[:3])
        parts.append(f"missed the paper's value: {len(misses)}, such as {named}")
    if faults:
        parts.append(f"results that do not match their runs: {len(faults)}, such as {faults[0]}")
    return "; ".join(parts)


def _to_run(table: str, scales: list[str], task: str, results: ByKey) -> list[Block]:
    blocks = []
    for scale in scales:
        found = cells(table, scale, [our_name(task)] if task else [])
        if found:
            blocks.append(_block(table, scale, missing(once(found), results)))
    if task and not blocks:
        raise InputError(f"table {table} has no task '{task}'{nearest(task, _tasks(table))}")
    return blocks


def _tasks(table: str) -> list[str]:
    return [column.partition("/")[0] for column in all_tables()[table]["row"][0]["values"]]


def _block(table: str, scale: str, todo: list[tuple[Cell, list[int]]]) -> Block:
    runs = sum(len(seeds) for _, seeds in todo)
    heading = f"Still to be run for table {table} at scale {scale}: {runs or 'nothing'}{' runs' if runs else ''}"
    groups: dict[tuple[str, str], list[list[int]]] = {}
    for cell, seeds in todo:
        corpus = "" if is_of(cell, "") else cell.corpus
        groups.setdefault((cell.task, corpus), []).append(seeds)
    lines = []
    for (name, corpus), parts in groups.items():
        seeds = sorted({seed for part in parts for seed in part})
        lines.append(f"{title(name)}, {sum(map(len, parts))} runs: {command_for(table, scale, name, seeds, corpus)}")
    return Block(heading, [], lines)
