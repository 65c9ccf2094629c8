"""The commands under "Step by step" in docs/commands.md make the same artifacts as the pipeline."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.tiny import write_tiny
from tlm.artifacts.artifact import Artifact
from tlm.artifacts.stores import open_store

ROOT = Path(__file__).parents[2]
KINDS = ("corpus", "task", "index", "hits", "subset", "tokenizer", "tokens", "checkpoint", "model", "metrics")
TINY = {  # the page's values, for the preset pocket, and those for tiny
    "my/corpus/*.jsonl.gz": "corpus.jsonl",
    "my/task": "task",
    "--preset pocket": "--preset tiny",
    "--top-k 50)": "--top-k 5)",
    "--vocab-size 6000": "--vocab-size 400",
}


def documented_steps() -> str:
    """The commands in the section "Step by step", for the tiny preset and files."""
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    section = page.partition("## Step by step\n")[2].partition("\n## ")[0]
    (steps,) = re.findall(r"```\n(corpus=.*?)```", section, re.DOTALL)
    for ours, tiny in TINY.items():
        assert ours in steps, f"docs/commands.md no longer says {ours}"
        steps = steps.replace(ours, tiny)
    return steps


def contents(root: Path) -> dict[str, list[tuple[str, str]]]:
    """Key and content of every artifact, by kind."""
    store = open_store(str(root))
    names = {tuple(stored.name.split("/")[:2]) for kind in KINDS for stored in store.list(f"{kind}/")}
    found: dict[str, list[tuple[str, str]]] = {kind: [] for kind in KINDS}
    for kind, key in sorted(names):
        artifact = Artifact.find(store, kind, key)
        assert artifact is not None, f"{kind}/{key} is unfinished"
        found[kind].append((key, artifact.content))
    return found


@pytest.mark.slow
def test_the_steps_by_hand_make_what_the_pipeline_makes(
    run_module: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TLM_THREADS", "1")  # another number of threads gives weights that differ by rounding
    write_tiny(tmp_path)
    values = {"corpus_paths": "corpus.jsonl", "task_path": "task", "run_preset": "tiny", "store_root": "pipeline"}
    given = [part for name, value in values.items() for part in ("--set", f"{name}={value}")]
    run_module("pipelines.run", "local", *given)
    made, begin, served = documented_steps().partition("small=")
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TLM_ROOT": "by-hand"}
    printed = run_script(made + 'echo "$metrics $linear"', tmp_path, env)
    by_hand, pipeline = contents(tmp_path / "by-hand"), contents(tmp_path / "pipeline")
    assert all(by_hand.values())
    assert by_hand == pipeline
    assert (tmp_path / "my-model" / "model.safetensors").is_file()
    metrics, linear = printed.splitlines()[-1].split()
    known = f"metrics={metrics}\nlinear={linear}\n"
    answer = run_script(known + begin + waiting(served), tmp_path, env)
    (prediction,) = json.loads(answer)["predictions"]
    assert set(prediction["probabilities"]) == {"bread", "chess", "rain"}


def run_script(script: str, folder: Path, env: dict[str, str]) -> str:
    """What commands of ours print; what they leave running is ended."""
    commands = f'set -e\ntlm() {{ "{sys.executable}" -m tlm.cli "$@"; }}\n{script}'
    how = {"cwd": folder, "env": env, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    shell = subprocess.Popen(["bash", "-c", commands], start_new_session=True, **how)
    try:
        printed, errors = shell.communicate(timeout=900)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGTERM)
    assert shell.returncode == 0, errors
    return printed


def waiting(commands: str) -> str:
    """The commands that serve and ask, at a free port: asking when the server is ready."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    assert commands.count(":8080/") == 1
    serving = re.sub(r"tlm serve \$small &.*", f"tlm serve $small --port {port} > server.log 2>&1 &", commands)
    assert serving != commands
    ready = f"curl --silent --fail --retry 60 --retry-connrefused --retry-delay 1 -o ready 127.0.0.1:{port}/v2\ncurl "
    asked = serving.replace(":8080/", f":{port}/").replace("curl ", f"{ready}--silent ")
    return asked
