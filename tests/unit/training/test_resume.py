"""Interrupted training goes on and ends as if nothing had happened."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.toys_training import checkpoint, task
from tlm.artifacts.produce import Recipe
from tlm.errors import InputError, Interrupted
from tlm.settings.options import Compute
from tlm.settings.presets import resolve
from tlm.training.checkpoint import AdamW, Best, Curve, Snapshots, State

HOME = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """Runs of both stages, undisturbed and killed at random steps, in processes of their own."""
    command = [sys.executable, "-m", "tests.toys_training", str(tmp_path_factory.mktemp("runs"))]
    done = subprocess.run(command, cwd=HOME, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("stage", ["train", "finetune"])
def test_a_killed_run_goes_on_and_ends_bit_equal(runs, stage):
    killed = runs[f"kill {stage}"]
    assert killed["code"] == -9
    assert killed["snapshots"], "there was nothing to go on from: the test would prove nothing"
    newest = killed["step"] // 3 * 3
    assert max(killed["snapshots"]) in {f"step-{step:09d}" for step in (newest, newest - 3)}  # or it was being written
    assert killed["again"] == runs["undisturbed"]


@pytest.mark.parametrize(("way", "code"), [("term", 143), ("interrupt", 130)])
@pytest.mark.parametrize("stage", ["train", "finetune"])
def test_a_signal_saves_the_step_in_progress(runs, stage, way, code):
    ended = runs[f"{way} {stage}"]
    assert ended["code"] == code
    assert max(ended["snapshots"]) == f"step-{ended['step'] + 1:09d}"
    assert ended["again"] == runs["undisturbed"]


def test_a_signal_during_the_last_save_waits_for_it(runs):
    ended = runs["late train"]
    assert ended["code"] == 143
    assert max(ended["snapshots"]) == f"step-{ended['step'] + 1:09d}"
    assert ended["again"] == runs["undisturbed"]


def test_snapshots_are_removed_when_the_work_is_published(runs):
    ways = [f"{way} {stage}" for way in ("kill", "term", "interrupt") for stage in ("train", "finetune")]
    assert {name: run["left"] for name, run in runs.items() if name != "undisturbed"} == dict.fromkeys(
        [*ways, "late train"], 0
    )


def test_the_snapshot_interval_does_not_name_the_result(tmp_path):
    examples = task(tmp_path)
    first = checkpoint(tmp_path, examples, save_steps=0)
    assert checkpoint(tmp_path, examples, save_steps=5).uri == first.uri
    assert checkpoint(tmp_path, examples, seed=1).uri != first.uri


@pytest.mark.parametrize(("minutes", "saved_at"), [(5, [60, 360, 660]), (0.5, [30, 60, 90, 120, 150]), (0, [])])
def test_the_first_snapshot_comes_after_a_minute(tmp_path, monkeypatch, minutes, saved_at):
    """A pod that is lost soon after its start has not worked for nothing."""
    now = 0.0
    monkeypatch.setattr("tlm.training.checkpoint.time.monotonic", lambda: now)
    snapshots = Snapshots(Recipe("checkpoint", "toy", 1, {}), str(tmp_path), Compute(save_minutes=minutes))
    monkeypatch.setattr(snapshots.progress, "save", lambda *_: None)
    state, found = State.fresh(torch.nn.Linear(1, 1), resolve("tiny").train, 1), []
    while now < 700 and len(found) < 5:
        now += 1
        if snapshots.late():
            snapshots.begin(state)
            found.append(now)
    assert found == saved_at


def test_a_state_is_read_as_it_was_written(tmp_path):
    def fresh() -> State:
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2), torch.nn.Linear(2, 1))
        return State(net, AdamW(net, 0.1, (0.9, 0.99)), Curve(5, torch.device("cpu")))

    def step(state: State) -> None:
        state.model[1](state.model[0](torch.ones(2, 3))).sum().backward()  # the last layer gets no gradient
        state.optimizer.step(0.1)

    first = fresh()
    step(first)
    first.step, first.curve.losses[0], first.curve.costs[0], first.curve.dev[0] = 1, 2.5, (1, 2, 3), 0.75
    first.best = Best(1, 0.75, {"weight": torch.arange(3.0)})
    first.copied({})(tmp_path)
    second = fresh()
    second.read(tmp_path)
    assert second.step == 1
    assert second.best is not None
    assert (second.best.step, second.best.score) == (1, 0.75)
    assert torch.equal(second.best.weights["weight"], torch.arange(3.0))
    for state, name in ((first, "a"), (second, "b")):
        step(state)
        (tmp_path / name).mkdir()
        state.copied({})(tmp_path / name)
    assert (tmp_path / "a/state.safetensors").read_bytes() == (tmp_path / "b/state.safetensors").read_bytes()


def test_a_snapshot_that_cannot_be_written_ends_with_advice(tmp_path):
    examples = task(tmp_path)
    (tmp_path / "progress").write_text("in the way")
    with pytest.raises(Interrupted, match=r"the snapshot after step 5 could not be written .*; fix that, then repeat"):
        checkpoint(tmp_path, examples, save_steps=5)


def test_weights_that_do_not_fit_on_the_disk_end_with_advice(tmp_path):
    """The limit is on the size of a file, in a process of its own: what is written is too large for it."""
    code = (
        "import pathlib, resource, signal, sys, torch\n"
        "from tlm.training.model.encoder import write_tensors\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))\n"
        "write_tensors({'a': torch.zeros(1 << 20)}, pathlib.Path(sys.argv[1]))"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "weights.safetensors")]
    done = subprocess.run(command, cwd=HOME, capture_output=True, text=True, timeout=120)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("tlm.errors.Interrupted: weights.safetensors could not be written (")
    assert last.endswith("); free some space, then repeat the command")


def test_divergence_ends_with_advice(tmp_path):
    with pytest.raises(InputError, match=r"step \d+ is not a number: training diverged; lower the learning rate"):
        checkpoint(tmp_path, task(tmp_path), "train.lr=1e9", "train.clip=0", "train.warmup_steps=0")


def test_a_copy_of_the_state_does_not_change_as_training_goes_on(tmp_path):
    net = torch.nn.Linear(3, 1)
    state = State(net, AdamW(net, 0.1, (0.9, 0.99)), Curve(5, torch.device("cpu")))
    for name in ("before", "copy", "after"):
        (tmp_path / name).mkdir()
    state.copied({})(tmp_path / "before")
    write = state.copied({})
    net(torch.ones(2, 3)).sum().backward()
    state.optimizer.step(0.1)
    state.step, state.curve.costs[0], state.curve.dev[0] = 1, (1, 2, 3), 0.5
    write(tmp_path / "copy")
    state.copied({})(tmp_path / "after")
    before, copy, after = (
        [path.read_bytes() for path in sorted((tmp_path / name).iterdir())] for name in ("before", "copy", "after")
    )
    assert before == copy != after


def test_a_save_in_the_background_that_fails_ends_the_next_one(tmp_path):
    (tmp_path / "progress").write_text("in the way")
    snapshots = Snapshots(Recipe("checkpoint", "toy", 1, {}), str(tmp_path), Compute(save_minutes=5))
    state = State.fresh(torch.nn.Linear(1, 1), resolve("tiny").train, 1)
    snapshots.begin(state)
    with pytest.raises(Interrupted, match="the snapshot after step 0 could not be written"):
        snapshots.begin(state)
