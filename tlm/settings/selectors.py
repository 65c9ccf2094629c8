"""The selectors: ways to choose text for a task, and what the rest of the program must know of each.

Their code is in `tlm/retrieval/selectors.py`; that of "bm25" and "random" is in `retrieve.py` beside it.
"""

from math import inf
from typing import Literal, NamedTuple

_NO_TERM, _NO_VECTOR = "no passage has any of its terms", "none of its words has a vector"


class Selector(NamedTuple):
    """What is known of a way to choose text.

    Attributes:
        by: Whether it searches with the task's texts as queries, by their words or by vectors, gives every passage a
            score, draws passages, or reranks what BM25 found.
        called: What reports call its text; BM25's, with which they compare the others, needs no name.
        card: Which passages a model learned from, for the model's card.
        sampled: Passages of a corpus above which another seed gives another text: 0 if the text is drawn, or the size
            of the sample that the selector learns from; inf: the seed has no effect.
        nothing_found: Why a query found nothing, for one that searches.
    """

    by: Literal["words", "vectors", "score", "draw", "rerank"]
    called: str
    card: str
    sampled: float
    nothing_found: str = ""


RERANKED = "rerank"  # by `research.rerank`, with a model that was trained on BM25's text
SELECTORS = {
    "bm25": Selector(
        by="words",
        called="",
        card="retrieved by BM25 with the training texts as queries",
        sampled=inf,
        nothing_found=_NO_TERM,
    ),
    "dense": Selector(
        by="vectors",
        called="text by vectors",
        card="retrieved with the training texts as queries, by the similarity of vectors",
        sampled=50_000,
        nothing_found=_NO_VECTOR,
    ),
    "hybrid": Selector(
        by="vectors",
        called="text by BM25 and vectors",
        card="retrieved with the training texts as queries, by BM25 and the similarity of vectors",
        sampled=50_000,
        nothing_found=f"{_NO_TERM}, and {_NO_VECTOR}",
    ),
    "random": Selector(by="draw", called="random text", card="drawn at random from the corpus", sampled=0),
    "dsir": Selector(
        by="score",
        called="text by importance (DSIR)",
        card="drawn from the corpus so that their words are distributed as the training texts' (DSIR)",
        sampled=0,
    ),
    "classifier": Selector(
        by="score",
        called="text by a classifier",
        card="those of the corpus that a linear model takes for training texts",
        sampled=20_000,
    ),
    RERANKED: Selector(
        by="rerank",
        called="text by influence (ISS)",
        card="retrieved by BM25, and of these the ones with most influence on the task's loss (ISS)",
        sampled=inf,
    ),
}


def _names(*kinds: str) -> tuple[str, ...]:
    return tuple(name for name, selector in SELECTORS.items() if selector.by in kinds)


WITH_QUERIES = _names("words", "vectors")
WITHOUT_QUERIES = _names("draw", "score", "rerank")  # their hits have no query
RETRIEVED = _names("words", "vectors", "draw", "score")  # by `retrieve`
SCORED = _names("score")
BY_VECTORS = _names("vectors")


def draws(arm: str, passages: float = inf, *, vectors: bool = False) -> bool:
    """Return whether another seed gives an arm another text.

    "random" and "dsir" draw. The others learn from a sample of the corpus, which of a small one is the whole.

    Args:
        arm: Name of the arm.
        passages: How many the corpus has.
        vectors: Whether the vectors are there already, in the index or by a published model.
    """
    if arm not in SELECTORS or (vectors and arm in BY_VECTORS):
        return False
    return passages > SELECTORS[arm].sampled
