"""The training loop of both stages: schedule, accumulation, snapshots. It does not wait for the device."""

import math
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import compress
from typing import Protocol

import pyarrow as pa
import torch
from torch import nn

from tlm.artifacts.spending import JOULES, Amount, Spending
from tlm.errors import STOPS, Terminated
from tlm.progress import Meter
from tlm.settings.sections import Finetune, Train
from tlm.training.checkpoint import Curve, Snapshots, State
from tlm.training.device import autocast, memory_advice, to_device
from tlm.training.distributed.group import Agreement, ProcessGroup
from tlm.training.distributed.process import stopping
from tlm.training.input.batches import DROPOUT, Batch, number, split
from tlm.training.model.encoder import Inputs, tuning
from tlm.training.model.losses import Losses

CHECK_EVERY_SECONDS = 1.0  # because reading a loss waits for the device


@dataclass(frozen=True)
class Plan:
    """The settings and the schedule of a stage.

    Attributes:
        settings: Those of the stage: learning rate, schedule, clipping, accumulation, precision.
        steps: How many steps there are.
        warmup_steps: How many of them the learning rate rises.
        dropout: The share of values that dropout sets to 0.
        seed: For dropout.
    """

    settings: Train | Finetune
    steps: int
    warmup_steps: int
    dropout: float
    seed: int

    def lr(self, step: int) -> float:
        """The learning rate of `step` (from 0): it rises linearly, then follows the schedule towards 0."""
        peak = self.settings.lr
        if step < self.warmup_steps:
            return peak * (step + 1) / (self.warmup_steps + 1)
        left = (self.steps - step) / (self.steps - self.warmup_steps)
        falls = {"linear": left, "cosine": (1 - math.cos(math.pi * left)) / 2, "constant": 1.0}
        return peak * falls[self.settings.schedule]

    def columns(self, curve: Curve, losses: dict[str, pa.Array]) -> dict[str, pa.Array]:
        """Return the columns of curve.parquet that both stages have, with those of the `losses` between them."""
        rates = pa.array(map(self.lr, range(self.steps)), pa.float64())
        costs = {"tokens": pa.array(curve.costs[:, 0]), "flops": pa.array(curve.costs[:, 2])}
        return {"step": pa.array(range(self.steps), pa.int64()), **losses, "lr": rates, **costs}


class Work(Protocol):
    """The work of one stage.

    Attributes:
        label: The name of the work beside its progress.
        advice: What to change if a step does not fit into memory.
    """

    label: str
    advice: str

    def batch(self, step: int) -> Batch:
        """The batch of `step`. It depends only on the seed and the step."""

    def losses(self, step: int, inputs: Inputs) -> Losses:
        """The losses of a part of that batch."""

    def costs(self, step: int, batch: Batch) -> tuple[int, int, int]:
        """Tokens, padded tokens as the paper counts them, and FLOPs of `step`."""

    def after(self, state: State) -> None:
        """Called after each step, for instance to score dev."""


def fit(state: State, work: Work, plan: Plan, snapshots: Snapshots, device: torch.device) -> None:
    """Train `state` to the end of the plan, from its newest snapshot if there is one.

    Several processes end with the same weights; only rank 0 has the curve and the best weights.

    Raises:
        InputError: training diverged, or a step does not fit into the device's memory.
        Terminated: SIGTERM, SIGHUP or Ctrl-C arrived; the state was saved.
    """
    group, spending = ProcessGroup.current(), snapshots.spending
    spending.workers = {"cpu_seconds" if device.type == "cpu" else "gpu_seconds": group.size}
    if group.first:
        snapshots.resume(state)
    state.share(group)
    arithmetic = autocast(device, plan.settings.precision)
    meter = _LossMeter(work.label, plan.steps, state)
    agreement = Agreement(group, state.step)
    made = _batches(work.batch, range(state.step, plan.steps), device)
    with stopping() as stop, memory_advice(work.advice), closing(made) as batches:
        for batch in batches:
            _step(state, work, plan, arithmetic, group, batch)
            state.step += 1
            if group.first:
                work.after(state)
            arrived = [stop.number == number for number in STOPS]
            *stops, late = agreement.any(state.step, *arrived, group.first and snapshots.late())
            stop_error = next(compress(STOPS.values(), stops), None)
            saving = stop_error is not None or late or snapshots.due(state.step)
            if saving or meter.due():
                meter.update()
            if saving:
                _collect_energy(spending, group)
                if group.first:
                    snapshots.begin(state)
            if stop_error is not None:
                snapshots.wait()
                group.wait()  # if a process ended now, torchrun would kill rank 0 while it saves
                raise _stopped(stop_error, state)
        snapshots.wait()
        if stop.is_set() and group.first:  # it arrived after the last step
            snapshots.begin(state)
            snapshots.wait()
            raise _stopped(stop.error(), state)
    _collect_energy(spending, group)
    meter.close()


class _LossMeter(Meter):
    """Shows the loss and the speed about once a second, and stops a training that diverges."""

    def __init__(self, label: str, steps: int, state: State) -> None:
        super().__init__(label, steps, "steps")
        self.state = state
        self.advance(state.step)
        self._first_step, self._since = state.step, time.monotonic()

    def due(self) -> bool:
        """Whether to update now: after a second, and after the last step."""
        return self.state.step == self.total or time.monotonic() - self._since >= CHECK_EVERY_SECONDS

    def update(self) -> None:
        """Show the steps since the last update. Raises InputError if the loss of one of them is not finite."""
        seconds = max(time.monotonic() - self._since, 1e-9)
        curve, step = self.state.curve, self.state.step
        loss = curve.check(self._first_step, step)
        rate = curve.costs[self._first_step : step, 0].sum() / seconds
        self.advance(step - self._first_step, f"loss {loss:.3f}, {rate:,.0f} tokens/s")
        self._first_step, self._since = step, time.monotonic()


def _stopped(error: type[Terminated], state: State) -> Terminated:
    return error(f"stopped by {error.by} after step {state.step:,}, which is saved; repeat the command to resume")


def _collect_energy(spending: Spending, group: ProcessGroup) -> None:
    """Give rank 0 the energy that the other machines have used; one process of each machine measures it."""
    measures = group.local_rank == 0 and not group.first
    own = spending.joules() if measures else dict.fromkeys(JOULES, Amount())
    sums = group.sum(*(own[name].value for name in JOULES), *(own[name].unmeasured for name in JOULES))
    joules, unmeasured = sums[: len(JOULES)], map(int, sums[len(JOULES) :])
    spending.elsewhere = dict(zip(JOULES, map(Amount, joules, unmeasured), strict=True))


def _batches(make: Callable[[int], Batch], steps: range, device: torch.device) -> Generator[Batch]:
    """The batch of each step as `make` makes it; where tuning says so, a thread makes that of the next step ahead."""
    if not tuning(device).ahead:
        yield from map(make, steps)
        return
    with ThreadPoolExecutor(1) as pool:
        begun = [pool.submit(make, step) for step in steps[:1]]  # none if no step is left
        for step in steps:
            batch = begun.pop().result()
            if step + 1 in steps:
                begun.append(pool.submit(make, step + 1))
            yield batch


def _step(state: State, work: Work, plan: Plan, arithmetic: torch.autocast, group: ProcessGroup, batch: Batch) -> None:
    step, device = state.step, state.curve.losses.device
    if plan.dropout > 0:
        index = (step, group.rank) if group.rank > 0 else (step,)  # rank 0 draws what a single process draws
        torch.manual_seed(number(plan.seed, DROPOUT, *index))
    state.curve.costs[step] = work.costs(step, batch)
    shares = split(batch, group.size)
    idle = group.rank >= len(shares)  # with fewer rows than processes
    own = batch if idle else shares[group.rank]
    for part in split(own, -(-plan.settings.accumulation // group.size)):
        with arithmetic:
            losses = work.losses(step, to_device(part, device))
        if idle:  # add nothing, but have the same gradients as the others
            losses = Losses(*(0 * loss for loss in losses))
        losses.total.backward()  # type: ignore[no-untyped-call]
        state.curve.add(step, losses)
    group.sum_gradients(state.model.parameters(), state.curve.losses[step])
    if plan.settings.clip > 0:
        nn.utils.clip_grad_norm_(state.model.parameters(), plan.settings.clip)
    state.optimizer.step(plan.lr(step))
