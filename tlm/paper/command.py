"""The command `paper`: the tables with verdicts, and the runs that are still missing."""

from pathlib import Path

from tlm.errors import InputError, TlmError, nearest
from tlm.paper.curves import curves
from tlm.paper.document import curves as curve_pages
from tlm.paper.document import page, sections
from tlm.paper.document.blocks import Block, show
from tlm.paper.document.blocks import markdown as as_markdown
from tlm.paper.plan import ByKey, command_for, missing, once
from tlm.paper.results import FOLDER, by_key, fault, read_results
from tlm.paper.tables import PAPER, all_tables, cells, check_names, expected, is_of, ladders, our_name, task_of, title
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
    if table in curves() and not update:
        print_blocks = (lambda found: print(as_markdown(found))) if markdown else show
        print_blocks(curve_pages.blocks(table, by_key(read_results(Path(results)))))
        return
    tables = [table] if table else list(expected())
    scales = [scale] if scale else [*PAPER, *(name for name in ladders() if name != "tiny")]
    if table not in curves():
        check_names(tables[0], scales[0])
    if tolerance < 0:
        raise InputError(f"tolerance is {tolerance}; expected 0 or more, in hundredths")
    kept = read_results(Path(results))
    found = by_key(kept)
    if update:
        if bool(table) != bool(scale):
            raise InputError(f"--update has {table or scale} alone; give a table and its --scale, or neither for all")
        changed = ", ".join(map(str, sections.update(Path(update), Path(results), found, table, scale)))
        say(f"rewritten: {changed}" if changed else f"nothing changes: {update} has what the results give")
        return
    report = page.report(found, tables, scales, tolerance)
    blocks = [*report.blocks, *_missing(table, scales, task, found)] if table else [report.overview, *report.blocks]
    faults = [sentence for result in kept if (sentence := fault(result, root or None))]
    if check:
        blocks.append(Block(f"{len(kept)} results are kept, {len(faults)} do not match", [], faults))
    if markdown:
        print(as_markdown(blocks))
    else:
        show(blocks)
    failures = []
    if report.misses:
        named = "; ".join(f"{key} (table {', '.join(those)})" for key, those in list(report.misses.items())[:3])
        failures.append(f"missed the paper's value: {len(report.misses)}, such as {named}")
    if faults:
        failures.append(f"results that do not match their runs: {len(faults)}, such as {faults[0]}")
    if check and failures:
        raise TlmError("; ".join(failures))


def _missing(table: str, scales: list[str], task: str, results: ByKey) -> list[Block]:
    """For each scale, the runs without a result, with the commands that run them."""
    blocks = []
    for scale in scales:
        found = cells(table, scale, [our_name(task)] if task else [])
        seeds: dict[tuple[str, str], list[int]] = {}
        for cell, left in missing(once(found), results):
            seeds.setdefault((cell.task, "" if is_of(cell, "") else cell.corpus), []).extend(left)
        total = sum(map(len, seeds.values()))
        heading = f"Still to be run for table {table} at scale {scale}: {f'{total} runs' if total else 'nothing'}"
        lines = [
            f"{title(name)}, {len(left)} runs: {command_for(table, scale, name, sorted(set(left)), corpus)}"
            for (name, corpus), left in seeds.items()
        ]
        blocks += [Block(heading, [], lines)] if found else []
    if task and not blocks:
        known = list(map(task_of, all_tables()[table]["row"][0]["values"]))
        raise InputError(f"table {table} has no task '{task}'{nearest(task, known)}")
    return blocks
