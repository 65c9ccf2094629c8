"""The record of a training run: one row a step, kept on the device so that no step waits for it."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from torch import Tensor

from tlm.errors import InputError
from tlm.training.model.losses import Losses


class Curve:
    """Losses (total, mlm, ce), costs (tokens, padded tokens, FLOPs) and dev scores of every step.

    Attributes:
        losses: float32 on the device, [steps, 3].
        costs: int64, [steps, 3].
        dev: float64, [steps]; NaN where dev was not scored.
    """

    def __init__(self, steps: int, device: torch.device) -> None:
        self.losses = torch.zeros(steps, 3, device=device)
        self.costs: NDArray[np.int64] = np.zeros((steps, 3), dtype=np.int64)
        self.dev: NDArray[np.float64] = np.full(steps, np.nan)

    def add(self, step: int, losses: Losses) -> None:
        """Add one part's share to a step's losses, without waiting for the device."""
        self.losses[step] += torch.stack([losses.total.detach(), losses.mlm, losses.ce])

    def check(self, start: int, stop: int) -> float:
        """The loss at step `stop` - 1. Raises InputError if one of the steps from `start` on has none."""
        total = self.losses[start:stop, 0].cpu()
        bad = torch.nonzero(~torch.isfinite(total))
        if len(bad):
            raise InputError(
                f"the loss at step {start + int(bad[0])} is not a number: training diverged; "
                "lower the learning rate (lr) or raise its warm-up, or set clip if it is 0"
            )
        return float(total[-1])

    def tensors(self) -> dict[str, Tensor]:
        """For a snapshot."""
        return {"losses": self.losses, "costs": torch.from_numpy(self.costs), "dev": torch.from_numpy(self.dev)}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """From a snapshot."""
        self.losses.copy_(tensors["losses"])
        self.costs[:] = tensors["costs"].numpy()
        self.dev[:] = tensors["dev"].numpy()

    def totals(self) -> dict[str, int]:
        """Tokens, padded tokens and FLOPs of all steps."""
        names = ("tokens", "padded_tokens", "flops")
        return {name: sum(column) for name, column in zip(names, self.costs.T.tolist(), strict=True)}

    def write(self, path: Path, columns: dict[str, Any]) -> None:
        """Write `columns` (by name, in order) as parquet."""
        pq.write_table(pa.table(columns), path, compression="zstd", row_group_size=1 << 20)
