"""Steps that run at once on one machine: each has GPUs of its own, or the CPU. A folder of locks stands in for them."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from kfp.local import DockerRunner

from components.training import evaluate, train
from pipelines.form import Parallelism
from pipelines.local import hardened, run_pipeline
from tests.toys_training import SMALL, passages, task, tokenizer
from tests.training import steps
from tlm.artifacts.artifact import Artifact
from tlm.errors import InputError
from tlm.runs.plan import PlannedRun
from tlm.settings.options import Compute
from tlm.training.distributed.launch import LOCKS, own_cards, processes, train_together

HOME = Path(__file__).parents[2]
STEP = """
import os, sys, time
from pathlib import Path
from tlm.training.distributed.launch import own_cards
name, count, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
with own_cards("auto", count):
    (folder / f"{name}.in").write_text(os.environ["CUDA_VISIBLE_DEVICES"])
    while not (folder / f"{name}.go").exists():
        time.sleep(0.02)
    (folder / f"{name}.in").unlink()
"""


def started(folder: Path, name: str, count: int) -> subprocess.Popen[bytes]:
    """A step that holds `count` of two cards until it may go."""
    env = {**os.environ, LOCKS: str(folder / "locks"), "CUDA_VISIBLE_DEVICES": "4,GPU-7"}
    return subprocess.Popen([sys.executable, "-c", STEP, name, str(count), str(folder)], cwd=HOME, env=env)


def holding(folder: Path, *names: str) -> dict[str, str]:
    """Wait until these steps hold cards; the cards of all steps that do."""
    deadline = time.monotonic() + 60
    while not all((folder / f"{name}.in").exists() for name in names):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)
    return {path.stem: path.read_text() for path in folder.glob("*.in")}


def test_each_step_has_cards_that_no_other_step_has(tmp_path):
    first, second = started(tmp_path, "first", 1), started(tmp_path, "second", 1)
    assert sorted(holding(tmp_path, "first", "second").values()) == ["4", "GPU-7"]
    both, third = started(tmp_path, "both", 2), started(tmp_path, "third", 1)
    time.sleep(1)
    assert holding(tmp_path).keys() == {"first", "second"}, "both cards are taken"
    first.kill()  # the locks of a process end with it
    (tmp_path / "first.in").unlink()
    assert holding(tmp_path, "third").keys() == {"second", "third"}, "one card is enough for it"
    for name in ("second", "third"):
        (tmp_path / f"{name}.go").touch()
    assert holding(tmp_path, "both")["both"] == "4,GPU-7"
    assert holding(tmp_path).keys() == {"both"}
    (tmp_path / "both.go").touch()
    assert [step.wait(60) for step in (second, third, both)] == [0, 0, 0]
    first.wait(60)


def test_a_step_on_the_cpu_and_one_without_locks_wait_for_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,GPU-7")
    with own_cards("auto", 2):
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "4,GPU-7"
    monkeypatch.setenv(LOCKS, str(tmp_path / "locks"))
    with own_cards("auto", 1):
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "4"
        with own_cards("cpu", 1), own_cards("auto", 0):
            assert os.environ["CUDA_VISIBLE_DEVICES"] == "4"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "4,GPU-7"
    with own_cards("cuda:1", 1):  # somebody chose it
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "4,GPU-7"


def test_in_the_folder_of_a_group_its_members_lock_one_anothers_cards(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4")
    monkeypatch.setenv(LOCKS, str(tmp_path / "outputs" / "gpus"))
    tmp_path.chmod(0o2770)
    before = os.umask(0o077)
    try:
        with own_cards("auto", 1):
            modes = [path.stat().st_mode & 0o7777 for path in (tmp_path / "outputs/gpus", tmp_path / "outputs/gpus/4")]
    finally:
        os.umask(before)
    assert modes == [0o2770, 0o660]


def test_steps_of_two_users_of_a_folder_have_cards_of_their_own(tmp_path, monkeypatch):
    """The second can open the first one's locks only to read them, in /tmp even if their mode lets it write."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,GPU-7")
    monkeypatch.setenv(LOCKS, str(tmp_path / "locks"))
    opened = Path.open

    def of_another(path, mode="r"):
        if mode != "r":
            raise PermissionError(path)
        return opened(path)

    with own_cards("auto", 2):
        pass
    with own_cards("auto", 1), monkeypatch.context() as second:
        second.setattr(Path, "open", of_another)
        second.setenv("CUDA_VISIBLE_DEVICES", "4,GPU-7")
        with own_cards("auto", 1):
            assert os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-7"


def test_a_training_is_carried_out_on_cards_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,GPU-7")
    monkeypatch.setenv(LOCKS, str(tmp_path / "locks"))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    seen: list[str] = []

    def write(draft: object) -> None:
        seen.append(os.environ["CUDA_VISIBLE_DEVICES"])

    arguments = {"compute": Compute(gpus=1), "root": str(tmp_path)}
    made = train_together(steps.recipe("alone"), str(tmp_path), write, steps.published, arguments, 64)
    assert seen == ["4"]
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "4,GPU-7"
    with own_cards("auto", 2):  # a finished one needs none
        assert train_together(steps.recipe("alone"), str(tmp_path), write, steps.published, arguments, 64) == made
    assert len(seen) == 1


@pytest.fixture
def eight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch says that there are eight GPUs; what touches one fails."""
    monkeypatch.delenv("TLM_PROCESSES", raising=False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)


@pytest.mark.parametrize(
    ("device", "gpus", "rows", "nodes", "count"),
    [
        ("auto", -1, 256, "1", 8),
        ("auto", -1, 255, "1", 7),
        ("auto", -1, 64, "1", 2),
        ("auto", -1, 63, "1", 1),
        ("auto", -1, 1, "1", 1),
        ("cuda", 8, 32, "1", 1),
        ("auto", 2, 256, "1", 2),
        ("auto", 8, 256, "4", 2),
        ("auto", 8, 32, "4", 1),
        ("auto", 0, 256, "1", 1),
        ("cuda:3", -1, 256, "1", 1),
        ("cpu", -1, 256, "1", 1),
    ],
)
def test_a_process_has_32_rows_or_more(eight, monkeypatch, device, gpus, rows, nodes, count):
    monkeypatch.setenv("PET_NNODES", nodes)
    assert processes(Compute(device, gpus=gpus), rows) == count


def test_no_gpus_are_the_cpu():
    assert [Compute(gpus=gpus).place for gpus in (-1, 0, 1)] == ["auto", "cpu", "auto"]
    assert Compute("cpu", gpus=0).place == "cpu"
    with pytest.raises(InputError, match=r"^gpus is 0, which is the CPU, and device cuda:1; give one of the two$"):
        Compute("cuda:1", gpus=0)
    with pytest.raises(InputError, match=r"^gpus is -2; expected the number of GPUs, 0 for the CPU or -1 for all$"):
        Compute(gpus=-2)


class Page:
    """Takes what a component writes for Kubeflow's UI."""

    path = os.devnull

    def __init__(self) -> None:
        self.metadata: dict[str, object] = {}

    def __getattr__(self, name: str) -> object:
        return lambda *values, **more: None


def test_components_compute_on_the_cpu_if_a_pipeline_asks_for_no_gpus(eight, tmp_path):
    examples = task(tmp_path)
    line = str(
        PlannedRun(
            "bm25", 0, examples, tokenizer(tmp_path, examples), passages(tmp_path, "subset"), "tiny", " ".join(SMALL)
        )
    )
    made = train.python_func(line, gpus="0", root=str(tmp_path), cost=Page())
    assert Artifact.open(made).run()["device"] == "cpu"
    scored = evaluate.python_func(made, line, "0", root=str(tmp_path), metrics=Page(), confusion_matrix=Page())
    assert Artifact.open(scored).run()["device"] == "cpu"


@pytest.mark.parametrize("gpus", [False, True])
def test_containers_get_the_gpus_and_one_folder_of_locks(tmp_path, monkeypatch, gpus):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    options = DockerRunner(**hardened(tmp_path, "bridge", gpus)).container_run_args
    wanted = [(request["Count"], request["Capabilities"]) for request in options["device_requests"]]
    assert wanted == ([(-1, [["gpu"]])] if gpus else [])
    assert options["environment"]["CUDA_VISIBLE_DEVICES"] == "1"
    assert Path(options["environment"][LOCKS]).parent == tmp_path, "where containers may write"


def test_all_steps_of_a_local_run_lock_in_one_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(LOCKS, "")
    monkeypatch.delenv(LOCKS)
    with pytest.raises(InputError):
        run_pipeline({"run_preset": "none of these"}, None, "bridge", "tlm", Parallelism())
    assert os.environ[LOCKS] == str(tmp_path / "local_outputs" / "gpus")
