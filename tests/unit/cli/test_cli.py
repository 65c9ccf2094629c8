"""The command line: made from signatures, answers at once, ends with the right code."""

import errno
import importlib
import inspect
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from research.__main__ import STUDIES
from tlm import __version__
from tlm.cli.command import descriptions, flat
from tlm.cli.main import COMMANDS, for_users
from tlm.errors import NO_TORCH

ROOT = Path(__file__).parents[3]
NO_MEMORY = "not enough memory; give this process more (`ulimit -v`, a pod's limit), then repeat"
EVERY = {**COMMANDS, **STUDIES}
BUFFERED = {**os.environ, "PYTHONUNBUFFERED": ""}


def tlm(*arguments: str, **kwargs: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tlm.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, **kwargs)  # type: ignore[call-overload]


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_what_a_terminal_s_encoding_lacks_is_spelled_out(encoding: str) -> None:
    code = "from tlm.cli.main import main; main(lambda: print('95 % – 42 €'))"
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=ROOT, env=environment)
    assert (done.returncode, done.stdout) == (0, rb"95 % \u2013 42 \u20ac" + b"\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_disk_that_is_full_for_an_array_of_numpy_interrupts() -> None:
    """Its error says how many items were written, and has neither a number nor a file."""
    code = "import numpy as np; from tlm.cli.main import main; main(lambda: np.arange(9**6).tofile('/dev/full'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=ROOT, text=True)
    assert done.stderr.startswith("tlm: no space left on the disk (while reading or writing); free some, then repeat")
    assert done.returncode == 3


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("arguments", [["--version"], ["show", "tiny"]])
def test_an_answer_that_finds_no_space_interrupts(arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "tlm.cli", *arguments]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=BUFFERED)
    expected = "tlm: no space left on the disk (while reading or writing); free some, then repeat\n"
    assert (done.returncode, done.stderr) == (3, expected)


@pytest.mark.parametrize("called", [["tlm.cli", "--version"], ["tlm.cli", "show", "tiny"], ["pipelines.run", "--help"]])
def test_an_answer_that_nobody_reads_ends_a_command_without_a_word(called: list[str]) -> None:
    """With the code of SIGPIPE, as in ``tlm predict … | head -1``."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", *called]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=BUFFERED)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


def test_without_docstrings_commands_work() -> None:
    """As with PYTHONOPTIMIZE=2."""
    command = [sys.executable, "-OO", "-m", "tlm.cli", "load-corpus", "--help"]
    assert subprocess.run(command, cwd=ROOT, capture_output=True).returncode == 0


def test_a_stream_that_is_closed_reads_and_writes_nothing(tmp_path: Path) -> None:
    code = """
import sys
from tlm.cli.main import main
from tlm.progress import say

def run():
    print("an answer")
    say("a message \N{EURO SIGN}")
    with open(sys.argv[1], "w") as file:
        file.write(f"{file.fileno() > 2} {sys.stdin.read()!r}")

main(run)
"""
    command = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", sys.executable, "-c", code, str(tmp_path / "file")]
    assert subprocess.run(command, cwd=ROOT).returncode == 0
    assert (tmp_path / "file").read_text() == "True ''"


def test_another_pipe_that_breaks_is_said() -> None:
    error = SystemExit(1)  # of typer
    error.__context__ = BrokenPipeError(errno.EPIPE, "Broken pipe")
    assert str(for_users(error)) == "while reading or writing: Broken pipe; fix that, then repeat"


def test_of_a_copy_the_file_that_is_written_is_named() -> None:
    error = for_users(OSError(errno.ENOSPC, "No space left on device", "store/model", None, "folder/model"))
    assert str(error) == "no space left on the disk (folder/model); free some, then repeat"


def test_a_quota_that_is_used_up_interrupts_as_a_full_disk_does() -> None:
    found = for_users(OSError(errno.EDQUOT, "Disk quota exceeded", "store/model"))
    assert (str(found), found.exit_code) == ("no space left on the disk (store/model); free some, then repeat", 3)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("can't start new thread"),
        BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"),  # a process
        pa.lib.ArrowException("Unknown error: Failed to launch worker thread: Resource temporarily unavailable"),
    ],
)
def test_a_limit_of_threads_interrupts(error: Exception) -> None:
    """Little memory does the same to them: each needs a stack."""
    found = for_users(error)
    assert str(found).startswith("no thread can be started; give this process more memory or threads (`ulimit -v`, ")
    assert found.exit_code == 3


@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory do not hold here")
def test_too_little_memory_is_said_to_be_that_and_not_a_damaged_file(tmp_path: Path) -> None:
    texts = pa.table({"text": [f"{number} " * 200_000 for number in range(100, 200)]})
    pq.write_table(texts, tmp_path / "c.parquet")
    code = """
import resource, sys, tlm.cli.main
from tlm.data.corpus.load import load_corpus
def run():
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (60 << 20),) * 2)
    load_corpus([sys.argv[1]], root=sys.argv[1])
tlm.cli.main.main(run)
"""
    command = [sys.executable, "-c", code, str(tmp_path)]
    environment = {**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system"}
    done = subprocess.run(command, capture_output=True, cwd=ROOT, text=True, env=environment)
    assert (done.stderr.splitlines()[-1:], done.returncode) == ([f"tlm: {NO_MEMORY}"], 3)


def test_a_library_that_finds_no_memory_is_one_sentence() -> None:
    """As torch with `ulimit -v` of 3 GB."""
    error = ImportError("libtorch_cuda.so: failed to map segment from shared object")
    assert (str(for_users(error)), for_users(error).exit_code) == (NO_MEMORY, 3)


def function(target: str) -> Callable[..., Any]:
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)  # type: ignore[no-any-return]


def test_help_lists_every_command_with_a_summary() -> None:
    text = " ".join(tlm("--help").stdout.split())
    for name, (_, summary) in COMMANDS.items():
        assert name in text
        assert summary in text


def test_help_of_a_command_is_its_docstring() -> None:
    assert "Without `--delete`, this is a dry run" in " ".join(tlm("gc", "--help").stdout.split())


def test_commands_of_studies_are_in_research() -> None:
    assert not {*STUDIES} & {*COMMANDS}
    command = [sys.executable, "-m", "research", "--help"]
    text = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True).stdout
    assert all(name in text for name in STUDIES)


@pytest.mark.parametrize("name", ["torch", "transformers"])
def test_a_command_that_needs_pytorch_says_how_to_install_it(name: str) -> None:
    code = (
        f"import sys; sys.modules['{name}'] = None; from tlm.cli.main import main; main(lambda: __import__('{name}'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 2
    assert done.stderr == f"tlm: {NO_TORCH}\n"


def test_the_version_is_printed() -> None:
    assert tlm("--version").stdout.strip() == __version__


@pytest.mark.parametrize("name", EVERY)
def test_every_parameter_is_explained(name: str) -> None:
    step = function(EVERY[name][0])
    shown = set(inspect.signature(flat(step)).parameters)
    assert {name for name, meaning in descriptions(flat(step)).items() if meaning} == shown
    assert set(descriptions(step)) <= shown | set(inspect.signature(step).parameters)


def test_a_name_of_many_addresses_does_not_hold_up_the_error_that_quotes_it(tmp_path: Path) -> None:
    """The search for passwords took n² steps: minutes for this file, hours for a megabyte."""
    name = "://a:" * 60_000
    (tmp_path / "task.jsonl").write_text(f'{{"{name}": 1, "https://me:secret@host https://me:s@c/r@host": 2}}\n')
    done = tlm("load-task", f"{tmp_path}/task.jsonl", "--root", f"{tmp_path}/store", timeout=60)
    assert done.returncode == 2
    assert f"has no field 'text'; it has '{name}', 'https://…@host https://…@host'" in done.stderr
