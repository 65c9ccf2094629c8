"""The processes that train together: each takes its part of every batch, and their gradients are summed.

One process alone is a world of size 1, where all of this does nothing and costs nothing.
"""

import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from tlm.training.distributed.endings import Lost

ASK_EVERY_SECONDS = 1.0  # how long SIGTERM may wait until all know of it
PATIENCE = timedelta(minutes=30)  # how long the others wait while the first saves, scores dev or publishes


@dataclass(frozen=True)
class World:
    """This process's place among those that train together.

    Attributes:
        rank: From 0. The first one saves, scores dev and publishes.
        size: How many there are.
        local: Place among those of this machine, from 0.
    """

    rank: int = 0
    size: int = 1
    local: int = 0

    @classmethod
    def here(cls) -> "World":
        """The world that `joined` made; else that of one process."""
        if not (dist.is_available() and dist.is_initialized()):
            return cls()
        return cls(dist.get_rank(), dist.get_world_size(), local_rank())

    @property
    def first(self) -> bool:
        """Whether this is the process that writes."""
        return self.rank == 0

    def sum_gradients(self, parameters: Iterable[nn.Parameter], *more: Tensor) -> None:
        """Replace gradients and the tensors `more` by their sums over all processes, in one message."""
        if self.size == 1:
            return
        trained = [parameter for parameter in parameters if parameter.grad is not None]
        tensors = [*(parameter.grad for parameter in trained if parameter.grad is not None), *more]
        whole = torch.cat([tensor.reshape(-1) for tensor in tensors])
        with _all_there():
            dist.all_reduce(whole)
        sums = torch.split(whole, [tensor.numel() for tensor in tensors])
        for parameter, total in zip(trained, sums, strict=False):
            parameter.grad = total.view_as(parameter)
        for tensor, total in zip(more, sums[len(trained) :], strict=True):
            tensor.copy_(total.view_as(tensor))

    def sum(self, *numbers: float) -> list[float]:
        """Sums over all processes, which wait for each other here; the device is not waited for."""
        if self.size == 1:
            return list(numbers)
        totals = torch.tensor(numbers, dtype=torch.float64)
        with _all_there():
            dist.all_reduce(totals)
        return totals.tolist()

    def wait(self) -> None:
        """Until all processes are here."""
        self.sum(0)

    def tell(self, facts: dict[str, Any]) -> dict[str, Any]:
        """The first process's `facts` (plain JSON), on all of them."""
        if self.size == 1:
            return facts
        text = json.dumps(facts).encode() if self.first else b""
        letters = torch.zeros(int(self.sum(len(text))[0]), dtype=torch.uint8)
        if self.first:
            letters.copy_(torch.frombuffer(bytearray(text), dtype=torch.uint8))
        self.copy(letters)
        told: dict[str, Any] = json.loads(bytes(letters.tolist()))
        return told

    def copy(self, tensor: Tensor) -> None:
        """Give `tensor` the values that it has in the first process."""
        if self.size > 1:
            with _all_there():
                dist.broadcast(tensor, 0)

    @contextmanager
    def in_turn(self) -> Iterator[None]:
        """The first process of each machine does this before its others: they find in the cache what it fetched."""
        if self.local > 0:
            self.wait()
        yield
        if self.local == 0:
            self.wait()


def local_rank() -> int:
    """Which of this machine's processes (and so which of its GPUs) we are, as torchrun says."""
    return int(os.environ.get("LOCAL_RANK", "0"))


@contextmanager
def joined() -> Iterator[World]:
    """Join the processes that torchrun started (``RANK``, ``WORLD_SIZE`` …): NCCL between GPUs, gloo between CPUs.

    After an error nothing is taken down in order, because that would wait for the others: the process is to end.
    """
    cuda = torch.cuda.is_available() and dist.is_nccl_available()
    if cuda and local_rank() < torch.cuda.device_count():
        torch.cuda.set_device(local_rank())
    with _all_there():
        dist.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo", timeout=PATIENCE)
    yield World.here()
    dist.destroy_process_group()


@contextmanager
def _all_there() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # torch's DistError, and what gloo raises itself
        reason = str(error).partition("\n")[0].rpartition("] ")[2].partition(". ")[0]  # without places in C++ files
        raise Lost(
            f"another process of this training ended unexpectedly ({reason}); out of memory or a lost node are the "
            "usual reasons, mend that, then repeat the command to go on"
        ) from None


class Agreement:
    """Questions to all processes, put at the same steps, about once a second; one alone answers at each step."""

    def __init__(self, world: World, step: int) -> None:
        self.world, self.asked_at, self.next = world, step, step + 1
        self.since = time.monotonic()

    def any(self, step: int, *answers: bool) -> list[bool]:
        """For each question whether any process says yes; all no if `step` is not one at which they speak."""
        if self.world.size == 1:
            return list(answers)
        if step < self.next:
            return [False] * len(answers)
        steps, seconds = step - self.asked_at, time.monotonic() - self.since
        wanted = min(2 * steps, max(1, round(steps * ASK_EVERY_SECONDS / max(seconds, 1e-9))))
        *told, ahead = self.world.sum(*answers, wanted if self.world.first else 0)
        self.asked_at, self.next, self.since = step, step + int(ahead), time.monotonic()
        return [yes > 0 for yes in told]
