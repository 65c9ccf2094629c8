"""Ctrl-C in any command, whatever it is importing or doing: one sentence and exit code 130."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import heed_interrupts, with_terminal
from tests.toys_training import passages, task, tokenizer
from tlm.cli.main import COMMANDS
from tlm.evaluation.score.baseline import baseline

HOME = Path(__file__).parents[3]
SENTENCE = "tlm: stopped by Ctrl-C; repeat the command to resume\n"
# Runs the command line, and sends its process SIGINT when it begins to import the module that is named first.
PROGRAM = """
import importlib.abc, os, signal, sys

class Interrupting(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == moment:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)

moment, *sys.argv[1:] = sys.argv[1:]
sys.meta_path.insert(0, Interrupting())
from tlm.cli.main import main
main()
"""


def interrupted(moment: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROGRAM, moment, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=HOME, preexec_fn=heed_interrupts)


@pytest.mark.parametrize("name", ["load-corpus", "train", "report", "ls"])
def test_while_a_command_is_imported(name):
    done = interrupted(COMMANDS[name][0].partition(":")[0], name, "--help")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", SENTENCE)


@pytest.mark.parametrize("moment", ["typer", "tlm.cli.command", "docstring_parser"])
def test_while_the_command_line_itself_is_imported(moment):
    done = interrupted(moment, "ls")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", SENTENCE)


@pytest.mark.parametrize("moment", ["torch", "tlm.training.joint", "tlm.training.loop"])
def test_while_training_starts(tmp_path, moment):
    examples = task(tmp_path)
    options = ["--tokenizer", tokenizer(tmp_path, examples), "--subset", passages(tmp_path, "subset")]
    done = interrupted(moment, "train", examples, *options, "--preset", "tiny", "--root", str(tmp_path))
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr.endswith(SENTENCE)
    assert "Traceback" not in done.stderr


def test_where_interrupts_are_ignored_they_stay_so():
    """As for a command that a shell runs in the background."""
    program = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n" + PROGRAM
    command = [sys.executable, "-c", program, "typer", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=HOME)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_signal_that_a_library_takes_for_its_own_error_is_still_one_sentence():
    """As pydantic does where a signal arrives while it builds a schema; others that come at the end change nothing."""
    code = """
import atexit, os, signal
from tlm.cli.main import main

signal.signal(signal.SIGTERM, signal.SIG_IGN)  # by a parent that ignores it
atexit.register(os.kill, os.getpid(), signal.SIGHUP)

def run():
    try:
        os.kill(os.getpid(), signal.SIGTERM)
    except BaseException as error:
        raise ValueError("Error building a schema") from error

main(run)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 143
    assert ended.stderr == "tlm: stopped by SIGTERM; repeat the command to resume\n"


@pytest.mark.parametrize("ignore", [False, True])
def test_a_lost_terminal_ends_a_command_cleanly_unless_that_is_ignored(tmp_path, ignore):
    """As where an SSH session is lost; nohup has SIGHUP ignored, and then nothing can be written to the terminal."""
    os.mkfifo(source := tmp_path / "texts.jsonl")
    command = [sys.executable, "-m", "tlm.cli", "predict", baseline(task(tmp_path)), "--source", str(source)]
    (out := tmp_path / "out").mkdir()
    process, terminal = with_terminal([*command, "--to", str(out / "labels.jsonl")], ignore)
    with source.open("w") as texts:
        texts.write('{"text": "gene and cell"}\n')
        texts.flush()
        while not (begun := list(out.iterdir())):
            assert process.poll() is None
            time.sleep(0.05)
        time.sleep(1)  # until it waits for the next text, with a bar on the terminal
        assert begun[0].name.endswith(".part")
        os.close(terminal)
        assert ignore or process.wait(60) == 129
    assert process.wait(60) == (0 if ignore else 129)
    assert [path.name for path in out.iterdir()] == ["labels.jsonl"] * ignore
