"""Faults at length: ``python -m tests.faults.chaos PART [--seconds N] [--seed N] [--keep]`` prints one table.

What was tried, how much of it survived, how much was lost: in build/chaos/PART.json; with --keep in docs/reliability
and in the table of docs/RELIABILITY.md as well. A part is a module of `tests.faults.parts` with ``rows(seconds,
seed)``; its short version is a test beside this file.
"""

import argparse
import importlib
import json
import sys
import time
from datetime import date
from pathlib import Path

from benchmarks.machine import machine
from tests.faults.row import HOME
from tlm.revision import revision

BUILT, KEPT = HOME / "build" / "chaos", HOME / "docs" / "reliability"
PAGE = HOME / "docs" / "RELIABILITY.md"
BEGIN, END = "<!-- make chaos -->\n", "<!-- end -->"
NAMES = ("kill", "corrupt", "elastic", "s3", "input", "security", "load")


def table(*folders: Path) -> str:
    """Of all parts whose results are in one of the folders, the later ones first asked; as Markdown."""
    lines = ["| part | what | tried | survived | lost |", "|---|---|--:|--:|--:|"]
    made = []
    for name in NAMES:
        found = [folder / f"{name}.json" for folder in folders if (folder / f"{name}.json").exists()]
        if not found:
            continue
        result = json.loads(found[-1].read_text())
        made.append(f"{name}: {result['day']}, {result['seconds'] // 60} min, seed {result['seed']}")
        for row in result["rows"]:
            lost = row["tried"] - row["survived"]
            lines.append(f"| {name} | {row['what']} | {row['tried']:,} | {row['survived']:,} | {lost:,} |")
    return "\n".join([*lines, "", "; ".join(made)])


def page(text: str) -> str:
    """The page `text` with the table of what is kept."""
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n{table(KEPT)}\n\n{END}{rest.partition(END)[2]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", nargs="?", default="", help=f"{', '.join(NAMES)}; none: the table of what has run")
    parser.add_argument("--seconds", type=int, default=60, help="for each target of the fuzzer")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", action="store_true", help="in docs/reliability, and make its page again")
    given = parser.parse_args()
    if not given.part:
        print(table(KEPT, BUILT))
        return
    if given.part not in NAMES:
        print(f"PART={given.part} is unknown; there is PART={', PART='.join(NAMES)}", file=sys.stderr)
        sys.exit(2)
    started = time.time()
    rows = list(importlib.import_module(f"tests.faults.parts.{given.part}").rows(given.seconds, given.seed))
    facts = {"day": f"{date.today()}", "revision": revision() or "unknown", "machine": machine()}
    result = {"part": given.part, "seed": given.seed, "seconds": round(time.time() - started), **facts, "rows": rows}
    for folder in (BUILT, KEPT) if given.keep else (BUILT,):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{given.part}.json").write_text(json.dumps(result, indent=1) + "\n")
    if given.keep:
        PAGE.write_text(page(PAGE.read_text()))
    print(table(KEPT, BUILT))
    sys.exit(any(row["survived"] != row["tried"] for row in rows))


if __name__ == "__main__":
    main()
