"""A curriculum: passages are drawn from a pool that grows from the easiest ones to all (Platanios et al. 2019)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tlm.training.input.batches import CHUNK, ORDER, BatchOrder, Ints, generator
from tlm.training.input.texts import Texts

GROWING = 1 << 30  # stands where `BatchOrder` has the number of an epoch


class Growing(BatchOrder):
    """The first batches are drawn from a pool that grows evenly; those that follow have each row once an epoch."""

    def __init__(
        self, hardness: NDArray[Any], growing: int, lengths: NDArray[Any], batch: int, seed: int, stream: int
    ) -> None:
        """`hardness` is that of each row; the pool has all rows after `growing` batches."""
        super().__init__(lengths, batch, seed, stream)
        self.easiest, self.growing = np.argsort(hardness, kind="stable"), growing

    def rows(self, index: int) -> Ints:
        """The rows of batch `index`."""
        if index >= self.growing:
            return super().rows(index - self.growing)
        chunk, place = divmod(index, CHUNK)
        random, wanted = generator(self.seed, ORDER, self.stream, GROWING, chunk), CHUNK * self.batch
        pool = self.easiest[: max(wanted, len(self.easiest) * (chunk + 1) * CHUNK // self.growing)]
        rows = random.choice(pool, min(wanted, len(pool)), replace=False)
        parts = np.array_split(rows[np.argsort(self.lengths[rows], kind="stable")], min(CHUNK, len(rows)))
        return np.asarray(parts[random.permutation(len(parts))[place % len(parts)]])


def rarity(texts: Texts, rows: Ints, counts: Ints) -> NDArray[np.float64]:
    """The mean of -log(frequency) of each row's tokens; 0 for a row without any, [rows]."""
    surprise = np.log(counts.sum()) - np.log(np.maximum(counts, 1))
    kept, _ = texts.kept(rows)
    sums = np.cumsum(np.append(0.0, surprise[texts.first.take(rows, kept, texts.cut)]))[np.cumsum(np.append(0, kept))]
    return np.asarray(np.diff(sums) / np.maximum(kept, 1))
