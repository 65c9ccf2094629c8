"""Vocabulary shift: words that are more or less frequent in a subset than in the rest of its corpus.

Weighted log-odds ratio with an informative Dirichlet prior: Monroe, Colaresi and Quinn (2008), "Fightin' Words",
Political Analysis 16(4), equations 15, 16, 20, 22 and 23. The prior pulls rare words towards no difference. The z-score
measures how certain the difference is, so that neither common nor rare words win by their frequency alone.
"""

from collections import Counter
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from research.retrieval.subsets import Subset
from tlm.artifacts.artifact import Artifact
from tlm.data.passages import rows_at
from tlm.data.ranges import Ints
from tlm.data.text import tokens
from tlm.evaluation.pages.text import visible
from tlm.evaluation.report.preview import PASSAGES

PRIOR_WORDS = 500.0  # total count of the prior
LEAST_COUNT = 20  # of a shown word, in both samples together
STREAM = 7_001  # of the random numbers that choose the passages
BLOCK, MOST_BLOCKS = 10_000, 200  # passages in a block, and the maximum number of blocks that are read


def log_odds(mine: NDArray[Any], others: NDArray[Any], prior_words: float = PRIOR_WORDS) -> NDArray[np.float64]:
    """The z-score of each word: positive if the word is more frequent in `mine` than in `others`.

    Args:
        mine: Counts of each word, [W].
        others: Counts in the text to compare with, [W].
        prior_words: Total count of the prior, which is distributed like the words of both texts together.
    """
    mine, others = mine.astype(np.float64), others.astype(np.float64)
    together = mine + others
    prior = prior_words * together / together.sum()
    known = (together > 0) & (together < together.sum())  # the odds of the only word are undefined
    score, a, b = np.zeros(len(mine)), (mine + prior)[known], (others + prior)[known]
    rest_a, rest_b = mine.sum() + prior_words - a, others.sum() + prior_words - b
    delta = np.log(a) - np.log(rest_a) - np.log(b) + np.log(rest_b)
    score[known] = delta / np.sqrt(1 / a + 1 / b)
    return score


def shift(subsets: list[Subset], corpus: Artifact, sample: int, top: int, seed: int) -> list[dict[str, Any]]:
    """The `top` over- and under-represented words of each subset, compared with the passages that it leaves out.

    Words are counted in at most `sample` passages of each subset and of the corpus, drawn at random with `seed`.
    """
    background = _sample(corpus, int(corpus.details["passages"]), sample, seed)
    found = []
    for subset in subsets:
        mine = _sample(subset.artifact, len(subset.docs), sample, seed)
        inside = np.isin([row["doc"] for row in background], subset.docs)
        others = [row for row, is_inside in zip(background, inside, strict=True) if not is_inside]
        found.append({"passages": len(mine), "others": len(others), **_extremes(_count(mine), _count(others), top)})
    return found


def _sample(artifact: Artifact, size: int, sample: int, seed: int) -> list[dict[str, Any]]:
    return list(rows_at(artifact, PASSAGES, chosen_rows(size, sample, seed).tolist()).values())


def _count(passages: list[dict[str, Any]]) -> Counter[str]:
    return Counter(chain.from_iterable(tokens(passage["text"]) for passage in passages))


def _extremes(in_subset: Counter[str], elsewhere: Counter[str], top: int) -> dict[str, list[dict[str, Any]]]:
    if not in_subset or not elsewhere:
        return {"over": [], "under": []}
    names = list(elsewhere | in_subset)
    mine, others = (np.array([counter[name] for name in names]) for counter in (in_subset, elsewhere))
    score = log_odds(mine, others)
    frequent = np.array([len(name) > 1 and not name.isdecimal() for name in names]) & (mine + others >= LEAST_COUNT)
    order = np.flatnonzero(frequent)[np.argsort(-score[frequent], kind="stable")]

    def row(word: int) -> dict[str, Any]:
        rates = {"subset": float(1e6 * mine[word] / mine.sum()), "rest": float(1e6 * others[word] / others.sum())}
        return {"word": visible(names[word], 30), "z": float(score[word]), **rates}

    over = [row(word) for word in order[:top] if score[word] > 0]
    return {"over": over, "under": [row(word) for word in order[::-1][:top] if score[word] < 0]}


def chosen_rows(size: int, sample: int, seed: int) -> Ints:
    """All rows, or `sample` rows drawn at random from at most `MOST_BLOCKS` blocks; ascending.

    For a small corpus this is a simple random sample; of a large corpus only some parts of the files are read.
    """
    if size <= sample:
        return np.arange(size)
    random = np.random.default_rng([seed, STREAM])
    blocks = random.permutation(-(-size // BLOCK))[: max(MOST_BLOCKS, -(-sample // BLOCK) + 1)]
    rows = (blocks[:, None] * BLOCK + np.arange(BLOCK)).ravel()
    return np.sort(random.choice(rows[rows < size], sample, replace=False))
