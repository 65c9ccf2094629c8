"""The training loop of both stages: optimizer, schedule, accumulation, snapshots. It does not wait for the device."""

import math
import time
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import nn

from tlm.progress import Meter
from tlm.settings import Finetune, Train
from tlm.spending import JOULES, Amount, Spending
from tlm.training.checkpoint import Snapshots, State
from tlm.training.device import autocast, memory_advice
from tlm.training.distributed.group import Agreement, World
from tlm.training.distributed.signals import STOPS, stopping
from tlm.training.input.batches import Batch, share, split
from tlm.training.input.rng import DROPOUT, number
from tlm.training.model.encoder import Inputs, to_device
from tlm.training.model.losses import Losses

LOOK_EVERY_SECONDS = 1.0  # reading a loss waits for the device


@dataclass(frozen=True)
class Plan:
    """How the optimizer goes: the settings of a stage, with its number of steps and of warm-up steps."""

    settings: Train | Finetune
    steps: int
    warmup_steps: int
    dropout: float
    seed: int

    def lr(self, step: int) -> float:
        """The learning rate of `step` (from 0): a linear rise, then the schedule's fall towards 0."""
        peak = self.settings.lr
        if step < self.warmup_steps:
            return peak * (step + 1) / (self.warmup_steps + 1)
        left = (self.steps - step) / (self.steps - self.warmup_steps)
        falls = {"linear": left, "cosine": (1 - math.cos(math.pi * left)) / 2, "constant": 1.0}
        return peak * falls[self.settings.schedule]


class Work(Protocol):
    """What one stage gives the loop."""

    label: str
    advice: str

    def batch(self, step: int) -> Batch:
        """The batch of `step`: a function of the seed and the step."""

    def losses(self, step: int, inputs: Inputs) -> Losses:
        """The losses of a part of that batch."""

    def costs(self, step: int, batch: Batch) -> tuple[int, int, int]:
        """Tokens, padded tokens as the paper counts them, FLOPs."""

    def after(self, state: State) -> None:
        """Called when ``state.step`` steps are done: to score dev, say."""


def fit(state: State, work: Work, plan: Plan, snapshots: Snapshots, device: torch.device) -> None:
    """Train `state` to the end of the plan, from its newest snapshot if there is one.

    Of several processes (`World.here`) all end with the same weights; only the first has the curve and the best ones.

    Raises:
        InputError: training diverged, or the device's memory does not hold a step.
        Terminated: SIGTERM or Ctrl-C arrived; the state was saved.
    """
    world, spending = World.here(), snapshots.spending
    threads = torch.get_num_threads() if device.type == "cpu" else 1
    spending.workers = {"cpu_seconds" if device.type == "cpu" else "gpu_seconds": world.size * threads}
    if world.first:
        snapshots.resume(state)
    state.share(world)
    arithmetic = autocast(device, plan.settings.precision)
    looked = state.step
    meter = Meter(work.label, plan.steps, "steps")
    meter.advance(state.step)
    watch = time.monotonic()
    agreement = Agreement(world, state.step)
    with stopping() as stop, memory_advice(work.advice):
        while state.step < plan.steps:
            _step(state, work, plan, arithmetic, device, world)
            state.step += 1
            if world.first:
                work.after(state)
            arrived = [stop.number == number for number in STOPS]
            *told, late = agreement.any(state.step, *arrived, world.first and snapshots.late())
            ending = next((error for error, was in zip(STOPS.values(), told, strict=True) if was), None)
            saving = bool(ending) or late or snapshots.due(state.step)
            seconds = time.monotonic() - watch
            if saving or seconds >= LOOK_EVERY_SECONDS or state.step == plan.steps:
                loss = state.curve.check(looked, state.step)
                rate = state.curve.costs[looked : state.step, 0].sum() / max(seconds, 1e-9)
                meter.advance(state.step - looked, f"loss {loss:.3f}, {rate:,.0f} tokens/s")
                looked, watch = state.step, time.monotonic()
            if saving:
                _ask_machines(spending, world)
                if world.first:
                    snapshots.save(state)
            if ending:
                world.wait()  # a process that ends early would have the first one ended while it saves
                raise ending(
                    f"stopped by {ending.by} after step {state.step:,}, which is saved; repeat the command to go on"
                )
    _ask_machines(spending, world)
    meter.close()


def _ask_machines(spending: Spending, world: World) -> None:
    """Tell the first process what the other machines have spent; on each machine one process counts for all."""
    counts = world.local == 0 and not world.first
    mine = spending.joules() if counts else {}
    told = world.sum(*(number for name in JOULES for number in mine.get(name, Amount())))
    spending.elsewhere = {name: Amount(told[2 * i], int(told[2 * i + 1])) for i, name in enumerate(JOULES)}


def _step(state: State, work: Work, plan: Plan, arithmetic: torch.autocast, device: torch.device, world: World) -> None:
    step = state.step
    if plan.dropout > 0:
        torch.manual_seed(number(plan.seed, DROPOUT, step, *([world.rank] if world.rank else [])))
    batch = work.batch(step)
    state.curve.costs[step] = work.costs(step, batch)
    mine = share(batch, world.rank, world.size)
    for part in split(mine or batch, plan.settings.accumulation):
        with arithmetic:
            losses = work.losses(step, to_device(part, device))
        if mine is None:  # fewer rows than processes: nothing to add, but the same gradients as the others must exist
            losses = Losses(*(0 * loss for loss in losses))
        losses.total.backward()  # type: ignore[no-untyped-call]
        state.curve.add(step, losses)
    world.sum_gradients(state.model.parameters(), state.curve.losses[step])
    if plan.settings.clip > 0:
        nn.utils.clip_grad_norm_(state.model.parameters(), plan.settings.clip)
    state.optimizer.step(plan.lr(step))
