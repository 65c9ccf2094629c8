"""The demo from nothing to its report, by ``make demo demo-encoders``; its BM25 arm beside the linear baseline."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from research.benchmarks.measure import cost_of
from research.benchmarks.row import PASS, SHORT, Result, Row, limit, need
from research.benchmarks.training_data import demo_files
from tlm.evaluation.report.findings import points, score_text, seen_from

MINUTES = 5.0
SEEDS = "0,1,2,3,4"
AHEAD = "ahead, the interval above 0"
REPOSITORY = Path(__file__).resolve().parents[2]
TINY = {"run_overrides": "train.steps=20 train.warmup_steps=2 finetune.epochs=1", "run_arms": "bm25"}


def run(quick: bool) -> list[Result]:
    """Time of a first run, and scores over seeds."""
    need("kfp", "docker")
    from demo.packages import wheels

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if quick:
            small = cost_of(lambda: small_demo(folder))
            return [limit("a small part of the demo", small.wall / 60, "minutes")]
        wheels()  # the download is not in it, either
        first = cost_of(lambda: demo(folder))
        note = f"{first.cpu / 60:.1f} CPU minutes on {_cores()} cores. Installation and download are not in it."
        results = [limit("the demo, first run", first.wall / 60, "minutes", MINUTES, note)]
        return results + scores("the demo", pipeline(folder, "--params", _params(), run_seeds=SEEDS))


def demo(folder: Path) -> None:
    """Write the demo's data and run its pipelines in an empty folder, with the threads that it takes itself."""
    from demo.__main__ import write

    write(folder / "demo" / "data")
    pipeline(folder, "--params", _params(), "--pipeline", "shallow")
    pipeline(folder, "--params", _params())


def small_demo(folder: Path) -> None:
    """The same pipeline on a few services and packages, with a few steps of training."""
    data = demo_files(quick=True).absolute()
    of_demo = {"corpus_paths": data / "corpus.jsonl.gz", "task_path": data / "api-errors"}
    pipeline(folder, "--params", _params(), **of_demo, **TINY)


def pipeline(folder: Path, *arguments: str, **parameters: object) -> dict[str, Any]:
    """Run the pipeline in `folder` with these parameters; its report."""
    given = [part for name, value in parameters.items() for part in ("--set", f"{name}={value}")]
    out = _python(folder, "-m", "pipelines.run", "local", *arguments, *given)
    report = next(iter(Path(folder, out.splitlines()[-1].strip()).glob("report-*.json")))
    found: dict[str, Any] = json.loads(report.read_text("utf-8"))
    return found


def scores(label: str, report: dict[str, Any]) -> list[Result]:
    """BM25's arm beside the linear baseline on test; ahead only where the report says so."""
    groups = {group["arm"]: group for group in report["groups"]}
    bm25, baseline, metric = groups["bm25"], groups["baseline"], report["task"]["metric_name"]
    pair = {bm25["name"], baseline["name"]}
    others = (one for one in report["differences"] if {one["first"], one["second"]} == pair)
    found: Any = next(others, {"low": None, "ahead": ""})  # compared only where it is the best encoder on dev
    ours, theirs = bm25["test"]["mean"], baseline["test"]["mean"]
    note = f"Test {metric} in hundredths, {score_text(bm25['test'])} over {len(bm25['seeds'])} seeds"
    if found["low"] is not None:
        note += f"; difference {points(seen_from(bm25['name'], found))}, over seeds and test examples"
    verdict = PASS if found["ahead"] == bm25["name"] else SHORT
    return [
        Result(
            f"{label}: score", 100 * ours, 100 * theirs, metric, ours / theirs, AHEAD, verdict,
            "tf-idf and logistic regression", note=f"{note}. The ratio is of means.",
        )
    ]  # fmt: skip


def _python(folder: Path, *arguments: str) -> str:
    free = {name: value for name, value in os.environ.items() if not name.endswith(("_THREADS", "TLM_ROOT"))}
    path = os.pathsep.join([str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=folder, env={**free, "PYTHONPATH": path}, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def _params() -> str:
    return str(REPOSITORY / "pipelines" / "params" / "demo.yaml")


def _cores() -> int:
    from joblib import cpu_count

    return int(cpu_count())


ROW = Row(
    name="demo",
    stage="the demo",
    against="tf-idf and logistic regression",
    target=f"within {MINUTES:g} minutes, BM25's arm ahead (mean of 5 seeds)",
    what="`make demo demo-encoders` in an empty folder, after installation and download: write the data, load and "
    "index the corpus, retrieve, train the models without a network with five draws of random text, then three arms "
    "with one seed, report. Then five seeds, whose mean is the score. The baseline selects its settings on dev, among "
    "twenty; test is read once, by `evaluate`.",
    run=run,
    packages=("torch", "scikit-learn", "kfp"),
)
