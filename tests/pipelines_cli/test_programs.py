"""The real program in its own process: exit codes, stdout and stderr as a shell sees them, and no traceback."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import heed_interrupts
from tests.pipelines_cli.standin import StandIn

ROOT = Path(__file__).parents[2]


def program(*arguments: object) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "pipelines.run", *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=ROOT, preexec_fn=heed_interrupts, **pipes)


def test_help_names_the_commands_and_imports_no_kfp() -> None:
    code = "import sys; import pipelines.run; sys.exit('kfp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0
    out, _ = program("--help").communicate(timeout=60)
    for command in ("local", "compile", "submit", "wait", "upload"):
        assert f"\n  {command} " in out


def test_a_dead_host_ends_soon(compiled: Path) -> None:
    began = time.monotonic()
    running = program("submit", "--file", compiled, "--host", "http://127.0.0.1:1")
    out, err = running.communicate(timeout=60)
    assert (running.returncode, out) == (2, "")
    assert err == (
        "pipelines.run: http://127.0.0.1:1: cannot be reached (Failed to establish a new connection: [Errno 111]"
        " Connection refused); check --host, --ca-file and --call-timeout, or start the port-forward\n"
    )
    assert time.monotonic() - began < 40


def test_the_whole_way_and_an_interrupt(api: StandIn, compiled: Path) -> None:
    options = ("--host", api.url, "--file", compiled, "--wait", "--poll-seconds", "0.1")
    api.states = ["RUNNING", "SUCCEEDED"]
    running = program("submit", *options)
    out, err = running.communicate(timeout=60)
    assert (running.returncode, err) == (0, "created the experiment 'tlm'\nRUNNING\nSUCCEEDED\n")
    assert out.splitlines()[0] in api.runs
    api.states = ["RUNNING"]
    running = program("submit", *options)
    while api.looks < 5:
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=60)
    assert running.returncode == 3, err
    assert f"no longer waiting; run {out.splitlines()[0]} goes on: see {api.url}" in err
    assert "Traceback" not in err


def test_ctrl_c_in_a_local_run_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text("some text\n")
    (tmp_path / "task.csv").write_text("text,label\n" + "a text,x\nanother,y\n" * 20)
    given = (
        f"corpus_paths={tmp_path / 'corpus.txt'}",
        f"task_path={tmp_path / 'task.csv'}",
        f"store_root={tmp_path / 'store'}",
    )
    running = program("local", "--pipeline", "shallow", *(part for one in given for part in ("--set", one)))
    assert running.stderr is not None
    while "preflight" not in (line := running.stderr.readline()):  # the first of its steps
        assert line, running.poll()
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "pipelines.run: stopped by Ctrl-C; repeat the command to resume: finished steps are not repeated" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("number", "to_all", "code"), [(signal.SIGINT, True, 130), (signal.SIGHUP, True, 129), (signal.SIGTERM, False, 143)]
)
def test_a_stopped_loop_begins_no_further_step(tmp_path: Path, number: int, to_all: bool, code: int) -> None:
    """Ctrl-C and SIGHUP reach the steps from the terminal, SIGTERM through the pipeline."""
    (begun := tmp_path / "begun").mkdir()
    command = [sys.executable, "-m", "tests.pipelines_cli.naps", str(tmp_path), str(begun)]
    how = {"stderr": subprocess.PIPE, "text": True, "start_new_session": True, "preexec_fn": heed_interrupts}
    running = subprocess.Popen(command, cwd=ROOT, **how)
    while len(list(begun.iterdir())) < 2:
        assert running.poll() is None
        time.sleep(0.1)
    if to_all:  # the steps first: on a busy machine one of them may end before the pipeline sees its own signal
        for step in _of_session(running.pid, "pid="):
            if int(step) != running.pid:
                os.kill(int(step), number)
        time.sleep(0.3)
    running.send_signal(number)
    _, err = running.communicate(timeout=40)
    assert running.returncode == code, err
    assert len(list(begun.iterdir())) == 2
    assert "Traceback" not in err
    assert {state[0] for state in _of_session(running.pid, "stat=")} <= {"Z"}


def _of_session(leader: int, what: str) -> list[str]:
    """A fact on each process of a session, as `ps` gives it."""
    listed = subprocess.run(["ps", "-o", what, "--sid", str(leader)], capture_output=True, text=True)
    return listed.stdout.split()
