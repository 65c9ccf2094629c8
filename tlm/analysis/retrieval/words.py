"""Vocabulary shift: words that a subset has more and less often than the rest of its corpus.

Weighted log-odds-ratio with an informative Dirichlet prior: Monroe, Colaresi and Quinn (2008), "Fightin' Words",
Political Analysis 16(4), equations 15, 16, 20, 22 and 23. The prior pulls rare words towards no difference, and the
z-score says how sure the difference is, so that neither common nor rare words win by their frequency alone.
"""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tlm.analysis.retrieval.subsets import Ints, Subset
from tlm.artifacts.artifact import Artifact
from tlm.data.text import tokens
from tlm.evaluation.pages.sampling import rows_at

PRIOR_WORDS = 500.0  # the prior weighs as much as a text of so many words
LEAST_COUNT = 20  # of a word in both samples together, to be shown
STREAM = 7_001  # of random numbers, for the choice of passages
BLOCK, MOST_BLOCKS = 10_000, 200  # passages that are read together, and how many such portions are read at most


@dataclass(frozen=True)
class Sample:
    """Passages `docs` [n], their words as numbers, back to back, and which passage each word is of (0 to n - 1)."""

    docs: Ints
    words: NDArray[np.int32]
    owner: Ints


def log_odds(mine: NDArray[Any], others: NDArray[Any], prior_words: float = PRIOR_WORDS) -> NDArray[np.float64]:
    """z-scores of the words: positive where `mine` uses a word more than `others`.

    Args:
        mine: Counts of each word, [W].
        others: Counts in what it is held against, [W].
        prior_words: The sum of the prior's counts, which are shared out as the words are in both together.
    """
    mine, others = mine.astype(np.float64), others.astype(np.float64)
    together = mine + others
    prior = prior_words * together / together.sum()
    known = (together > 0) & (together < together.sum())  # a word alone has no odds
    score, a, b = np.zeros(len(mine)), (mine + prior)[known], (others + prior)[known]
    rest_a, rest_b = mine.sum() + prior_words - a, others.sum() + prior_words - b
    delta = np.log(a) - np.log(rest_a) - np.log(b) + np.log(rest_b)
    score[known] = delta / np.sqrt(1 / a + 1 / b)
    return score


def shift(subsets: list[Subset], corpus: Artifact, sample: int, top: int, seed: int) -> list[dict[str, Any]]:
    """For each subset the `top` words over- and under-represented against passages of the corpus that it has not.

    At most `sample` passages of each subset and of the corpus are counted, drawn at random with `seed`.
    """
    numbers: dict[str, int] = {}
    background = _read(numbers, corpus, int(corpus.details["passages"]), sample, seed)
    parts = [_read(numbers, one.artifact, len(one.docs), sample, seed) for one in subsets]
    names = np.array(list(numbers), dtype=object)
    found = []
    for subset, part in zip(subsets, parts, strict=True):
        outside = ~np.isin(background.docs, subset.docs)
        mine = np.bincount(part.words, minlength=len(names))
        others = np.bincount(background.words[outside[background.owner]], minlength=len(names))
        found.append({"passages": len(part.docs), "others": int(outside.sum()), **_extremes(names, mine, others, top)})
    return found


def _extremes(names: NDArray[Any], mine: Ints, others: Ints, top: int) -> dict[str, list[dict[str, Any]]]:
    if not mine.sum() or not others.sum():
        return {"over": [], "under": []}
    score = log_odds(mine, others)
    frequent = np.array([len(name) > 1 and not name.isdecimal() for name in names]) & (mine + others >= LEAST_COUNT)
    order = np.flatnonzero(frequent)[np.argsort(-score[frequent], kind="stable")]
    per_million = 1e6 * mine / mine.sum(), 1e6 * others / others.sum()

    def told(word: int) -> dict[str, Any]:
        rates = [float(rate[word]) for rate in per_million]
        return {"word": str(names[word]), "z": float(score[word]), "subset": rates[0], "rest": rates[1]}

    over = [told(word) for word in order[:top] if score[word] > 0]
    return {"over": over, "under": [told(word) for word in order[::-1][:top] if score[word] < 0]}


def _read(numbers: dict[str, int], artifact: Artifact, size: int, sample: int, seed: int) -> Sample:
    found = rows_at(artifact, "passages-*.parquet", chosen_rows(size, sample, seed).tolist())
    texts = [found[row] for row in sorted(found)]
    words, lengths = _numbered(numbers, (text["text"] for text in texts))
    docs = np.array([text["doc"] for text in texts], dtype=np.int64)
    return Sample(docs, words, np.repeat(np.arange(len(docs)), lengths))


def _numbered(numbers: dict[str, int], texts: Iterable[str]) -> tuple[NDArray[np.int32], Ints]:
    """The words of all texts as numbers, back to back, and how many each has; new words are added to `numbers`."""
    words, lengths = array("i"), array("q")
    for text in texts:
        found = tokens(text)
        words.extend(numbers.setdefault(word, len(numbers)) for word in found)
        lengths.append(len(found))
    return np.frombuffer(words, np.int32), np.frombuffer(lengths, np.int64)


def chosen_rows(size: int, sample: int, seed: int) -> Ints:
    """All rows, or `sample` of them drawn at random out of at most `MOST_BLOCKS` blocks; ascending.

    Of a small corpus that is a plain random sample; of a large one not every portion of its files need be read.
    """
    if size <= sample:
        return np.arange(size)
    random = np.random.default_rng([seed, STREAM])
    blocks = random.permutation(-(-size // BLOCK))[: max(MOST_BLOCKS, -(-sample // BLOCK) + 1)]
    rows = (blocks[:, None] * BLOCK + np.arange(BLOCK)).ravel()
    return np.sort(random.choice(rows[rows < size], sample, replace=False))
