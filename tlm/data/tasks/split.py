"""The examples of one split, as models take them. Needs no pyarrow: it is loaded where models predict."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Split:
    """The n examples of one split.

    Attributes:
        name: train, dev or test.
        example: Row ordinals in the task; shape [n].
        texts: The texts.
        pairs: The second texts, for a task on pairs.
        gold: Class ordinals (int64), or targets (float64) for regression; shape [n].
        group: Ordinal of each example's group (`tlm.data.tasks.groups`); shape [n].
        copied: Whether train has the same text; shape [n].
    """

    name: str
    example: NDArray[np.int64]
    texts: list[str]
    pairs: list[str] | None
    gold: NDArray[Any]
    group: NDArray[np.int64]
    copied: NDArray[np.bool_]
