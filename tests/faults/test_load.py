"""A little load: the short version of `make chaos PART=load`."""

import pytest

from tests.faults.parts import load

pytestmark = pytest.mark.slow


def test_steps_keep_within_their_memory() -> None:
    lost = [row for row in load.large(5_000, 50, 20, seed=1) if row["tried"] != row["survived"]]
    assert lost == []


def test_runs_leave_nothing_behind() -> None:
    lost = [row for row in load.soak(runs=4, settled=2) if row["tried"] != row["survived"]]
    assert lost == []


def test_a_server_outlives_large_requests() -> None:
    pytest.importorskip("onnxruntime")
    lost = [row for row in load.served(40, alive_within=60) if row["tried"] != row["survived"]]
    assert lost == []
