"""Time and energy are those of all attempts and all machines; what is known in part is told as such."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.training.metered import CASES
from tests.training.worlds import STEPS

pytestmark = pytest.mark.slow

HOME = Path(__file__).parents[2]
BATCHES = {"train": STEPS, "finetune": 24}


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict:
    command = [sys.executable, "-m", "tests.training.metered", str(tmp_path_factory.mktemp("metered"))]
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=HOME, env=one_thread, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def told(cases: dict, name: str) -> list[tuple[dict, int]]:
    """Of each stage run.json and how many batches it has; the case ended as it was meant to."""
    found = cases[name]
    assert found["codes"] == [{9: -9, 15: 143}[attempt.end[2]] if attempt.end else 0 for attempt in CASES[name]]
    return list(zip(found["runs"], BATCHES.values(), strict=True))


@pytest.mark.parametrize("name", [name for name in CASES if name != "a forgotten attempt"])
def test_seconds_are_those_of_all_attempts(cases, name):
    """What was done after the last snapshot is lost, and so is its time: each batch counts once."""
    for run, batches in told(cases, name):
        assert run["seconds"] == batches
        assert run["cpu_seconds"] == batches * run["processes"]
        assert "gpu_seconds" not in run


@pytest.mark.parametrize(
    ("name", "joules"),
    [
        ("undisturbed", 10),
        ("killed", 10),
        ("stopped", 10),
        ("two nodes", 110),
        ("two nodes, killed", 110),
        ("two nodes, stopped", 110),
        ("one machine", 10),  # whose meter counts what all its processes use
    ],
)
def test_joules_are_those_of_all_attempts_and_all_machines(cases, name, joules):
    for run, batches in told(cases, name):
        assert run["cpu_joules"] == batches * joules
        assert "cpu_joules_at_least" not in run


def test_joules_that_one_node_did_not_measure_are_no_total(cases):
    for run, batches in told(cases, "a node without a meter"):
        assert "cpu_joules" not in run
        assert run["cpu_joules_at_least"] == batches * 10


def test_joules_that_one_attempt_did_not_measure_are_no_total(cases):
    (first, batches), (second, _) = told(cases, "an attempt without a meter")
    assert not {"cpu_joules"} & (first.keys() | second.keys())
    assert (first["cpu_joules_at_least"], second["cpu_joules_at_least"]) == ((batches - 6) * 10, 6 * 10)


def test_what_nobody_measured_is_not_told(cases):
    for run, _ in told(cases, "no meters"):
        assert not [name for name in run if "joules" in name]


def test_an_attempt_of_which_the_snapshot_tells_nothing_leaves_no_total(cases):
    """As those of versions that did not write it."""
    for run, batches in told(cases, "a forgotten attempt"):
        assert not {"seconds", "cpu_seconds", "cpu_joules"} & run.keys()
        assert run["seconds_at_least"] == batches - 6
        assert run["cpu_seconds_at_least"] == batches - 6
        assert run["cpu_joules_at_least"] == (batches - 6) * 10


@pytest.mark.parametrize("name", ["killed", "stopped", "no meters", "a forgotten attempt"])
def test_none_of_it_is_part_of_the_content(cases, name):
    assert [run["content"] for run in cases[name]["runs"]] == [run["content"] for run in cases["undisturbed"]["runs"]]
