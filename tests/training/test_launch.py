"""torchrun as the step itself starts it: one answer, one sentence, one exit code, and nobody left behind."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import heed_interrupts, with_terminal
from tests.toys_training import SMALL, passages, task, tokenizer
from tests.training import steps
from tlm.errors import InputError, Interrupted, Terminated, TlmError
from tlm.settings.options import Compute
from tlm.training.distributed.launch import processes
from tlm.training.distributed.process import Ending, Lost

HOME = Path(__file__).parents[2]


def environment(count: int, **more: str) -> dict[str, str]:
    return {**os.environ, "TLM_PROCESSES": str(count), "OMP_NUM_THREADS": "1", **more}


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """`tlm train` on a toy; more options may be added."""
    root = tmp_path_factory.mktemp("root")
    examples = task(root)
    settings = [part for override in SMALL for part in ("--set", override)]
    options = ["--tokenizer", tokenizer(root, examples), "--subset", passages(root, "subset"), "--preset", "tiny"]
    return [sys.executable, "-m", "tlm.cli", "train", examples, *options, *settings, "--root", str(root)]


def started(command: list[str], env: dict[str, str]) -> subprocess.Popen[str]:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=HOME, env=env, preexec_fn=heed_interrupts, **pipes)


def until(found: Callable[[], object], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)


def alive(mark: str) -> list[int]:
    """Processes, zombies too, whose command line has `mark` in it."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark.encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def children() -> set[str]:
    """Of this process, zombies too; servers of other tests may be among them."""
    return {text for path in Path("/proc/self/task").glob("*/children") for text in path.read_text().split()}


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize(("number", "name", "code"), [(signal.SIGTERM, "SIGTERM", 143), (signal.SIGINT, "Ctrl-C", 130)])
def test_a_signal_reaches_all_and_ends_with_its_code_and_a_saved_step(command, count, number, name, code):
    root = Path(command[-1])
    steps = f"train.steps={100_000 + 10 * count + (number == signal.SIGINT)}"  # each has snapshots of its own
    before = set(root.glob("progress/*"))
    run = started([*command, "--set", steps, "--save-steps", "50"], environment(count))
    until(lambda: [path for path in root.glob("progress/*/*/manifest.json") if path.parents[1] not in before])
    run.send_signal(number)
    out, said = run.communicate(timeout=60)
    assert run.returncode == code, said
    assert out == ""
    *_, sentence = said.strip().splitlines()
    assert sentence.startswith(f"tlm: stopped by {name} after step ")
    assert said.count("stopped by") == 1
    assert "Traceback" not in said
    step = int(sentence.split("after step ")[1].split(", which")[0].replace(",", ""))
    assert list(root.glob(f"progress/*/step-{step:09d}/manifest.json"))
    until(lambda: not alive(str(root)), 20)


@pytest.mark.parametrize("count", [1, 2])
def test_a_lost_terminal_costs_no_step(command, count):
    root, before = Path(command[-1]), set(Path(command[-1]).glob("progress/*"))
    options = ["--set", f"train.steps={200_000 + count}", "--save-steps", "50"]
    run, terminal = with_terminal([*command, *options], env=environment(count))

    def saved() -> list[float]:
        found = (path for path in root.glob("progress/*/*/manifest.json") if path.parents[1] not in before)
        return [path.stat().st_mtime for path in found]

    until(saved)
    lost = time.time()
    os.close(terminal)
    assert run.wait(60) == 129
    assert max(saved()) > lost
    until(lambda: not alive(str(root)), 20)


@pytest.mark.parametrize(
    ("step", "error", "sentence"),
    [
        ("refused", InputError, "row 7 is blue; expected green, paint it"),
        ("killed", Interrupted, "a training process was ended by SIGKILL; if nobody did that, memory ended"),
    ],
)
def test_what_ends_one_process_ends_all_and_is_said_once(monkeypatch, tmp_path, capfd, step, error, sentence):
    monkeypatch.setenv("TLM_PROCESSES", "2")
    begun, before = time.monotonic(), children()
    with pytest.raises(error) as raised:
        steps.launch(step, str(tmp_path))
    assert type(raised.value) is error
    assert sentence in str(raised.value)
    assert time.monotonic() - begun < 60
    said = capfd.readouterr().err
    assert sentence not in said
    assert children() <= before


def test_an_interrupt_before_the_first_step_is_one_sentence(tmp_path):
    run = started([sys.executable, "-m", "tests.training.steps", "endless", str(tmp_path)], environment(2))
    until(lambda: len(list(tmp_path.glob("pid.*"))) == 2)
    run.send_signal(signal.SIGINT)
    said = run.communicate(timeout=60)[1]
    assert run.returncode == 130, said
    assert said.splitlines() == [
        "2 processes",
        "tlm: stopped by Ctrl-C before there was a step to save; repeat the command to resume",
    ]
    until(lambda: not alive(str(tmp_path)), 20)


def test_processes_die_with_their_launcher(tmp_path):
    run = started([sys.executable, "-m", "tests.training.steps", "endless", str(tmp_path)], environment(2))
    until(lambda: len(list(tmp_path.glob("pid.*"))) == 2)
    run.kill()
    run.communicate(timeout=60)
    until(lambda: not alive(str(tmp_path)), 20)


def test_what_the_processes_published_is_returned_and_then_found(monkeypatch, tmp_path, capfd):
    monkeypatch.setenv("TLM_PROCESSES", "2")
    before = children()
    made = steps.launch("published", str(tmp_path))
    assert made == f"{tmp_path}/checkpoint/{steps.recipe('published').key}"
    assert capfd.readouterr().err == "2 processes\n"
    monkeypatch.setenv("TLM_PROCESSES", "no number, and nobody looks")
    assert steps.launch("published", str(tmp_path)) == made
    assert capfd.readouterr().err == "toy: already there, nothing to do\n"
    assert children() <= before


def test_fewer_gpus_than_asked_for_is_one_sentence():
    with pytest.raises(
        InputError, match=r"^64 GPUs were asked for, but torch sees \d+ here.*: check that the node has"
    ):
        processes(Compute(gpus=64), 64 * 32)


@pytest.mark.parametrize(("device", "count"), [("cpu", 1), ("cuda:1", 1), ("mps", 1)])
def test_a_device_by_name_is_one_process(device, count):
    assert processes(Compute(device), 256) == count


def test_the_number_of_processes_is_checked(monkeypatch):
    monkeypatch.setenv("TLM_PROCESSES", "two")
    with pytest.raises(InputError, match="TLM_PROCESSES is 'two'; expected the number of processes to train in"):
        processes(Compute(), 256)


@pytest.mark.parametrize(
    "error",
    [
        TlmError("0"),
        InputError("a"),
        Interrupted("b"),
        Terminated("c"),
        OSError(28, "No space left on device", "x"),
        Lost("d"),
    ],
)
def test_an_ending_is_read_as_it_was_written(tmp_path, error):
    Ending.of(error).write(tmp_path / "1.json")
    read = Ending(**json.loads((tmp_path / "1.json").read_text()))
    assert str(read.error()) == str(error)
    assert type(read.error()) in type(error).mro()
    assert read.lost == isinstance(error, Lost)
    assert json.loads((tmp_path / "1.json").read_text())["time"] <= time.time()


def test_a_defect_of_ours_is_told_as_such():
    error = Ending.of(ZeroDivisionError("division by zero")).error()
    assert error.exit_code == 1
    assert str(error) == "training failed with ZeroDivisionError: division by zero; see the lines above"
