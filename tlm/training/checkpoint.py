"""Snapshots of unfinished training, with its record: all that the next step depends on, so that resuming is bit-equal.

Batches, masks and dropout are functions of (seed, step), so there is no random state to save.

The class `torch.optim.AdamW` runs the same function, but making one imports torch's compiler: 1.5 CPU seconds, which is
more than a tenth of a short training.
"""

import json
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.optim.adamw import adamw

from tlm.artifacts.produce import Draft, Progress, Recipe
from tlm.artifacts.spending import UNKNOWN, Amount, Spending
from tlm.artifacts.stores.local import scratch_folder
from tlm.errors import InputError, Interrupted
from tlm.progress import say
from tlm.settings.options import Compute
from tlm.settings.presets import paper_flops
from tlm.settings.sections import Finetune, Train
from tlm.training.distributed.group import ProcessGroup
from tlm.training.model.encoder import write_tensors

FILE = "curve.parquet"


class Curve:
    """Losses, costs and dev scores of every step.

    Attributes:
        losses: Total, MLM and classification loss, float32 on the device, [steps, 3].
        costs: Tokens, padded tokens and FLOPs, int64, [steps, 3].
        dev: Scores on dev, float64, [steps]; NaN where dev was not scored.
    """

    def __init__(self, steps: int, device: torch.device) -> None:
        self.losses = torch.zeros(steps, 3, device=device)
        self.costs: NDArray[np.int64] = np.zeros((steps, 3), dtype=np.int64)
        self.dev: NDArray[np.float64] = np.full(steps, np.nan)

    def add(self, step: int, losses: tuple[Tensor, Tensor, Tensor]) -> None:
        """Add one part's share to a step's losses (total, MLM, classification), without waiting for the device."""
        self.losses[step] += torch.stack([loss.detach() for loss in losses])

    def check(self, start: int, stop: int) -> float:
        """The loss at step `stop` - 1. Raises InputError if the loss of a step from `start` on is not finite."""
        total = self.losses[start:stop, 0].cpu()
        bad = torch.nonzero(~torch.isfinite(total))
        if len(bad):
            raise InputError(
                f"the loss at step {start + int(bad[0])} is not a number: training diverged; "
                "lower the learning rate (lr) or raise its warm-up, or set clip if it is 0"
            )
        return float(total[-1])

    def cost(self, parameters: int) -> dict[str, int]:
        """Tokens, padded tokens and FLOPs of all steps, and the paper's estimate for a model of so many parameters."""
        tokens, padded, flops = map(sum, self.costs.T.tolist())
        paper = paper_flops(parameters, padded)
        return {"tokens": tokens, "padded_tokens": padded, "flops": flops, "paper_flops": int(paper)}

    def write(self, draft: Draft, columns: dict[str, Any]) -> None:
        """Write `columns` (arrays of one row for each step, by name, in order) as curve.parquet."""
        pq.write_table(pa.table(columns), draft.folder / FILE, compression="zstd", row_group_size=1 << 20)
        draft.rows[FILE] = len(self.dev)


class AdamW:
    """Weight decay for matrices only, not for biases and norms.

    Attributes:
        parameters: What is trained, by name.
        moments: For each parameter that is not frozen, by name: ``step``, ``exp_avg``, ``exp_avg_sq``; zeros at first.
    """

    def __init__(
        self, model: nn.Module, weight_decay: float, betas: tuple[float, float], epsilon: float = 1e-8
    ) -> None:
        self.parameters, self.weight_decay = dict(model.named_parameters()), weight_decay
        self.options: dict[str, Any] = {"fused": True, "amsgrad": False, "maximize": False, "eps": epsilon}
        self.options["beta1"], self.options["beta2"] = betas
        self.moments: dict[str, dict[str, Tensor]] = {}
        for name, parameter in self.parameters.items():
            if parameter.requires_grad:
                step = torch.zeros((), dtype=torch.float32, device=parameter.device)
                averages = {average: torch.zeros_like(parameter) for average in ("exp_avg", "exp_avg_sq")}
                self.moments[name] = {"step": step, **averages}

    @torch.no_grad()
    def step(self, lr: float) -> None:
        """Update the parameters that have a gradient, then drop all gradients."""
        for matrices, decay in ((True, self.weight_decay), (False, 0.0)):
            group = {name: weight for name, weight in self.parameters.items() if (weight.ndim > 1) == matrices}
            gradients = {name: weight.grad for name, weight in group.items() if weight.grad is not None}
            moments = [self.moments[name] for name in gradients]
            averages, squares, steps = ([each[key] for each in moments] for key in ("exp_avg", "exp_avg_sq", "step"))
            options = {"lr": lr, "weight_decay": decay, **self.options}
            adamw([group[name] for name in gradients], [*gradients.values()], averages, squares, [], steps, **options)
        for parameter in self.parameters.values():
            parameter.grad = None


TENSORS, FACTS = "state.safetensors", "state.json"
FIRST_SECONDS = 60.0  # until the first snapshot by time


@dataclass
class Best:
    """The best weights so far.

    Attributes:
        step: After how many steps.
        score: On dev.
        weights: What is trained, by name.
    """

    step: int
    score: float
    weights: dict[str, Tensor]


@dataclass
class State:
    """The state of a training.

    Attributes:
        model: What is trained.
        optimizer: With its moments.
        curve: Losses and costs of each step.
        step: How many steps are done.
        best: The best weights so far, where dev is scored.
    """

    model: nn.Module
    optimizer: AdamW
    curve: Curve
    step: int = 0
    best: Best | None = None

    @classmethod
    def fresh(cls, model: nn.Module, settings: Train | Finetune, steps: int) -> "State":
        """The state before the first of `steps` steps."""
        optimizer = AdamW(model, settings.weight_decay, settings.betas, settings.epsilon)
        return cls(model, optimizer, Curve(steps, next(model.parameters()).device))

    def tensors(self) -> dict[str, Tensor]:
        """The tensors of the state by name, which share its memory; without the best weights."""
        tensors = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        for name, moments in self.optimizer.moments.items():
            tensors |= {f"optimizer.{name}.{key}": value for key, value in moments.items()}
        return tensors | {f"curve.{name}": torch.as_tensor(values) for name, values in vars(self.curve).items()}

    def copied(self, copies: dict[str, Tensor]) -> Callable[[Path], None]:
        """Copy the state to the memory of this machine. Returns what writes the copy into a folder.

        Args:
            copies: An earlier copy, or nothing yet. Its memory is used again, as taking new memory is slow.
        """
        tensors = self.tensors()
        facts: dict[str, float] = {"step": self.step}
        if self.best is not None:
            tensors |= {f"best.{name}": value for name, value in self.best.weights.items()}
            facts |= {"best_step": self.best.step, "best_score": self.best.score}
        for name, value in tensors.items():
            if name not in copies:
                copies[name] = torch.empty_like(value, device="cpu")
            copies[name].copy_(value.detach())

        def write(folder: Path) -> None:
            write_tensors(copies, folder / TENSORS)
            (folder / FACTS).write_text(json.dumps(facts), encoding="utf-8")

        return write

    def read(self, folder: Path) -> None:
        """Take the state that was written into a folder."""
        stored, facts = load_file(folder / TENSORS), json.loads((folder / FACTS).read_text(encoding="utf-8"))
        weights = {name.removeprefix("best."): stored.pop(name) for name in [*stored] if name.startswith("best.")}
        if weights:
            self.best = Best(facts["best_step"], facts["best_score"], weights)
        own = self.tensors()
        for name, value in stored.items():
            own[name].copy_(value)
        self.step = facts["step"]

    def share(self, group: ProcessGroup) -> None:
        """Set the step and all tensors of all processes to those of rank 0; only rank 0 has the best weights."""
        step = torch.tensor(self.step)
        group.broadcast(step)
        self.step = int(step)
        for tensor in self.tensors().values():
            group.broadcast(tensor)


class Snapshots:
    """Saves the state of an unfinished training every so many steps or minutes (0: never), and finds it again.

    By time, the first one comes after a minute, because pods are often lost soon after they start. Each snapshot also
    has what the training has spent so far; an attempt that resumes adds that to its own `spending`.
    """

    def __init__(self, recipe: Recipe, root: str | None, compute: Compute, spending: Spending | None = None) -> None:
        self.progress, self.spending = Progress(recipe.key, root, recipe.inputs), spending or Spending(())
        self.every_steps, self.every_seconds = compute.save_steps, compute.save_minutes * 60
        self._next = time.monotonic() + min(FIRST_SECONDS, self.every_seconds)
        self._pool = ThreadPoolExecutor(1)
        self._begun: Future[None] | None = None
        self._copies: dict[str, Tensor] = {}

    def resume(self, state: State) -> None:
        """Set `state` to the newest undamaged snapshot, if there is one."""
        with scratch_folder(self.progress.store.scratch(), "resume") as folder:
            step = self.progress.latest(folder)
            if step is not None:
                state.read(folder)
                spent = self.progress.run(step).get("spent", UNKNOWN)
                self.spending.before = {name: Amount(*pair) for name, pair in spent.items()}
                say(f"resuming after step {step:,}")

    def due(self, step: int) -> bool:
        """Whether to save after `step`, by the number of steps."""
        return self.every_steps > 0 and step % self.every_steps == 0

    def late(self) -> bool:
        """Whether to save now, by this process's clock."""
        return self.every_seconds > 0 and time.monotonic() >= self._next

    def begin(self, state: State) -> None:
        """Copy `state`, which stops training for as long as that takes, and save the copy while training goes on.

        Raises Interrupted if the save that was begun before has failed.
        """
        self.wait()
        self._begun = self._pool.submit(self._save, state.step, state.copied(self._copies), self.spending.total())
        self._next = time.monotonic() + self.every_seconds

    def wait(self) -> None:
        """Wait until the save that was begun is done.

        Raises Interrupted if it has failed (a full disk); the snapshot before that one is kept.
        """
        begun, self._begun = self._begun, None
        if begun is not None:
            begun.result()

    def _save(self, step: int, write: Callable[[Path], None], spent: dict[str, Amount]) -> None:
        try:
            self.progress.save(step, write, {"spent": spent})
        except OSError as error:
            what = f"the snapshot after step {step:,} could not be written ({error})"
            raise Interrupted(f"{what}; fix that, then repeat the command") from None
