"""Static word vectors learned from retrieved text (PPMI and SVD), and a linear model of them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.extmath import randomized_svd

from tlm.data.marks import Marks, listed_marks, marks_of
from tlm.data.tasks.metrics import REGRESSION, Split
from tlm.errors import InputError
from tlm.shallow import folder as folders
from tlm.shallow.features import of_marked, parts, with_pairs, words_of
from tlm.shallow.linear import Dense, OnDense, of_pairs

DIMENSIONS = 128
WINDOW = 5  # words to each side; a neighbour at distance d counts (WINDOW + 1 - d) / WINDOW
LEAST_COUNT = 3
MOST_WORDS = 50_000
SMOOTHING = 0.75  # exponent of the counts of the neighbours (Levy et al., section 3.2)
SIF = 1e-3  # a in the weight a / (a + p) of a word of probability p (Arora et al., ICLR 2017)
AT_ONCE = 20_000  # texts


@dataclass(frozen=True)
class Vectors:
    """Vectors of words.

    Attributes:
        words: The words, the most frequent first.
        vectors: Their vectors, float32, shape [words, dimensions].
        weights: Their weights in the mean of a text, float32, shape [words]: the rarer, the heavier.
    """

    words: list[str]
    vectors: NDArray[np.float32]
    weights: NDArray[np.float32]

    def means(self, texts: Sequence[Sequence[str]]) -> NDArray[np.float64]:
        """The weighted mean of each text's words, of length 1, shape [n, dimensions]; 0 where no word is known.

        In scripts without spaces, pairs of letters are words, too.
        """
        texts = [with_pairs(words) for words in texts]
        numbers = np.fromiter((self._numbers.get(word, -1) for word in chain.from_iterable(texts)), np.int64)
        rows = np.repeat(np.arange(len(texts)), [len(words) for words in texts])
        known = numbers >= 0
        shape = (len(texts), len(self.words))
        counts = sparse.csr_matrix((self.weights[numbers[known]], (rows[known], numbers[known])), shape=shape)
        sums = np.asarray(counts @ self.vectors, np.float64)
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        return sums / np.where(lengths > 0, lengths, 1)  # type: ignore[no-any-return]

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words)}


def word_vectors(texts: Iterable[str], dimensions: int = DIMENSIONS) -> Vectors:
    """Learn vectors from texts.

    Memory grows with the pairs of words that occur together, and with the words of all texts (4 bytes each).

    Args:
        texts: The texts to learn from.
        dimensions: Length of a vector; fewer if there are fewer words.
    """
    ids, lengths, words = _encoded(texts)
    counts = np.bincount(ids, minlength=len(words))
    order = np.argsort(-counts, kind="stable")
    kept = order[counts[order] >= LEAST_COUNT][:MOST_WORDS]
    number = np.full(len(words), -1, np.int32)
    number[kept] = np.arange(len(kept), dtype=np.int32)
    vectors = neighbour_vectors(number[ids], lengths, len(kept), dimensions)
    weights = SIF / (SIF + counts[kept] / max(1, len(ids)))
    return Vectors([words[one] for one in kept], vectors.astype(np.float32), weights.astype(np.float32))


def neighbour_vectors(
    ids: NDArray[np.int32], lengths: NDArray[np.int64], size: int, dimensions: int
) -> NDArray[np.float64]:
    """PPMI-SVD vectors of words: left singular vectors, scaled by the square roots of their values.

    Their shape is [size, dimensions], fewer if there are fewer words.

    `ids`, `lengths` and `size` are those of `cooccurrences`.
    """
    matrix = ppmi(cooccurrences(ids, lengths, size))
    if not matrix.nnz:
        return np.zeros((size, 1))
    left, values, _ = randomized_svd(matrix, min(dimensions, size), random_state=0)  # ARPACK restarts at random
    return left * np.sqrt(values)  # type: ignore[no-any-return]


def cooccurrences(ids: NDArray[np.int32], lengths: NDArray[np.int64], size: int) -> Any:
    """Count how often words stand within `WINDOW` of each other in a text, the nearer the heavier.

    Args:
        ids: The words of all texts in order, as numbers below `size`; -1 for a word that is not counted.
        lengths: Number of words of each text.
        size: How many words there are.

    Returns:
        A symmetric sparse matrix, float64, shape [size, size].
    """
    text = np.repeat(np.arange(len(lengths)), lengths)
    total = sparse.csr_matrix((size, size))
    for distance in range(1, WINDOW + 1):
        first, second = ids[:-distance], ids[distance:]
        near = (first >= 0) & (second >= 0) & (text[:-distance] == text[distance:])
        weights = np.full(int(near.sum()), (WINDOW + 1 - distance) / WINDOW)
        total = total + sparse.coo_matrix((weights, (first[near], second[near])), shape=(size, size)).tocsr()
    return total + total.T


def ppmi(counts: Any) -> Any:
    """Positive pointwise mutual information, max(0, log p(w, c) / (p(w) p'(c))), with smoothed p' of the neighbours."""
    counts = counts.tocoo()
    of_word = np.asarray(counts.sum(axis=1)).ravel()
    of_neighbour = of_word**SMOOTHING
    of_neighbour /= max(of_neighbour.sum(), 1e-300)
    values = np.log(counts.data / (of_word[counts.row] * of_neighbour[counts.col]))
    positive = values > 0
    return sparse.csr_matrix((values[positive], (counts.row[positive], counts.col[positive])), shape=counts.shape)


def _encoded(texts: Iterable[str]) -> tuple[NDArray[np.int32], NDArray[np.int64], list[str]]:
    """The words of all texts as numbers, in order; the number of words of each text; and the words by number."""
    import pyarrow as pa  # here, because predicting does without it

    lengths, portions, source = [np.zeros(0, np.int64)], [pa.array([], pa.string()).dictionary_encode()], iter(texts)
    while lists := [with_pairs(words_of(text)) for text in islice(source, AT_ONCE)]:
        lengths.append(np.array([len(words) for words in lists]))
        portions.append(pa.array(chain.from_iterable(lists), pa.string()).dictionary_encode())
    whole = pa.chunked_array(portions).unify_dictionaries().combine_chunks()
    whole = whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole
    return whole.indices.to_numpy(), np.concatenate(lengths), whole.dictionary.to_pylist()


FAMILY = "static"


@dataclass(frozen=True)
class Static(OnDense):
    """A fitted model.

    Attributes:
        labels: The classes in the order of the probabilities; None for numbers.
        vectors: The word vectors.
        marks: The marks around spans.
        dense: The model of the features.
        pair: Whether the examples are pairs of texts.
    """

    labels: list[str] | None
    vectors: Vectors
    marks: Marks
    dense: Dense
    pair: bool

    @property
    def chosen(self) -> dict[str, Any]:
        """The settings that were chosen, for the report."""
        return {"dimensions": self.vectors.vectors.shape[1], "words": len(self.vectors.words), **self.dense.chosen}

    def represented(self, texts: Sequence[str], pairs: Sequence[str] | None) -> NDArray[np.float64]:
        """The features of texts, or of pairs; shape [n, features]."""
        return represent(self.vectors, self.marks, texts, pairs)

    def write(self, folder: Path) -> None:
        """Write the model into a new folder."""
        values, arrays = self.dense.state()
        config = {folders.FAMILY: FAMILY, "labels": self.labels, **values, "marks": self.marks, "pair": self.pair}
        arrays |= {"vectors": self.vectors.vectors, "word_weights": self.vectors.weights}
        folders.write(folder, config, {"words": self.vectors.words}, arrays)

    @classmethod
    def read(cls, folder: Path) -> "Static":
        """Read what `write` wrote."""
        config, vocabulary, arrays = folders.read(folder)
        vectors = Vectors(vocabulary["words"], arrays["vectors"], arrays["word_weights"])
        dense = Dense.restored(config, arrays)
        return cls(config["labels"], vectors, listed_marks(config["marks"]), dense, config["pair"])


def learn(
    passages: Iterable[str],
    unlabelled: Sequence[str],
    train: Split,
    dev: Split,
    metric: str,
    labels: list[str] | None,
    marks: Marks | None = None,
) -> Static:
    """Learn vectors from retrieved passages and the task's texts, then a linear model of the training examples.

    Args:
        passages: The retrieved text; may be empty.
        unlabelled: Texts of the task without labels.
        train: The examples to fit on.
        dev: More examples to choose the regularisation by.
        metric: What to choose by.
        labels: The classes; None for numbers.
        marks: The marks around spans; None: look for them. Pairs of texts have none.

    Raises:
        InputError: there are no training examples, or no word is frequent enough to learn from.
    """
    if not train.texts:
        raise InputError("the task has no training examples; a static model needs some")
    marks = () if train.pairs is not None else marks_of(train.texts, marks)
    own = (" ".join(parts(text, marks).whole) for text in chain(train.texts, train.pairs or (), unlabelled))
    vectors = word_vectors(chain(passages, own))
    if not vectors.words:
        raise InputError("no word occurs often enough in the passages and training texts to learn from")
    dense = Dense.fit(partial(represent, vectors, marks), train, dev, metric, labels, FAMILY)
    return Static(None if metric in REGRESSION else labels, vectors, marks, dense, train.pairs is not None)


def represent(vectors: Vectors, marks: Marks, texts: Sequence[str], pairs: Sequence[str] | None) -> NDArray[np.float64]:
    """Features of examples, shape [n, features].

    Of marked texts, those of `of_marked`; of pairs: the means of both texts, their product and their difference. Else
    the mean of the text.
    """
    if pairs is not None:
        return of_pairs(*(vectors.means([words_of(text) for text in side]) for side in (texts, pairs)))
    if not marks:
        return vectors.means([words_of(text) for text in texts])
    return of_marked([parts(text, marks) for text in texts], len(marks), vectors.means, len)
