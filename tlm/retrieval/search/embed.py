"""Vectors of texts: static ones that were learned from a corpus, or embeddings of a published model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tlm.artifacts.artifact import Artifact
from tlm.data.passages import sample
from tlm.errors import InputError
from tlm.settings.selectors import SELECTORS
from tlm.shallow import folder as folders
from tlm.shallow import published
from tlm.shallow.features import words_of
from tlm.shallow.models import one_thread
from tlm.shallow.static import Vectors, word_vectors

# Binary places of learned vectors, which differ by some 1e-14 between processors, so rounded ones are nearly always
# equal; and of texts' vectors of length 1, whose products are then exact in 64-bit floats, in whatever order they add.
LEARNED_BITS, BITS = 16, 24

Embed: TypeAlias = Callable[[Sequence[str]], NDArray[np.float32]]  # vectors of texts, [texts, dimensions]


@dataclass(frozen=True)
class StaticEmbedder:
    """Weighted means of word vectors, without what nearly all texts have in common (Arora et al., ICLR 2017).

    Attributes:
        vectors: The vectors of words.
        common: The first principal component of the means of the texts, shape [dimensions].
    """

    vectors: Vectors
    common: NDArray[np.float64]

    @classmethod
    def learn(cls, corpus: Artifact, seed: int) -> "StaticEmbedder":
        """Learn from a sample of a corpus.

        Raises:
            InputError: no word occurs often enough.
        """
        texts = list(sample(corpus, int(SELECTORS["dense"].sampled), seed))
        with one_thread():
            found = word_vectors(texts)
            if not found.words:
                raise InputError(f"no word occurs often enough in {corpus.uri} to learn vectors from")
            vectors = replace(found, vectors=rounded(found.vectors, LEARNED_BITS).astype(np.float32))
            means = vectors.means([words_of(text) for text in texts])
            _, directions = np.linalg.eigh(means.T @ means)
        return cls(vectors, rounded(directions[:, -1], BITS))

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of length 1, shape [texts, dimensions]; 0 where no word is known."""
        means = self.vectors.means([words_of(text) for text in texts])
        shared = np.einsum("nd,d->n", means, self.common)  # a product by BLAS depends on the processor
        return _of_length_one(means - np.outer(shared, self.common))

    def write(self, folder: Path) -> None:
        """Write the vectors into a folder."""
        arrays: folders.Arrays = {"vectors": self.vectors.vectors, "word_weights": self.vectors.weights}
        arrays["common"] = self.common
        folders.write(folder, {}, {"words": self.vectors.words}, arrays)

    @classmethod
    def read(cls, folder: Path) -> "StaticEmbedder":
        """Read what `write` wrote."""
        _, vocabulary, arrays = folders.read(folder)
        return cls(Vectors(vocabulary["words"], arrays["vectors"], arrays["word_weights"]), arrays["common"])


def published_vectors(folder: str, texts: Sequence[str]) -> NDArray[np.float32]:
    """Embeddings of texts by the published model in a folder, of length 1, shape [texts, dimensions]."""
    return _of_length_one(published.embeddings(_loaded(Path(folder)), texts))


_loaded = lru_cache(maxsize=1)(published.whole)


def _of_length_one(vectors: NDArray[np.float64]) -> NDArray[np.float32]:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return rounded(vectors / np.where(lengths > 1e-9, lengths, np.inf), BITS).astype(np.float32)


def rounded(vectors: NDArray[Any], bits: int) -> NDArray[np.float64]:
    """Vectors with so many binary places."""
    scale = 2.0**bits
    found: NDArray[np.float64] = np.round(vectors.astype(np.float64) * scale) / scale
    return found
