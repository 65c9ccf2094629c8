"""The interface of search engines."""

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

Docs = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float32]


class Engine(Protocol):
    """A search engine on one index."""

    def search(self, queries: Sequence[str], top_k: int) -> Iterator[tuple[Docs, Scores]]:
        """Yield the best documents of each query, at most `top_k`, and their scores.

        Documents are ordered by BM25 score descending, then by number ascending. A query's hits do not depend on the
        other queries. A term that occurs n times in a query counts n times.
        """
