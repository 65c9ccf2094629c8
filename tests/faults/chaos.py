"""The long fault tests: ``python -m tests.faults.chaos PART [OPTIONS]`` prints a table.

The table says what was tried, how often it survived and how often it was lost. The results go to build/chaos/PART.json,
with --keep also to docs/reliability and the table in docs/RELIABILITY.md. A part is a module of `tests.faults.parts`
with a function ``rows(seconds, seed)``; its short version, if it has one, is a test next to this file. A part that
takes hours also has the NAMES of its rows and a function ``rows_of(names, seed)``: --only tries some, which then have a
revision of their own, and others stay as they were kept.
"""

import argparse
import importlib
import json
import re
import sys
import time
from collections.abc import Iterator
from datetime import date
from itertools import groupby
from pathlib import Path
from typing import Any

from research.benchmarks.machine import machine
from tests.faults.chain import STEPS
from tests.faults.row import HOME, Row, row
from tlm.artifacts.produce import revision

BUILT, KEPT = HOME / "build" / "chaos", HOME / "docs" / "reliability"
PAGE = HOME / "docs" / "RELIABILITY.md"
BEGIN, END = "<!-- make chaos -->\n", "<!-- end -->"
NAMES = ("kill", "corrupt", "elastic", "s3", "input", "security", "load", "kubeflow")

Result = dict[str, Any]  # of a part, as it is kept: rows, and when, where and at which revision they were tried


def table(*folders: Path) -> str:
    """The results of all parts, as Markdown. Results in later folders replace those in earlier ones."""
    lines = ["| part | what | tried | survived | lost |", "|---|---|--:|--:|--:|"]
    made = ["", "Tried at:", ""]
    for name in NAMES:
        found = [folder / f"{name}.json" for folder in folders if (folder / f"{name}.json").exists()]
        if not found:
            continue
        result = json.loads(found[-1].read_text())
        made.append(f"* {name}: {moments(result)}; {result['seconds'] // 60} min")
        for what, tried, survived in (list(one.values())[:3] for one in folded(result["rows"])):
            lines.append(f"| {name} | {what} | {tried:,} | {survived:,} | {tried - survived:,} |")
    return "\n".join([*lines, *made])


def moments(result: Result) -> str:
    """At which revision, day and seed a part was tried; rows that were tried again later are named with their own."""
    whole, found = _moment(result), dict[str, list[str]]()
    for one in result["rows"]:
        found.setdefault(_moment(result | one), []).append(one["what"])
    later = [f"{moment}: {', '.join(names)}" for moment, names in found.items() if moment != whole]
    return "; ".join([*([whole] if whole in found else []), *later])


def _moment(facts: Result) -> str:
    return f"revision {facts['revision']}, {facts['day']}, seed {facts['seed']}"


def merged(before: Result, new: Result) -> Result:
    """A part of which some rows were tried again: these say when, and the others stay as they were kept."""
    own = {name: new[name] for name in ("revision", "day", "seed")}
    again = {one["what"]: one | own for one in new["rows"]}
    rows = [again.pop(one["what"], one) for one in before["rows"]]
    return before | {"seconds": before["seconds"] + new["seconds"], "rows": [*rows, *again.values()]}


def folded(rows: list[Row]) -> Iterator[Row]:
    """The rows, with one row for several steps that were treated alike and lost nothing."""
    for what, group in groupby(rows, key=_without_step):
        alike = list(group)
        tried, survived = (sum(int(one[name]) for one in alike) for name in ("tried", "survived"))
        if len(alike) > 1 and tried == survived:
            yield row(f"{what}: each of {len(alike)} steps", tried, survived)
        else:
            yield from alike


def _without_step(one: Row) -> str:
    what, _, step = str(one["what"]).rpartition(": ")
    return what if step in STEPS else str(one["what"])


def page(text: str) -> str:
    """The page `text` with the table of the kept results."""
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n{table(KEPT)}\n\n{END}{rest.partition(END)[2]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", nargs="?", default="", help=f"{', '.join(NAMES)}; without one, print the results")
    parser.add_argument("--seconds", type=int, default=60, help="for each target of the fuzzer")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="rows whose names match this pattern, for parts that take hours")
    parser.add_argument("--keep", action="store_true", help="also write docs/reliability and RELIABILITY.md")
    given = parser.parse_args()
    if not given.part:
        print(table(KEPT, BUILT))
        return
    if given.part not in NAMES:
        print(f"PART={given.part} is unknown; use PART={', PART='.join(NAMES)}", file=sys.stderr)
        sys.exit(2)
    files = [folder / f"{given.part}.json" for folder in ((BUILT, KEPT) if given.keep else (BUILT,))]
    kept = {file: json.loads(file.read_text()) for file in files if given.only and file.exists()}
    facts: Result = {"part": given.part, "seed": given.seed, "day": f"{date.today()}"}
    facts |= {"revision": revision() or "unknown", "machine": machine()}
    started, rows = time.time(), list[Row]()
    for one in _rows(given.part, given.only, given.seconds, given.seed):
        rows.append(one)  # written at once: the next ones may take hours
        new = facts | {"seconds": round(time.time() - started), "rows": rows}
        for file in files:
            result = merged(kept[file], new) if file in kept else new
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(result, indent=1) + "\n")
    if given.keep:
        PAGE.write_text(page(PAGE.read_text()))
    print(table(KEPT, BUILT))
    sys.exit(any(row["survived"] != row["tried"] for row in rows))


def _rows(part: str, only: str, seconds: int, seed: int) -> Iterator[Row]:
    module = importlib.import_module(f"tests.faults.parts.{part}")
    if not only:
        return module.rows(seconds, seed)
    names = [name for name in getattr(module, "NAMES", ()) if re.search(only, name)]
    if not names:
        sys.exit(f"--only {only}: {part} has no such row that can be tried alone")
    return module.rows_of(names, seed)


if __name__ == "__main__":
    main()
