"""Selectors that give every passage a score: DSIR and a quality classifier.

Both see a text as counts of hashed words and pairs of neighbouring words. The importance of a text in DSIR
(arXiv 2302.03169) is the ratio of its probability in the task to that in the corpus. Passages are drawn without
replacement in proportion to it, by adding Gumbel noise to its logarithm and taking the highest (section 3 there), so
that their words are distributed as the task's are. The classifier is a linear model, as are the filters of DCLM
(arXiv 2406.11794) and BETR (arXiv 2507.12466), but fitted to this one task.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import normalize

from tlm.artifacts.artifact import Artifact
from tlm.data.parallel import each
from tlm.data.passages import SEVERAL, sample, shard_passages, shards
from tlm.retrieval.search.analyzer import batched
from tlm.shallow.features import letters_of

BUCKETS = 10_000  # of DSIR, as in the paper
LEAST = 1e-8  # probability of a bucket that never occurs, as in the authors' code
SAMPLE = 1_000_000  # passages to learn the corpus's distribution from
PORTION, PORTION_CHARACTERS = 10_000, 1 << 24  # texts counted at once
FEATURES = 1 << 18  # buckets of the classifier
OTHERS = 20_000  # passages that represent the corpus to the classifier

Floats: TypeAlias = NDArray[np.float64]


def dsir(corpus: Artifact, texts: Sequence[str], seed: int) -> Floats:
    """The logarithm of each passage's importance, with noise that makes the highest ones a draw."""
    logs = log_ratios(shares(texts), shares(sample(corpus, SAMPLE)))
    importance = scores_of_all(corpus, partial(log_importance, logs))
    return importance + np.random.default_rng(seed).gumbel(size=len(importance))


def classifier(corpus: Artifact, texts: Sequence[str], seed: int) -> Floats:
    """The log-odds that each passage is the task's; the passages that it is compared with are drawn by `seed`."""
    others = list(sample(corpus, OTHERS, seed))
    return scores_of_all(corpus, partial(log_odds, fitted(texts, others)))


SELECTORS = {"dsir": dsir, "classifier": classifier}  # (corpus, texts of the task, seed) -> scores, in order of `doc`


def shares(texts: Iterable[str]) -> Floats:
    """The distribution of the words and pairs of texts over the buckets, [buckets]."""
    total = np.zeros(BUCKETS)
    for portion in batched(texts, PORTION, PORTION_CHARACTERS):
        total += np.asarray(counts(portion, BUCKETS).sum(axis=0)).ravel()
    return total / max(total.sum(), 1.0)  # type: ignore[no-any-return]


def log_ratios(task: Floats, corpus: Floats) -> Floats:
    """The logarithm of how much more often each bucket occurs in the task than in the corpus."""
    return np.log(task + LEAST) - np.log(corpus + LEAST)  # type: ignore[no-any-return]


def log_importance(logs: Floats, texts: Sequence[str]) -> Floats:
    """The logarithm of the importance of each text: the sum over its words and pairs."""
    return counts(texts, BUCKETS) @ logs  # type: ignore[no-any-return]


def fitted(texts: Sequence[str], others: Sequence[str]) -> LogisticRegression:
    """A model that separates the task's texts from others; both sides weigh the same."""
    labels = np.repeat([1, 0], [len(texts), len(others)])
    model = LogisticRegression(class_weight="balanced", max_iter=200)
    return model.fit(normalize(counts([*texts, *others], FEATURES)), labels)


def log_odds(model: LogisticRegression, texts: Sequence[str]) -> Floats:
    """The model's score of each text."""
    return model.decision_function(normalize(counts(texts, FEATURES))) if texts else np.zeros(0)  # type: ignore[no-any-return]


def counts(texts: Sequence[str], buckets: int) -> csr_matrix:
    """Count the words and pairs of neighbouring words of each text by bucket, [texts, buckets].

    Words are those of `letters_of`.
    """
    words = {"tokenizer": letters_of, "token_pattern": None, "lowercase": False, "ngram_range": (1, 2)}
    return HashingVectorizer(n_features=buckets, alternate_sign=False, norm=None, **words).transform(texts)


def scores_of_all(corpus: Artifact, score: Callable[[Sequence[str]], Floats]) -> Floats:
    """The score of every passage, in order of `doc`; of a large corpus in several processes."""
    numbers = range(len(shards(corpus)))
    found = dict(each(partial(_of_shard, corpus.uri, score), numbers, "scoring", "shards", least=SEVERAL))
    return np.concatenate([found[number] for number in numbers])


def _of_shard(uri: str, score: Callable[[Sequence[str]], Floats], number: int) -> tuple[int, Floats]:
    portions = (batch.column("text").to_pylist() for batch in shard_passages(uri, number, ["text"]))
    return number, np.concatenate([np.zeros(0), *map(score, portions)])
