"""Dense retrieval: the passages whose vectors are nearest to those of the training examples.

The paper names it as future work. Vectors are static ones, learned from a sample of the corpus and the task's texts, or
those of a published model.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tlm.artifacts.artifact import Artifact
from tlm.data.corpus import sample
from tlm.errors import InputError
from tlm.retrieval.search.engine import Engine
from tlm.retrieval.select.nearest import Nearest
from tlm.shallow import published
from tlm.shallow.models import one_thread
from tlm.shallow.vectors import Vectors, word_vectors
from tlm.shallow.words import words_of

LEARNED_FROM = 50_000  # passages that word vectors are learned from


def dense(index: Artifact, texts: Sequence[str], folder: str, seed: int) -> Engine:
    """An engine that compares vectors.

    Args:
        index: The index, whose passages are compared.
        texts: Texts of the task, to learn word vectors from as well.
        folder: A published model; "": learn static vectors.
        seed: Seed of the passages that vectors are learned from.

    Raises:
        InputError: the model does not load, or there is no word that occurs often enough.
    """
    corpus = index.input("corpus")
    return Nearest(corpus, Published(folder) if folder else Static.learn(corpus, texts, seed))


@dataclass(frozen=True)
class Static:
    """Weighted means of word vectors, without what nearly all texts have in common (Arora et al., ICLR 2017).

    Attributes:
        vectors: The vectors of words.
        common: The first principal component of the means of the texts, shape [dimensions].
    """

    vectors: Vectors
    common: NDArray[np.float64]

    @classmethod
    def learn(cls, corpus: Artifact, texts: Sequence[str], seed: int) -> "Static":
        """Learn from a sample of the corpus and texts of the task."""
        known = list(chain(sample(corpus, LEARNED_FROM, seed), texts))
        with one_thread():
            vectors = word_vectors(known)
            if not vectors.words:
                raise InputError(f"no word occurs often enough in {corpus.uri} to learn vectors from")
            means = vectors.means([words_of(text) for text in known])
            _, directions = np.linalg.eigh(means.T @ means)
        return cls(vectors, directions[:, -1])

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of length 1, shape [texts, dimensions]; 0 where no word is known."""
        means = self.vectors.means([words_of(text) for text in texts])
        return _of_length_one(means - np.outer(means @ self.common, self.common))


@dataclass(frozen=True)
class Published:
    """Embeddings of a published model.

    Attributes:
        folder: The folder of the model.
    """

    folder: str

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of length 1, shape [texts, dimensions]."""
        return _of_length_one(published.represent(_loaded(self.folder), texts, None))


@lru_cache(maxsize=1)
def _loaded(folder: str) -> object:
    return published.load(Path(folder))


def _of_length_one(vectors: NDArray[np.float64]) -> NDArray[np.float32]:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)
