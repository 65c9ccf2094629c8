"""The device to train on: its name, its threads, its memory, and batches on it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tlm.artifacts.spending import peak_memory
from tlm.errors import InputError
from tlm.progress import say
from tlm.settings.options import cores, given_threads
from tlm.training.distributed.group import ProcessGroup, local_rank
from tlm.training.input.batches import Batch
from tlm.training.model.encoder import Inputs, tuning


def resolve_device(name: str) -> str:
    """The device that `name` means; ``auto`` is the GPU if there is one, else the CPU. Sets the number of CPU threads.

    That is what ``TLM_THREADS`` says; by default torch's number, within the container's CPU limit.
    Each of several processes on a machine gets its own GPU.

    Raises:
        InputError: there is no such device, or ``TLM_THREADS`` is not a number.
    """
    torch.set_num_threads(given_threads() or min(torch.get_num_threads(), cores()))
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and ProcessGroup.current().size > 1:
        name = f"cuda:{local_rank()}"
    kind, colon, index = name.partition(":")
    count = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}
    if kind not in count or (colon and not index.isdecimal()):
        raise InputError(f"device '{name}' is unknown; expected auto, cpu, cuda, cuda:N or mps")
    if int(index or 0) >= count[kind]:
        raise InputError(f"device '{name}' is not here ({kind} devices: {count[kind]}); use auto or cpu")
    if kind == "cuda":
        torch.backends.cuda.enable_cudnn_sdp(False)  # it builds a graph for each of the hundreds of shapes of batches
    return name


def to_device(batch: Batch, device: torch.device) -> Inputs:
    """Copy a batch to the device."""
    habits = tuning(device)
    batch = batch.widened(habits.length_multiple)

    def copied(array: Any) -> Tensor:
        tensor = torch.from_numpy(array)
        # torch keeps page-locked memory for the next batch, and does not reuse it before the copy is done
        return (tensor.pin_memory() if habits.pinned else tensor).to(device, non_blocking=True)

    queries, indices = batch.queries()
    arrays = {**vars(batch), "queries": queries, "query_indices": indices}
    tensors = {name: copied(array) for name, array in arrays.items() if isinstance(array, np.ndarray)}
    mask = None
    if batch.tokens < batch.ids.size:
        mask = (torch.arange(batch.ids.shape[1], device=device) < tensors["lengths"][:, None])[:, None, None, :]
    return Inputs(**tensors, mask=mask, of_rows=batch.of_rows, of_masked=batch.of_masked)


def has_bf16(device: torch.device) -> bool:
    """Whether the device computes in bf16 faster than in fp32. CPUs do with AVX512-BF16 or AMX."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    known = torch.cpu.get_capabilities()
    return device.type == "cpu" and bool(known.get("avx512_bf16") or known.get("amx_bf16"))


def resolve_precision(device: torch.device, precision: str) -> str:
    """The number format that `precision` means; ``auto`` is bf16 if the device has it, else fp32."""
    if precision != "auto":
        return precision
    return "bf16" if has_bf16(device) else "fp32"


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """The context of the forward pass. Raises InputError where a GPU has no bf16."""
    half = resolve_precision(device, precision) == "bf16"
    if half and not has_bf16(device):
        if device.type == "cuda":
            raise InputError("this GPU has no bf16; set train.precision=fp32 and finetune.precision=fp32")
        if device.type == "cpu":
            say("warning: this CPU has no bf16 (AVX512-BF16 or AMX), which is slow on it; use precision=auto or fp32")
    return torch.autocast(device.type, torch.bfloat16, enabled=half)


@contextmanager
def memory_advice(settings: str) -> Iterator[None]:
    """Turn an out-of-memory error into a sentence; `settings` says what makes a step smaller."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        words = ("allocate memory", "not enough memory", "could not create a primitive")  # the last of oneDNN
        if isinstance(error, MemoryError | torch.OutOfMemoryError) or any(one in str(error) for one in words):
            raise InputError(f"the device's memory is too small for a step; {settings}") from None
        raise


def run_facts(device: torch.device, precision: str) -> dict[str, Any]:
    """Return the facts for run.json about the device. At most the last bits of the result depend on it.

    With ``auto``, it also decides the precision, which changes more than the last bits.
    """
    on_gpu = device.type == "cuda"
    return {
        "device": torch.cuda.get_device_name(device) if on_gpu else device.type,
        "threads": torch.get_num_threads(),
        "processes": ProcessGroup.current().size,
        "precision": resolve_precision(device, precision),
        "torch": torch.__version__,
        "peak_memory_bytes": torch.cuda.max_memory_allocated(device) if on_gpu else peak_memory(),
    }
