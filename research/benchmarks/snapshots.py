"""Snapshots of a large model's training: how long training stops for one."""

import shutil
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from research.benchmarks.measure import WALL, Cost, child, compare
from research.benchmarks.row import Result, Row, against, limit
from research.benchmarks.training_data import folder
from tlm.settings.options import Compute

PRESET, QUICK = "large", "pocket"
MINUTES, MOST_SHARE = 5.0, 0.01


def run(quick: bool) -> list[Result]:
    """The pause for a copy, and the time until it is stored."""
    preset = QUICK if quick else PRESET
    with TemporaryDirectory(dir=folder()) as place:
        sides = {name: child(stopped, preset, place, name == "ours") for name in ("ours", "write it at once")}
        measured = compare(sides, 1 if quick else 3)
    share = measured.spread("ours", WALL).middle / (MINUTES * 60)
    note = f"The model of the preset {preset}, with its moments, in float32, on a CPU and a local disk."
    return [
        against("time that training stops for a snapshot", measured, "write it at once", WALL, note=note),
        limit(f"share of the {MINUTES:g} minutes between snapshots", share, "", MOST_SHARE),
    ]


def stopped(preset: str, root: str, ahead: bool) -> Cost:
    """The time that training stops for a snapshot: for a copy, or until it is stored."""
    from tlm.artifacts.produce import Recipe
    from tlm.settings.presets import resolve
    from tlm.training.checkpoint import Snapshots, State
    from tlm.training.input.texts import Special
    from tlm.training.model import build

    settings = resolve(preset)
    config = build.with_task(
        build.make_config(settings.model, settings.tokenizer.vocab_size, Special(0, 1, 2, 3, 4)), ["a", "b"], "x"
    )
    state = State.fresh(build.build(config, seed=0), settings.train, 1000)
    shutil.rmtree(Path(root, "progress"), ignore_errors=True)
    snapshots = Snapshots(Recipe("checkpoint", "benchmark", 1, {}), root, Compute(save_minutes=MINUTES))
    snapshots.begin(state)  # the first one takes memory, which the others use again
    snapshots.wait()
    began, cpu = time.perf_counter(), time.process_time()
    snapshots.begin(state)
    if not ahead:
        snapshots.wait()
    cost = Cost(time.perf_counter() - began, time.process_time() - cpu)
    snapshots.wait()
    return cost


ROW = Row(
    name="snapshots",
    stage="snapshots of a large model",
    against="write it at once",
    target=f"training stops for at most {MOST_SHARE:.0%} of the time",
    what="Weights and moments of a model with 355 million parameters are saved every five minutes. Ours copies them "
    "in memory and writes the copy while training goes on; the other side waits until they are stored.",
    run=run,
    packages=("torch", "safetensors"),
)
