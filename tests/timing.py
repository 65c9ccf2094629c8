"""The last table of a test run: how long the tests of each folder took, on the clock and of the processors."""

import os
from collections import defaultdict
from collections.abc import Generator
from pathlib import PurePath

import pytest

SPENT = pytest.StashKey[float]()


def cpu_seconds() -> float:
    """Of this process, and of its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def pytest_collection_finish(session: pytest.Session) -> None:
    session.config.stash[SPENT] = cpu_seconds()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A phase of a test (setup, call, teardown) gets all seconds since the last one."""
    report = yield
    now = cpu_seconds()
    report.cpu_seconds = now - item.config.stash[SPENT]
    item.config.stash[SPENT] = now
    return report


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table after the slowest tests; where tests run in parallel, all their reports are here."""
    tests: dict[str, set[str]] = defaultdict(set)
    clock: dict[str, float] = defaultdict(float)
    cpu: dict[str, float] = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                folder = str(PurePath(report.nodeid.split("::")[0]).parent)
                tests[folder].add(report.nodeid)
                clock[folder] += report.duration
                cpu[folder] += getattr(report, "cpu_seconds", 0.0)
    terminalreporter.section("time by folder")
    terminalreporter.line("seconds     CPU tests")
    for folder in sorted(clock, key=clock.__getitem__, reverse=True):
        terminalreporter.line(f"{clock[folder]:7.0f} {cpu[folder]:7.0f} {len(tests[folder]):5d} {folder}")
