"""Tensors in safetensors files, which can be read without running code."""

from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from tlm.errors import Interrupted

READABLE = 0o644


def write_tensors(tensors: dict[str, Tensor], path: Path) -> None:
    """Write `tensors`. Raises Interrupted if that fails, as on a full disk."""
    plain = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    try:
        save_file(plain, path, metadata={"format": "pt"})
    except (OSError, SafetensorError) as error:
        reason = f"{path.name} could not be written ({error})"
        raise Interrupted(f"{reason}; free some space, then repeat the command") from None
    path.chmod(READABLE)  # the library writes files that only the owner can read, but a pod may run as any user
