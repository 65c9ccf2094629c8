"""DSIR: passages drawn by importance, so that their words are distributed as the task's are (arXiv 2302.03169).

A text is a bag of hashed words and pairs of words. Its importance is the ratio of its probability in the task to that
in the corpus. Passages are drawn without replacement in proportion to it, by adding Gumbel noise to its logarithm and
taking the highest (section 3 there).
"""

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from tlm.artifacts.artifact import Artifact
from tlm.data.passages import sample
from tlm.retrieval.search.analyzer import batched
from tlm.retrieval.select.features import Scores, counts, scores_of_all

BUCKETS = 10_000  # as in the paper
LEAST = 1e-8  # probability of a bucket that never occurs, as in the authors' code
SAMPLE = 1_000_000  # passages to learn the corpus's distribution from
PORTION, PORTION_CHARACTERS = 10_000, 1 << 24  # texts counted at once

Shares = NDArray[np.float64]


def dsir(corpus: Artifact, texts: Sequence[str], seed: int) -> Scores:
    """The logarithm of each passage's importance, with noise that makes the highest ones a draw."""
    logs = log_ratios(shares(texts), _shares_of(corpus))
    importance = scores_of_all(corpus, partial(log_importance, logs), "scoring")
    return importance + np.random.default_rng(seed).gumbel(size=len(importance))


def shares(texts: Sequence[str]) -> Shares:
    """How the words and pairs of texts are distributed over the buckets, [buckets]."""
    return _normalised(np.asarray(counts(texts, BUCKETS).sum(axis=0)).ravel())


def log_ratios(task: Shares, corpus: Shares) -> Shares:
    """The logarithm of how much more often each bucket occurs in the task than in the corpus."""
    ratios: Shares = np.log(task + LEAST) - np.log(corpus + LEAST)
    return ratios


def log_importance(logs: Shares, texts: Sequence[str]) -> Scores:
    """The logarithm of the importance of each text: the sum over its words and pairs."""
    found: Scores = counts(texts, BUCKETS) @ logs
    return found


def divergence(task: Shares, other: Shares) -> float:
    """The Kullback-Leibler divergence of the task's distribution from another, in nats (section 5.1 there)."""
    return float(np.sum(task * (np.log(task + LEAST) - np.log(other + LEAST))))


def _shares_of(corpus: Artifact) -> Shares:
    total = np.zeros(BUCKETS)
    for portion in batched(sample(corpus, SAMPLE), PORTION, PORTION_CHARACTERS):
        total += np.asarray(counts(portion, BUCKETS).sum(axis=0)).ravel()
    return _normalised(total)


def _normalised(total: Shares) -> Shares:
    shares: Shares = total / max(total.sum(), 1.0)
    return shares
