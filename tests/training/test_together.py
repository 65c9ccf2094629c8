"""Two processes that train together do what one does: the same losses, snapshots, ends."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.training.worlds import LOOKED_AT, PLANS, SAVE_SECONDS, STEPS, TICKS
from tests.unit.training.test_encoder import made, masked_batch
from tlm.settings.presets import resolve
from tlm.training.checkpoint import State
from tlm.training.device import autocast
from tlm.training.distributed.group import ProcessGroup
from tlm.training.input.batches import Batch
from tlm.training.loop import Plan, _step
from tlm.training.model.encoder import Encoder, Inputs
from tlm.training.model.losses import Losses, external_loss

pytestmark = pytest.mark.slow

HOME = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict:
    command = [sys.executable, "-m", "tests.training.worlds", str(tmp_path_factory.mktemp("worlds"))]
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}  # else idle threads of one process keep the other waiting
    done = subprocess.run(command, cwd=HOME, env=one_thread, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize(("stage", "columns"), [(0, ("mlm", "ce")), (1, ("ce",))], ids=["stage 1", "stage 2"])
def test_the_losses_are_those_of_one_process(runs, plan, stage, columns):
    one, (two, other) = (runs["compared"][plan][name] for name in ("one", "two"))
    assert two[stage]["uri"] == other[stage]["uri"]  # both processes know what came of it
    for column in columns:
        expected, found = (run[stage]["curve"][column][:STEPS] for run in (one, two))
        assert len(found) == STEPS
        assert [math.nan if loss is None else loss for loss in found] == pytest.approx(
            [math.nan if loss is None else loss for loss in expected], rel=1e-4, nan_ok=True
        )
    if plan == "external only" and stage == 0:
        assert set(two[0]["curve"]["ce"]) == {None}


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("stage", [0, 1], ids=["stage 1", "stage 2"])
def test_the_number_of_processes_is_told_but_names_nothing(runs, plan, stage):
    one, (two, _) = (runs["compared"][plan][name] for name in ("one", "two"))
    if stage == 0:  # stage 2 is named by its checkpoint's content, whose last bits differ
        assert one[0]["uri"].rpartition("/")[2] == two[0]["uri"].rpartition("/")[2]
    assert one[stage]["details"]["cost"] == two[stage]["details"]["cost"]
    assert one[stage]["curve"]["tokens"] == two[stage]["curve"]["tokens"]
    assert (one[stage]["run"]["processes"], two[stage]["run"]["processes"]) == (1, 2)


@pytest.mark.parametrize("plan", ["mixed", "accumulation"])
def test_the_model_is_as_good(runs, plan):
    one, (two, _) = (runs["compared"][plan][name] for name in ("one", "two"))
    assert two[1]["details"]["best_dev"] == pytest.approx(one[1]["details"]["best_dev"], abs=0.06)
    assert two[1]["details"]["best_dev"] > 0.6


class OneOfMany(ProcessGroup):
    """A process whose companions add nothing."""

    def sum_gradients(self, *tensors: object) -> None:
        pass


class Counting:
    """Work that notes how many rows each part of a batch has."""

    def __init__(self, model: Encoder, count: int) -> None:
        self.model, self.whole, self.parts = model, masked_batch(count=count), []

    def batch(self, step: int) -> Batch:
        return self.whole

    def costs(self, step: int, batch: Batch) -> tuple[int, int, int]:
        return 0, 0, 0

    def losses(self, step: int, inputs: Inputs) -> Losses:
        self.parts.append(len(inputs.lengths))
        return external_loss(self.model, inputs)


@pytest.mark.parametrize(
    ("accumulation", "size", "parts"),
    [(1, 1, [16]), (8, 1, [2] * 8), (8, 2, [2] * 4), (8, 4, [2, 2]), (8, 8, [2]), (3, 2, [4, 4]), (1, 4, [4])],
)
def test_processes_share_the_parts_of_a_batch(accumulation, size, parts):
    """So a preset for one GPU fits on each of several, and leaves none with tiny parts."""
    settings = resolve("tiny", [f"train.accumulation={accumulation}"]).train
    model = made("bert")
    work, state = Counting(model, 16), State.fresh(model, settings, 1)
    cpu, plan = torch.device("cpu"), Plan(settings, 1, 0, 0.0, 0)
    _step(state, work, plan, autocast(cpu, "fp32"), OneOfMany(0, size, 0), work.batch(0))
    assert work.parts == parts


def test_each_process_draws_its_own_dropout(runs):
    (_, first), (_, second) = (ended["value"] for ended in runs["dropout"])
    assert first != second


@pytest.mark.parametrize("name", ["killed", "killed in stage 2", "stopped", "failed"])
def test_interrupted_work_goes_on_and_ends_bit_equal(runs, name):
    found = runs[name]
    assert found["snapshots"], "there was nothing to go on from: the test would prove nothing"
    (calm, _), *_ = (ended["value"] for ended in runs["dropout"])
    assert [ended.get("value") for ended in found["again"]] == [calm, calm]
    assert found["left"] == 0


def test_a_killed_process_ends_the_others_soon(runs):
    for name, survivor in (("killed", 0), ("killed in stage 2", 1)):
        found = runs[name]
        assert found["ended"][1 - survivor]["code"] == -9
        assert found["ended"][survivor]["kind"] == "Lost"
        assert found["ended"][survivor]["sentence"].startswith("another process of this training ended unexpectedly")
        assert max(found["snapshots"]) == "step-000000006"
        assert found["seconds"] < 60


def test_an_error_in_one_process_ends_the_others_soon(runs):
    first, second = runs["failed"]["ended"]
    assert second["sentence"] == "this process has had enough; let it rest"
    assert (first["kind"], second["kind"]) == ("Lost", "InputError")
    assert runs["failed"]["seconds"] < 60


def test_sigterm_on_one_process_ends_all_after_the_same_saved_step(runs):
    first, second = runs["stopped"]["ended"]
    assert (first["code"], second["code"]) == (143, 143)
    assert first["sentence"] == second["sentence"]
    step = int(first["sentence"].split("after step ")[1].split(",")[0])
    assert 5 <= step < STEPS
    assert max(runs["stopped"]["snapshots"]) == f"step-{step:09d}"


@pytest.mark.parametrize("name", TICKS)
def test_no_process_waits_for_its_device_more_often_than_about_once_a_second(runs, name):
    """By its own clock; the first one also at each snapshot. Clocks that disagree hold nobody up."""
    first, second = runs["looks"][name]
    seconds, others = (LOOKED_AT * tick for tick in TICKS[name])
    assert first["looks"] <= seconds + seconds / SAVE_SECONDS + 1
    assert second["looks"] <= others + seconds / SAVE_SECONDS + 1
    assert first["content"] == second["content"]
