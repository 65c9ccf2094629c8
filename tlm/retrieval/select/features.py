"""What selectors see of texts: counts of hashed words and pairs of words, as in DSIR and in fastText's classifiers."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import HashingVectorizer

from tlm.artifacts.artifact import Artifact
from tlm.data.parallel import each
from tlm.data.passages import SEVERAL, shard_passages, shards
from tlm.shallow.words import letters_of

Scores: TypeAlias = NDArray[np.float64]
Score: TypeAlias = Callable[[Sequence[str]], Scores]


def counts(texts: Sequence[str], buckets: int) -> csr_matrix:
    """How often each text has the words and pairs of neighbouring words of each bucket, [texts, buckets].

    Words are those of `letters_of`.
    """
    hashed = HashingVectorizer(
        n_features=buckets,
        ngram_range=(1, 2),
        tokenizer=letters_of,
        token_pattern=None,
        lowercase=False,
        alternate_sign=False,
        norm=None,
    )
    return hashed.transform(texts)


def scores_of_all(corpus: Artifact, score: Score, label: str) -> Scores:
    """The score of every passage, in order of `doc`; of a large corpus in several processes."""
    numbers = range(len(shards(corpus)))
    found = dict(each(partial(_of_shard, corpus.uri, score), numbers, label, "shards", least=SEVERAL))
    return np.concatenate([found[number] for number in numbers])


def _of_shard(uri: str, score: Score, number: int) -> tuple[int, Scores]:
    portions = (batch.column("text").to_pylist() for batch in shard_passages(uri, number, ["text"]))
    return number, np.concatenate([np.zeros(0), *map(score, portions)])
