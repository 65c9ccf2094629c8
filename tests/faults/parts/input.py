"""Bad input: the table of cases with hypothesis, memory and disk by pytest, then atheris for a fixed time."""

import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator

from tests.faults.junit import counted
from tests.faults.row import HOME, Row, row

TESTS = ("test_input", "test_memory", "test_disk", "test_fuzz")
FUZZED = ("readers", "manifest", "queries")


def rows(seconds: int, seed: int) -> Iterator[Row]:
    """The table of bad input, memory and disk; hypothesis; atheris for so many seconds a target."""
    files = [f"tests/faults/{name}.py" for name in TESTS]
    yield from counted([*files, f"--hypothesis-seed={seed}"], _group)
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
    kinds = {"test_memory": "a gigabyte of input in bounded memory", "test_disk": "input larger than the disk",
             "test_fuzz": "hypothesis: properties of readers, manifests, queries"}  # fmt: skip
    return f"bad {case[1]}" if case else kinds.get(module.rpartition(".")[2], module)
