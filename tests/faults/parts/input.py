"""Bad input: the table of cases with hypothesis, memory and disk by pytest, then atheris for a fixed time."""

import importlib.util
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.faults.row import HOME, Row, row

TESTS = ("test_input", "test_memory", "test_disk", "test_fuzz")
FUZZED = ("readers", "manifest", "queries")


def rows(seconds: int, seed: int) -> Iterator[Row]:
    """The table of bad input, memory and disk; hypothesis; atheris for so many seconds a target."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        files = [f"tests/faults/{name}.py" for name in TESTS]
        command = ["-m", "pytest", *files, f"--junitxml={report}", f"--hypothesis-seed={seed}", "-q"]
        subprocess.run([sys.executable, *command], cwd=HOME, stdout=sys.stderr, check=False)
        tried, failed = Counter[str](), Counter[str]()
        for test in ElementTree.parse(report).iter("testcase"):
            what = _group(test.get("classname", ""), test.get("name", ""))
            skipped, wrong = (test.find(kind) is not None for kind in ("skipped", "failure"))
            tried[what] += not skipped
            failed[what] += wrong or test.find("error") is not None
    yield from (row(what, count, count - failed[what]) for what, count in tried.items() if count)
    if importlib.util.find_spec("atheris") is None:
        print("atheris is not installed here, so nothing was fuzzed with it", file=sys.stderr)
        return
    for target in FUZZED:
        options = [f"--seconds={seconds}", f"--seed={seed}"]
        done = subprocess.run(
            [sys.executable, "-m", "tests.faults.parts.fuzz_input", target, *options],
            cwd=HOME, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
        runs, covered = (re.findall(pattern, done.stderr) for pattern in (r"executed_units: (\d+)", r"cov: (\d+)"))
        survived = done.returncode == 0
        if not survived:
            print(done.stderr, file=sys.stderr)
        tried_ = int(runs[-1]) if runs else 1
        what = f"atheris, {target}: {seconds} s, coverage {covered[-1] if covered else 0}, seed {seed}"
        yield row(what, tried_, tried_ - (not survived))


def _group(module: str, name: str) -> str:
    case = re.search(r"\[(\w+): ", name)
    kinds = {"test_memory": "a gigabyte in bounded memory", "test_disk": "more than the disk has room for",
             "test_fuzz": "hypothesis: properties of readers, manifests, queries"}  # fmt: skip
    return f"bad {case[1]}" if case else kinds.get(module.rpartition(".")[2], module)
