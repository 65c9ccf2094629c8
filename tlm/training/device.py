"""Where training runs: the device, its threads, what it can do, and what is said when its memory ends."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from tlm.errors import InputError
from tlm.progress import say
from tlm.spending import peak_memory
from tlm.training.cores import cores
from tlm.training.distributed.group import World, local_rank

THREADS = "TLM_THREADS"


def resolve_device(name: str) -> str:
    """``auto`` is the GPU where there is one, else the CPU; other names are checked. Sets the number of CPU threads.

    Of several processes on a machine each has a GPU of its own.

    Raises:
        InputError: no such device here, or ``TLM_THREADS`` is no number.
    """
    _set_threads()
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and World.here().size > 1:
        name = f"cuda:{local_rank()}"
    kind, _, index = name.partition(":")
    there = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}
    if kind not in there or (index and not index.isdecimal()):
        raise InputError(f"device '{name}' is unknown; expected auto, cpu, cuda, cuda:N or mps")
    if int(index or 0) >= there[kind]:
        raise InputError(f"device '{name}' is not here ({kind} devices: {there[kind]}); use auto or cpu")
    return name


def _set_threads() -> None:
    """As many as ``TLM_THREADS`` says, else torch's own number, but no more than there are cores for this container."""
    given = os.environ.get(THREADS)
    if not given:
        if torch.get_num_threads() > cores():
            torch.set_num_threads(cores())
        return
    if not given.isdecimal() or int(given) == 0:
        raise InputError(f"{THREADS} is '{given}'; expected the number of CPU threads")
    torch.set_num_threads(int(given))


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """The context of the forward pass. Raises InputError where a GPU has no bf16."""
    if precision == "bf16" and device.type == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
        raise InputError("this GPU has no bf16; set train.precision=fp32 and finetune.precision=fp32")
    if precision == "bf16" and device.type == "cpu":
        say("warning: bf16 on a CPU is slow; precision=fp32 is meant for it")
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")


@contextmanager
def memory_advice(settings: str) -> Iterator[None]:
    """Turn running out of memory into a sentence; `settings` names what makes a step smaller."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not _is_memory(error):
            raise
        raise InputError(f"the device's memory is too small for a step; {settings}") from None


def _is_memory(error: Exception) -> bool:
    known = isinstance(error, MemoryError | torch.OutOfMemoryError)
    return known or "allocate memory" in str(error) or "not enough memory" in str(error)


def run_facts(device: torch.device, precision: str) -> dict[str, Any]:
    """What goes into run.json: none of it decides the result, but for the last bits of it."""
    on_gpu = device.type == "cuda"
    return {
        "device": torch.cuda.get_device_name(device) if on_gpu else device.type,
        "threads": torch.get_num_threads(),
        "processes": World.here().size,
        "precision": precision,
        "torch": torch.__version__,
        "peak_memory_bytes": torch.cuda.max_memory_allocated(device) if on_gpu else peak_memory(),
    }
