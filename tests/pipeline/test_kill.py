"""SIGKILL in the middle of each step, then the same command again: the content of an undisturbed run."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tiny import write_tiny

ROOT = Path(__file__).parents[2]
SEED = int(os.environ.get("TLM_TEST_SEED", "20261121"))
KILLS = 2


class Chain:
    """The steps of one run in one root; each is started, killed `kills` times on the way, and then let finish."""

    def __init__(self, folder: Path, root: Path, kills: int, rng: random.Random) -> None:
        self.folder, self.root, self.kills, self.rng = folder, root, kills, rng
        self.seconds: dict[str, float] = {}

    def step(self, name: str, *arguments: str, expected_seconds: float = 0.0) -> tuple[str, str]:
        """(URI, content) of the step's result."""
        command = [sys.executable, "-m", "tlm.cli", name, *arguments, "--root", str(self.root), "--json"]
        env = {**os.environ, "PYTHONPATH": str(ROOT), "TLM_THREADS": "1"}
        for _ in range(self.kills):
            victim = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(expected_seconds * self.rng.uniform(0.3, 0.95))
            victim.send_signal(signal.SIGKILL)
            victim.wait()
        started = time.monotonic()
        done = subprocess.run(command, env=env, capture_output=True, text=True)
        assert done.returncode == 0, f"{name}: {done.stderr}"
        self.seconds[name] = time.monotonic() - started
        answer = json.loads(done.stdout.splitlines()[-1])
        return answer["uri"], answer["content"]

    def all(self, seconds: dict[str, float]) -> Iterator[tuple[str, str]]:
        """(step, content) of every step, in order; `seconds` is how long each is expected to take."""

        def run(name: str, *arguments: str) -> str:
            uri, content = self.step(name, *arguments, expected_seconds=seconds.get(name, 0.0))
            contents.append((name, content))
            return uri

        contents: list[tuple[str, str]] = []
        corpus = run("load-corpus", str(self.folder / "corpus.jsonl"))
        task = run("load-task", str(self.folder / "task"))
        index = run("index", corpus)
        hits = run("retrieve", index, task)
        subset = run("export", hits)
        tokenizer = run("tokenizer", corpus, task, "--vocab-size", "300")
        run("tokenize", subset, tokenizer)
        options = ("--tokenizer", tokenizer, "--subset", subset, "--preset", "tiny", "--save-steps", "5")
        checkpoint = run("train", task, *options, "--set", "train.steps=60")
        model = run("finetune", checkpoint, task)
        metrics = run("evaluate", model, task)
        run("baseline", task)
        run("report", metrics)
        yield from contents


def test_every_step_survives_sigkill(tmp_path: Path) -> None:
    print(f"seed {SEED}, {KILLS} kills a step")
    write_tiny(tmp_path / "data")
    calm = Chain(tmp_path / "data", tmp_path / "calm", 0, random.Random(SEED))
    expected = list(calm.all({}))
    harassed = Chain(tmp_path / "data", tmp_path / "harassed", KILLS, random.Random(SEED))
    survived = list(harassed.all(calm.seconds))
    different = [name for (name, a), (_, b) in zip(expected, survived, strict=True) if a != b and name != "report"]
    assert different == []


def test_sigterm_ends_with_143_and_resumes(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    write_tiny(tmp_path / "data")
    chain = Chain(tmp_path / "data", tmp_path / "store", 0, random.Random(SEED))
    task, _ = chain.step("load-task", str(tmp_path / "data" / "task"))
    corpus, _ = chain.step("load-corpus", str(tmp_path / "data" / "corpus.jsonl"))
    tokenizer, _ = chain.step("tokenizer", corpus, task, "--vocab-size", "300")
    arguments = ["train", task, "--tokenizer", tokenizer, "--preset", "tiny", "--set", "train.steps=100000"]
    command = [sys.executable, "-m", "tlm.cli", *arguments, "--root", str(tmp_path / "store")]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    running = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)
    progress = tmp_path / "store" / "progress"
    time.sleep(15)
    running.send_signal(signal.SIGTERM)
    _, said = running.communicate(timeout=30)
    assert running.returncode == 143, said
    assert list(progress.rglob("manifest.json")), "no checkpoint was written"
