"""The group of processes that train together: each takes its part of every batch, and their gradients are summed.

A single process is a group of size 1, in which all of this does nothing and costs nothing.
"""

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn

from tlm.training.distributed.process import Lost

ASK_EVERY_SECONDS = 1.0  # how long it may take until all processes know of a SIGTERM
TIMEOUT = timedelta(minutes=30)  # how long the others wait while the first one saves, scores dev or publishes


@dataclass(frozen=True)
class ProcessGroup:
    """This process in the group of processes that train together.

    Attributes:
        rank: Its number, from 0. Rank 0 saves, scores dev and publishes.
        size: How many processes there are.
        local_rank: Its number among the processes of this machine.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0

    @classmethod
    def current(cls) -> "ProcessGroup":
        """The group that `joined` made, or a group of this process alone."""
        if not (dist.is_available() and dist.is_initialized()):
            return cls()
        return cls(dist.get_rank(), dist.get_world_size(), local_rank())

    @property
    def first(self) -> bool:
        """Whether this process has rank 0, and so does the writing."""
        return self.rank == 0

    def sum_gradients(self, parameters: Iterable[nn.Parameter], *more: Tensor) -> None:
        """Replace gradients and the tensors `more` by their sums over all processes, in one message."""
        if self.size == 1:
            return
        tensors = [*(parameter.grad for parameter in parameters if parameter.grad is not None), *more]
        whole = torch.cat([tensor.reshape(-1) for tensor in tensors])
        with _lost_processes():
            dist.all_reduce(whole)
        for tensor, total in zip(tensors, torch.split(whole, [tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(total.view_as(tensor))

    def sum(self, *numbers: float) -> list[float]:
        """Sums over all processes, which wait here for each other but not for the device."""
        if self.size == 1:
            return list(numbers)
        totals = torch.tensor(numbers, dtype=torch.float64)
        with _lost_processes():
            dist.all_reduce(totals)
        return totals.tolist()

    def wait(self) -> None:
        """Wait until all processes are here."""
        self.sum(0)

    def broadcast(self, tensor: Tensor) -> None:
        """Set `tensor` to its values on rank 0."""
        if self.size > 1:
            with _lost_processes():
                dist.broadcast(tensor, 0)

    @contextmanager
    def in_turn(self) -> Iterator[None]:
        """Run the block on one process of each machine first: the others then find in the cache what it read."""
        if self.local_rank > 0:
            self.wait()
        yield
        if self.local_rank == 0:
            self.wait()


def local_rank() -> int:
    """The number of this process, and so of its GPU, on this machine, as torchrun sets it."""
    return int(os.environ.get("LOCAL_RANK", "0"))


@contextmanager
def joined() -> Iterator[ProcessGroup]:
    """Join the processes that torchrun started (``RANK``, ``WORLD_SIZE`` …): NCCL between GPUs, gloo between CPUs.

    After an error the group is not shut down, because that would wait for the others: the process must end.
    """
    cuda = torch.cuda.is_available() and dist.is_nccl_available()
    if cuda and local_rank() < torch.cuda.device_count():
        torch.cuda.set_device(local_rank())
    with _lost_processes():
        dist.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo", timeout=TIMEOUT)
    yield ProcessGroup.current()
    dist.destroy_process_group()


@contextmanager
def _lost_processes() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # torch's DistError, and what gloo raises itself
        reason = str(error).partition("\n")[0].rpartition("] ")[2].partition(". ")[0]  # without places in C++ files
        raise Lost(
            f"another process of this training ended unexpectedly ({reason}), as when memory runs out or a node is "
            "lost; fix that, then repeat the command to resume"
        ) from None


class Agreement:
    """Asks all processes the same questions at the same steps, about once a second; a single one at every step."""

    def __init__(self, group: ProcessGroup, step: int) -> None:
        self.group, self.asked_at, self.next = group, step, step + 1
        self.since = time.monotonic()

    def any(self, step: int, *answers: bool) -> list[bool]:
        """For each question, whether any process answers yes; all no at a step without questions."""
        if self.group.size == 1:
            return list(answers)
        if step < self.next:
            return [False] * len(answers)
        steps, seconds = step - self.asked_at, time.monotonic() - self.since
        own_pause = min(2 * steps, max(1, round(steps * ASK_EVERY_SECONDS / max(seconds, 1e-9))))
        *counts, pause = self.group.sum(*answers, own_pause if self.group.first else 0)  # that of rank 0, in steps
        self.asked_at, self.next, self.since = step, step + int(pause), time.monotonic()
        return [count > 0 for count in counts]
