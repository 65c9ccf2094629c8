"""Does a GPU compute what a CPU does? Losses of the same steps, in several ways."""

import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from research.benchmarks.row import Result, limit
from research.benchmarks.training_cpu import INTERNAL, Bench, Unsaved
from research.gpu.stand import Stand
from tlm.artifacts.artifact import Artifact

STEPS, HALF = 50, 25
FP32, BF16 = "train.precision=fp32", "train.precision=bf16"
ALIKE, ROUNDED = 0.01, 0.05  # nats; what 50 steps make of rounding in fp32, and of that in bf16
Losses = NDArray[np.float64]


class Halfway(Unsaved):
    """Keeps the state after half of the steps in a folder, or resumes from it."""

    def __init__(self, folder: Path, resumes: bool) -> None:
        super().__init__()
        self.folder, self.resumes = folder, resumes

    def resume(self, state: Any) -> None:
        """Take up the state, where that is wanted."""
        if self.resumes:
            state.read(self.folder)

    def due(self, step: int) -> bool:
        """After half of the steps."""
        return not self.resumes and step == HALF

    def begin(self, state: Any) -> None:
        """Keep the state."""
        state.copied({})(self.folder)


def losses(bench: Bench, snapshots: Unsaved | None = None) -> Losses:
    """The loss of each of some steps from fresh weights, by the product's own loop."""
    from tlm.training.checkpoint import State
    from tlm.training.loop import Plan, fit

    work, settings = bench.work(), bench.preset.train
    state = State.fresh(work.encoder, settings, STEPS)
    plan = Plan(settings, STEPS, STEPS // 2, bench.preset.model.dropout, 0)
    fit(state, work, plan, snapshots or Unsaved(), bench.device)  # type: ignore[arg-type]
    return state.curve.losses[:, 0].cpu().numpy().astype(np.float64)


def same_losses(stand: Stand) -> list[Result]:
    """Losses on this device beside those on the CPU, beside themselves, after a resumption, and in bf16."""
    shape = ("pocket", "tiny" if stand.rehearsal else "pocket", ("train.rho1=1",))
    here, half = stand.bench(shape, INTERNAL, FP32), stand.bench(shape, INTERNAL, BF16)
    with tempfile.TemporaryDirectory() as folder:
        first = losses(here, Halfway(Path(folder), resumes=False))
        resumed = losses(here, Halfway(Path(folder), resumes=True))
    others = {
        "fp32, beside the CPU": (losses(stand.bench(shape, INTERNAL, FP32, device="cpu")), ALIKE),
        "fp32, beside a second run": (losses(here), ALIKE),
        f"fp32, beside one resumed after step {HALF}": (resumed, ALIKE),
        "bf16, beside fp32": (losses(half), ROUNDED),
    }
    note = f"The largest difference of a loss in {STEPS} steps; the first loss is {first[0]:.2f}."
    return [limit(name, _apart(first, other), "nats", most, note) for name, (other, most) in others.items()]


def _apart(one: Losses, other: Losses) -> float:
    return float(np.abs(one - other).max())


def one_process_a_gpu(stand: Stand) -> list[Result]:
    """`tlm train` on one GPU, beside processes that torchrun starts, one for each GPU."""
    import torch

    from tlm.settings.options import Compute
    from tlm.training.distributed.launch import _launch
    from tlm.training.stages import train

    run = stand.first
    compute = Compute(device="cpu") if stand.rehearsal else Compute(gpus=1)
    short = [f"train.steps={STEPS}", f"train.warmup_steps={HALF}", "train.rho1=1"]
    given = {"subset": run.subset, "tokenizer": run.tokenizer, "seed": 99, "overrides": short, "root": None}
    given |= {"preset": "tiny" if stand.rehearsal else "pocket"}

    def curve() -> Losses:
        made = Artifact.open(train(run.task, **given, compute=compute))  # type: ignore[arg-type]
        table = pq.read_table(made.path("curve.parquet"))
        shutil.rmtree(made.uri)  # so that it is made again, in another way
        columns = np.array([table[column].to_numpy() for column in ("mlm", "ce")], np.float64)
        return np.nan_to_num(columns)  # ce is null in external steps

    alone = curve()
    count = max(1, torch.cuda.device_count())
    _launch(train, {"task": run.task, **given, "compute": Compute(device=compute.device)}, count)
    note = "" if count > 1 else "Starting, sharding and snapshots; with one process, nothing is sent between GPUs."
    return [limit(f"{count} processes by torchrun, beside --gpus 1", _apart(alone, curve()), "nats", ALIKE, note)]
