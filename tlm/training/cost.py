"""The cost of training, and the record of a training run, step by step."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from torch import Tensor

from tlm.artifacts.produce import Draft
from tlm.errors import InputError
from tlm.settings.sections import OWN, Model
from tlm.training.input.batches import Batch

BACKWARD = 3  # forward and backward pass together, in forward passes


@dataclass(frozen=True)
class Cost:
    """Counts the operations of a model's matrix products; a multiplication and an addition count as two.

    The count is exact for the encoders written here, which compute only some positions of the last layer (encoder.py).
    For others it is an estimate: that of a BERT of the same shape that computes all positions.

    Attributes:
        model: The shape of the encoder.
        vocab_size: Entries of the vocabulary.
        labels: Classes.
    """

    model: Model
    vocab_size: int
    labels: int

    def of(self, batch: Batch, *, tokens: bool, classes: bool) -> int:
        """The forward and backward pass of `batch`, without padding, that predicts `tokens`, `classes` or both."""
        model, width = self.model, self.model.hidden
        read, lengths = batch.tokens, batch.lengths
        rows, masked = len(lengths) * classes, batch.masked * tokens
        modern = model.architecture == "modernbert"
        matrices = 3 if modern else 2  # of the feed-forward network, which is gated in ModernBERT
        everywhere = (classes and modern) or model.architecture not in OWN
        asking = lengths if everywhere else 1 + batch.masked_by_row() * tokens
        finished = read if everywhere else rows + masked
        projections = 2 * width * width * (read * (3 * model.layers - 1) + int(asking.sum()))
        attention = 2 * 2 * width * int(lengths @ (lengths * (model.layers - 1) + asking))
        after = 2 * width * (width + matrices * model.intermediate) * (read * (model.layers - 1) + finished)
        heads = 2 * width * ((width + self.vocab_size) * masked + (width + self.labels) * rows)
        return BACKWARD * (projections + attention + after + heads)


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

    def tensors(self) -> dict[str, Tensor]:
        """The record as tensors, for a snapshot."""
        return {"losses": self.losses, "costs": torch.from_numpy(self.costs), "dev": torch.from_numpy(self.dev)}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Take the record from the tensors of a snapshot."""
        self.losses.copy_(tensors["losses"])
        self.costs[:] = tensors["costs"].numpy()
        self.dev[:] = tensors["dev"].numpy()

    def cost(self, parameters: int) -> dict[str, int]:
        """Tokens, padded tokens and FLOPs of all steps, and the paper's estimate for a model of so many parameters."""
        tokens, padded, flops = map(sum, self.costs.T.tolist())
        paper = paper_flops(parameters, padded)
        return {"tokens": tokens, "padded_tokens": padded, "flops": flops, "paper_flops": paper}

    def write(self, draft: Draft, columns: dict[str, Any]) -> None:
        """Write `columns` (arrays of one row for each step, by name, in order) as curve.parquet."""
        pq.write_table(pa.table(columns), draft.folder / FILE, compression="zstd", row_group_size=1 << 20)
        draft.rows[FILE] = len(self.dev)


def paper_flops(parameters: int, padded_tokens: int) -> int:
    """The paper's estimate (section 4.1, Table 2): 6 · parameters · tokens, with padding to the full length."""
    return 6 * parameters * padded_tokens
