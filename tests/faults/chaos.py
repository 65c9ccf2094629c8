"""Faults at length: ``python -m tests.faults.chaos PART [--seconds N] [--seed N]`` writes and prints one table.

What was tried, how much of it survived, how much was lost; in build/chaos/PART.json, from which the table of all parts
that have run is put together.
"""

import argparse
import importlib.util
import json
import re
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

HOME = Path(__file__).parents[2]
RESULTS = HOME / "build" / "chaos"
NAMES = ("kill", "corrupt", "elastic", "s3", "input", "security", "load")
FUZZED = ("readers", "manifest", "queries")

Row = dict[str, str | int]


def bad_input(seconds: int, seed: int) -> Iterator[Row]:
    """The table of bad input, memory and disk; hypothesis; atheris for so many seconds a target."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        command = ["-m", "pytest", "tests/faults", f"--junitxml={report}", f"--hypothesis-seed={seed}", "-q"]
        subprocess.run([sys.executable, *command], cwd=HOME, stdout=sys.stderr, check=False)
        tried, failed = Counter[str](), Counter[str]()
        for test in ElementTree.parse(report).iter("testcase"):
            what = _group(test.get("classname", ""), test.get("name", ""))
            skipped, wrong = (test.find(kind) is not None for kind in ("skipped", "failure"))
            tried[what] += not skipped
            failed[what] += wrong or test.find("error") is not None
    yield from (_row(what, count, count - failed[what]) for what, count in tried.items() if count)
    if importlib.util.find_spec("atheris") is None:
        print("atheris is not installed here, so nothing was fuzzed with it", file=sys.stderr)
        return
    for target in FUZZED:
        options = [f"--seconds={seconds}", f"--seed={seed}"]
        done = subprocess.run(
            [sys.executable, "-m", "tests.faults.fuzz_input", target, *options],
            cwd=HOME, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
        runs, covered = (re.findall(pattern, done.stderr) for pattern in (r"executed_units: (\d+)", r"cov: (\d+)"))
        survived = done.returncode == 0
        if not survived:
            print(done.stderr, file=sys.stderr)
        tried_ = int(runs[-1]) if runs else 1
        what = f"atheris, {target}: {seconds} s, coverage {covered[-1] if covered else 0}, seed {seed}"
        yield _row(what, tried_, tried_ - (not survived))


def _group(module: str, name: str) -> str:
    case = re.search(r"\[(\w+): ", name)
    kinds = {"test_memory": "a gigabyte in bounded memory", "test_disk": "more than the disk has room for",
             "test_fuzz": "hypothesis: properties of readers, manifests, queries"}  # fmt: skip
    return f"bad {case[1]}" if case else kinds.get(module.rpartition(".")[2], module)


def _row(what: str, tried: int, survived: int) -> Row:
    return {"what": what, "tried": tried, "survived": survived}


PARTS: dict[str, Callable[[int, int], Iterator[Row]]] = {"input": bad_input}


def table() -> str:
    """Of all parts that have run, as Markdown."""
    lines = ["| part | what | tried | survived | lost |", "|---|---|--:|--:|--:|"]
    for path in sorted(RESULTS.glob("*.json"), key=lambda path: NAMES.index(path.stem)):
        for row in json.loads(path.read_text())["rows"]:
            lost = row["tried"] - row["survived"]
            lines.append(f"| {path.stem} | {row['what']} | {row['tried']:,} | {row['survived']:,} | {lost:,} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part")
    parser.add_argument("--seconds", type=int, default=60, help="for each target of atheris")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    if given.part not in PARTS:
        known = "is not written yet" if given.part in NAMES else "is unknown"
        print(f"PART={given.part} {known}; there is PART={', PART='.join(PARTS)}", file=sys.stderr)
        sys.exit(2)
    started = time.time()
    rows = list(PARTS[given.part](given.seconds, given.seed))
    result = {"part": given.part, "seed": given.seed, "seconds": round(time.time() - started), "rows": rows}
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{given.part}.json").write_text(json.dumps(result, indent=1) + "\n")
    print(table())
    sys.exit(any(row["survived"] != row["tried"] for row in rows))


if __name__ == "__main__":
    main()
