"""What retrieval asks of an engine."""

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

Docs = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float32]


class Engine(Protocol):
    """Searches one index."""

    def search(self, queries: Sequence[str], top_k: int) -> Iterator[tuple[Docs, Scores]]:
        """For each query, in order: its at most `top_k` best documents and their scores.

        Documents are ordered by BM25 score descending, then by document ascending. A query's hits do not depend on
        the other queries. A term that stands n times in a query counts n times.
        """
