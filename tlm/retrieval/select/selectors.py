"""The selectors by name. Each is a function of that name, in a module of that name, which is loaded when it is used."""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tlm.artifacts.artifact import Artifact
from tlm.data.ranges import Ints
from tlm.retrieval.search.query import Engine

Selector: TypeAlias = Callable[[Artifact, Sequence[str], int], NDArray[np.float64]]
Searcher: TypeAlias = Callable[[Artifact, str, int], Engine]

BY_VECTORS = ("dense", "hybrid")
SCORED = ("dsir", "classifier")
RERANKED = "rerank"  # by `research.rerank`, with a model that was trained on BM25's text
WITHOUT_QUERIES = ("random", *SCORED, RERANKED)  # the arms whose hits have no query


def draws(arm: str, passages: float = float("inf"), *, vectors: bool = False) -> bool:
    """Whether another seed gives an arm another text.

    "random" and "dsir" draw. The others learn from a sample of the corpus, which of a small one is the whole.

    Args:
        arm: Name of the arm.
        passages: How many the corpus has.
        vectors: Whether the vectors are there already, in the index or by a published model.
    """
    if arm == "classifier":
        from tlm.retrieval.select.classifier import OTHERS

        return passages > OTHERS
    if arm in BY_VECTORS:
        from tlm.retrieval.search.embed import LEARNED_FROM

        return passages > LEARNED_FROM and not vectors
    return arm in ("random", "dsir")


def selector(name: str) -> Selector:
    """What gives each passage of a corpus a score, [passages], by texts of the task and a seed; `name`: of `SCORED`."""
    return _function(name)


def searcher(name: str) -> Searcher:
    """What makes an engine of an index, the folder of a published model or "", and a seed; of `BY_VECTORS`."""
    return _function(name)


def _function(name: str) -> Callable[..., Any]:
    found: Callable[..., Any] = getattr(import_module(f"tlm.retrieval.select.{name}"), name)
    return found


def best(scores: NDArray[np.float64], count: int) -> tuple[Ints, NDArray[np.float32]]:
    """The `count` passages with the highest scores and these, highest first; of equal ones, the first passage."""
    docs = np.lexsort((np.arange(len(scores)), -scores))[:count]
    return docs, scores[docs].astype(np.float32)
