"""What external steps read: the passages of a subset, and the texts of the task that have no label."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tlm.training.input.batches import Batch, Ints, Order, collate
from tlm.training.input.rng import EXTERNAL, UNLABELLED
from tlm.training.input.texts import Texts


class External:
    """Batches of one source each; every source has as many of them as its share of all texts.

    Attributes:
        sources: Texts, their rows, and the order of these.
    """

    def __init__(self, passages: Texts | None, unlabelled: tuple[Texts, Ints], batch: int, seed: int) -> None:
        """`unlabelled` are texts of the task with the rows that have no label; there may be none."""
        texts, rows = unlabelled
        self.sources: list[tuple[Texts, Ints, Order]] = []
        if passages is not None:
            self.sources.append((passages, np.arange(len(passages)), Order(passages.lengths, batch, seed, EXTERNAL)))
        if len(rows):
            self.sources.append((texts, rows, Order(texts.lengths[rows], batch, seed, UNLABELLED)))

    def __bool__(self) -> bool:
        return bool(self.sources)

    def batch(self, index: int, labels: Sequence[NDArray[Any]] = ()) -> Batch:
        """Batch `index` (from 0); with `labels`, those of all texts of each source."""
        source, index = self._place(index)
        texts, rows, order = self.sources[source]
        return collate(texts, rows[order.rows(index)], labels[source] if labels else None)

    def length(self, index: int) -> int:
        """Tokens that a text of that batch may have."""
        return self.sources[self._place(index)[0]][0].max_length

    def _place(self, index: int) -> tuple[int, int]:
        """The source of a batch, and the number of its batches before that one."""
        if len(self.sources) < 2:
            return 0, index
        all_texts = sum(len(rows) for _, rows, _ in self.sources)
        second = len(self.sources[1][1])
        before, after = index * second // all_texts, (index + 1) * second // all_texts
        return (1, before) if after > before else (0, index - before)
