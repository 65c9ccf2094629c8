"""Load: millions of passages within the memory that the pipeline asks for; many runs without anything left behind."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple

from pipelines.steps import LARGE, NEEDS
from research.benchmarks.hostile_bodies import V1
from research.benchmarks.serving_load import HERE, serving
from tests import toys_training
from tests.faults import big_text
from tests.faults.row import HOME, Row, row
from tlm.artifacts.artifact import Artifact
from tlm.serving.export_onnx import export_onnx

PASSAGES, QUERIES, TOP_K = 5_000_000, 20_000, 500
RUNS, SETTLED = 200, 20  # caches are filled after so many runs
MEMORY_GROWTH = 32  # MiB that all runs after these may take more
REQUESTS, REQUEST_BYTES = 600, 1_000_000
ALIVE_WITHIN = 1.0  # seconds: how long Kubernetes waits unless told otherwise
SERVER_MEMORY = 1 << 30
# `tlm`, and then the peak of its process alone: what wait4 tells counts the memory of who started it
MEASURED = """
import atexit
from tlm.cli import main as cli
from tlm.artifacts.spending import peak_memory
atexit.register(lambda: print(peak_memory()))
cli.main()
"""
UNITS = {"Mi": 1 << 20, "Gi": 1 << 30}


class Step(NamedTuple):
    """What a step printed, and the most memory that its process had, in bytes."""

    uri: str
    counts: dict[str, Any]
    peak: int


def rows(_seconds: int, seed: int) -> Iterator[Row]:
    """The whole at its full size."""
    yield from large(PASSAGES, QUERIES, TOP_K, seed)
    yield from soak(RUNS, SETTLED)
    yield from served(REQUESTS, ALIVE_WITHIN)


def large(passages: int, queries: int, top_k: int, seed: int) -> Iterator[Row]:
    """A line for each step: did it end within the limit that the pipeline sets it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        big_text.write(folder, passages, queries, seed)

        def step(command: str, *arguments: str) -> Step:
            return _step([command, *arguments, "--root", str(folder / "root"), "--json"])

        corpus = step("load-corpus", str(folder / "corpus.jsonl.gz"))
        (folder / "corpus.jsonl.gz").unlink()
        yield _within("load-corpus", f"{corpus.counts['passages']:,} passages", corpus)
        task = step("load-task", str(folder / "task"))
        yield _within("load-task", f"{queries:,} examples", task)
        index = step("index", corpus.uri)
        yield _within("index", f"{index.counts['documents']:,} documents", index)
        hits = step("retrieve", index.uri, task.uri, "--top-k", str(top_k))
        yield _within("retrieve", f"{queries:,} queries, K = {top_k}, {hits.counts['hits']:,} hits", hits)
        subset = step("export", hits.uri)
        yield _within("export", f"{subset.counts['candidates']:,} passages", subset)
        tokenizer = step("tokenizer", corpus.uri, task.uri)
        yield _within("tokenizer", "a sample of the corpus", tokenizer)
        tokens = step("tokenize", subset.uri, tokenizer.uri)
        yield _within("tokenize", f"{tokens.counts['tokens']:,} tokens", tokens, pod="plan")


def soak(runs: int, settled: int) -> Iterator[Row]:
    """A line for each thing that a run could leave behind, and one for what comes out."""
    command = [sys.executable, "-m", "tests.faults.soak", str(runs)]
    done = subprocess.run(command, env=_environment(), stdout=subprocess.PIPE, text=True, check=False)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    contents = [one.pop("contents") for one in found]
    yield row("consecutive runs in one process: the same content", runs, contents.count(contents[0]))
    for what in found[0]:
        before, after = found[settled - 1][what], [one[what] for one in found[settled:]]
        spare = MEMORY_GROWTH if what == "memory" else 0
        kept = sum(held <= before + spare for held in after)
        unit = " MiB" if what == "memory" else ""
        yield row(f"{what} held: {before}{unit} after {settled} runs, {after[-1]}{unit} at the end", len(after), kept)


def served(requests: int, alive_within: float) -> Iterator[Row]:
    """Lines for `tlm serve` with an encoder as ONNX, which so many large requests reach at once."""
    with tempfile.TemporaryDirectory() as name:
        labelled = toys_training.task(Path(name))
        trained = toys_training.model(Path(name), toys_training.checkpoint(Path(name), labelled), labelled)
        folder = Artifact.open(export_onnx(trained.uri)).path("model")
        alive = []
        with serving(folder) as (port, server), ProcessPoolExecutor(1) as pool:
            sent = pool.submit(_send_large, port, requests)
            while not sent.done():
                begun = time.perf_counter()
                alive.append(_asked(port, "GET", "/v2/health/live") == 200 and time.perf_counter() - begun)
                time.sleep(0.05)
            status = Path(f"/proc/{server.pid}/status").read_text()
        codes = sent.result()
    peak = int(status.partition("VmHWM:")[2].split()[0]) << 10
    work = f"{requests:,} requests of 1 MB at once"
    yield row(f"serve: {work}, each predicted or refused with 503", requests, codes.count(200) + codes.count(503))
    yield row(f"serve: {work}, some predicted", 1, int(200 in codes))
    in_time = sum(one is not False and one <= alive_within for one in alive)
    yield row(f"serve: {work}, meanwhile alive within {alive_within:g} s", len(alive), in_time)
    yield row(f"serve: {work}; at most {peak >> 20:,} MiB of 1Gi", 1, int(peak <= SERVER_MEMORY))


def _send_large(port: int, requests: int) -> list[int]:
    """The codes of the answers to requests of one long text each, all sent at once."""
    sentence = "the court and the judge of a ship in the harbour "
    body = json.dumps({"instances": [sentence * (REQUEST_BYTES // len(sentence))]}).encode()
    with ThreadPoolExecutor(requests) as pool:
        return list(pool.map(lambda _: _asked(port, "POST", V1, body), range(requests)))


def _asked(port: int, method: str, path: str, body: bytes | None = None) -> int:
    """The code of an answer; 0 if none came within five minutes."""
    connection = HTTPConnection(HERE, port, timeout=300)
    try:
        connection.request(method, path, body)
        return connection.getresponse().status
    except OSError:
        return 0
    finally:
        connection.close()


def _within(name: str, work: str, step: Step, pod: str = "") -> Row:
    """Did a step keep within the memory of its pod, which has its name unless another is given?"""
    limit = NEEDS.get(pod or name, LARGE).memory_limit
    fits = step.peak <= int(limit[:-2]) * UNITS[limit[-2:]]
    return row(f"{name}: {work}; at most {step.peak >> 20:,} MiB of {limit}", 1, int(fits))


def _step(arguments: list[str]) -> Step:
    command = [sys.executable, "-c", MEASURED, *arguments]
    done = subprocess.run(command, env=_environment(), stdout=subprocess.PIPE, text=True, check=True)
    *_, said, peak = done.stdout.splitlines()
    answer = json.loads(said)
    return Step(answer["uri"], answer["counts"], int(peak))


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(HOME)}
