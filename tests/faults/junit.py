"""Tests as experiments: so many were tried, so many failed, by what they are about."""

import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.faults.row import HOME, Row, row


def counted(arguments: list[str], group: Callable[[str, str], str]) -> Iterator[Row]:
    """A row for each group of tests that pytest runs with these arguments; those that were skipped were not tried.

    `group` names the row of a test, given its module and its name.
    """
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        command = [sys.executable, "-m", "pytest", *arguments, f"--junitxml={report}", "-q"]
        subprocess.run(command, cwd=HOME, stdout=sys.stderr, check=False)
        tried, failed = Counter[str](), Counter[str]()
        for test in ElementTree.parse(report).iter("testcase"):
            what = group(test.get("classname", ""), test.get("name", ""))
            tried[what] += test.find("skipped") is None
            failed[what] += test.find("failure") is not None or test.find("error") is not None
    yield from (row(what, count, count - failed[what]) for what, count in tried.items() if count)
