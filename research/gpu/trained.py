"""One training of the hour, in a process of its own that SIGTERM stops after a snapshot.

``python -m research.gpu.trained NAME RUN DEVICE RESULTS COMMIT``
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from research.benchmarks.kept import keep as keep_row
from research.benchmarks.row import Result, limit
from research.gpu.piece import piece
from research.paper.keep import keep
from tlm.artifacts.artifact import Artifact
from tlm.artifacts.produce import Progress
from tlm.cli import main as cli
from tlm.evaluation.report.runs import ScoredModel
from tlm.evaluation.score.evaluate import evaluate
from tlm.runs.plan import PlannedRun
from tlm.settings import presets
from tlm.settings.options import Compute
from tlm.training.stages import checkpoint_recipe, finetune, train

ROW = "gpu"
KEPT_IN_TABLES = ("mini", "tiny")  # presets whose runs from scratch have cells in our table of arms
SAVE_MINUTES = 2.0


def trained(run: PlannedRun, device: str) -> str:
    """Train and evaluate a run; its metrics."""
    root, compute = str(Artifact.open(run.task).store.root), Compute(device=device, save_minutes=SAVE_MINUTES)
    run = run.loaded(root)
    start = run.start
    if "1" in run.stages:
        start = train(run.task, **run.inputs(), **run.settings(), compute=compute, root=root)
    model = finetune(start, run.task, seed=run.seed, **run.settings(), compute=compute, root=root)
    return evaluate(model, run.task, device=device, root=root)


def results(metrics: Artifact, device: str) -> list[Result]:
    """Score and time of a run, and how many predictions on test other formats of numbers share."""
    found = ScoredModel.read(metrics)
    model, arm, task = metrics.input("model"), found.values["arm"], found.values["task"]
    metric, seed = found.values["metric"], found.values["seed"]
    test, dev = (100 * found.values["splits"][split][metric] for split in ("test", "dev"))
    seconds = sum(one.run().get("seconds", 0.0) for one in (model, model.input("checkpoint")))
    note = f"seed {seed}, dev {dev:.1f}, {seconds / 60:.1f} minutes of training"
    score = limit(f"{arm} on {task}", test, f"{metric} on test, hundredths", note=note)
    return [score, *agreement(model, metrics.input("task"), device, f"{arm}, seed {seed}")]


def agreement(model: Artifact, task: Artifact, device: str, note: str) -> list[Result]:
    """The share of test examples that get the class of a computation in fp64, in the formats of an evaluation."""
    import torch

    from tlm.data.ranges import CUT, HEAD
    from tlm.training.classification import class_logits
    from tlm.training.device import resolve_device
    from tlm.training.input.texts import Examples
    from tlm.training.model import build

    place = torch.device(resolve_device(device))
    network = build.load(model.path("model")).to(place)
    config = network.body.config
    examples = Examples.open(task, model.input("task_tokens"), build.text_length(config), config.get(CUT, HEAD))
    rows = examples.rows("test")

    def classes() -> Any:
        return class_logits(network, examples.texts, rows, place).argmax(axis=1)

    in_tf32 = classes()
    with torch.autocast(place.type, torch.bfloat16):
        in_bf16 = classes()
    network.double()  # but rotary positions, which stay in fp32
    exact = classes()
    found = {"TF32 (on a CPU, fp32)": in_tf32, "bf16": in_bf16}
    return [
        limit(f"predictions in {name} that equal those in fp64", 100 * float(np.mean(one == exact)), "%", note=note)
        for name, one in found.items()
    ]


def how_far(run: PlannedRun, name: str, device: str) -> list[Result]:
    """What a stopped stage 1 has reached: its loss, and the hours that all of its steps would take."""
    import torch
    from safetensors.torch import load_file

    from tlm.training.checkpoint import TENSORS

    root = str(Artifact.open(run.task).store.root)
    settings = presets.resolve(run.preset, run.overrides.split())
    recipe = checkpoint_recipe(run.task, run.tokenizer, run.subset, settings, run.seed, root)
    with tempfile.TemporaryDirectory() as folder:
        progress = Progress(recipe.key, root, recipe.inputs)
        step = progress.latest(Path(folder))
        if not step:
            return []
        seconds = progress.run(step)["spent"]["seconds"][0]
        curve = load_file(Path(folder) / TENSORS)["curve.losses"][:step, 0]
    last = float(torch.nanmean(curve[-100:]))
    steps = recipe.settings["train"]["steps"]
    note = f"{step:,} of {steps:,} steps in {seconds / 60:.1f} minutes; the first loss is {float(curve[0]):.2f}."
    return [
        limit(f"{name}: loss of the last 100 steps", last, "nats", note=note),
        limit(f"{name}: the whole stage 1", seconds / step * steps / 3600, "hours", note=note),
    ]


def main(arguments: list[str]) -> None:
    """Train, and keep what came of it."""
    name, run, device, folder, commit = arguments
    planned = PlannedRun.parse(run)
    metrics = trained(planned, device)
    keep_row(piece(name, results(Artifact.open(metrics), device), device, commit), Path(folder) / "benchmarks" / ROW)
    if planned.preset in KEPT_IN_TABLES and not planned.model:
        keep([metrics], table="arms", command="python -m research gpu", results=folder, revision=commit)


if __name__ == "__main__":
    cli.main(lambda: main(sys.argv[1:]))
