"""Tensors in files: safetensors only, so that reading one runs no code."""

from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from tlm.errors import Interrupted

READABLE = 0o644


def write_tensors(tensors: dict[str, Tensor], path: Path) -> None:
    """Write `tensors`. Raises Interrupted if that fails, as on a full disk (the library has an error of its own)."""
    plain = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    try:
        save_file(plain, path, metadata={"format": "pt"})
    except (OSError, SafetensorError) as error:
        reason = f"{path.name} could not be written ({error})"
        raise Interrupted(f"{reason}; free some space, then repeat the command") from None
    path.chmod(READABLE)  # the library writes files for their owner alone, but a pod may run as any user


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors in a file, on the CPU."""
    return load_file(path)
