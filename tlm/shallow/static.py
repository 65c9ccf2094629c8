"""Static word vectors that are learned from text, and a linear model of them.

The vectors are the SVD of the positive pointwise mutual information of neighbours.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import LinearOperator, eigsh
from sklearn.utils.extmath import randomized_svd

from tlm.data.marks import Marks, marks_of
from tlm.data.tasks.metrics import Floats, Texts
from tlm.data.text import with_pairs
from tlm.errors import InputError, NothingLeft
from tlm.progress import track
from tlm.shallow import folder as folders
from tlm.shallow.features import Marked, of_marked, parts, words_of
from tlm.shallow.linear import Dense, Given, OnDense, of_pairs

DIMENSIONS = 128
LEAST_COUNT = 3
MOST_WORDS = 50_000
SMOOTHING = 0.75  # exponent of the counts of the neighbours (Levy et al., section 3.2)
SIF = 1e-3  # a in the weight a / (a + p) of a word of probability p (Arora et al., ICLR 2017)
AT_ONCE = 20_000  # texts
FEW = 500  # words, of which all singular vectors are computed


@dataclass(frozen=True)
class How:
    """How vectors are learned.

    Attributes:
        window: Words to each side that are neighbours of a word; one at distance d counts (window + 1 - d) / window.
        sided: Whether a word to the left and the same word to the right are two different neighbours.
        exact: Whether the SVD is exact. Of an approximate one, the vectors of smaller values depend on the order of the
            words, so a few other texts change them.
    """

    window: int = 5
    sided: bool = False
    exact: bool = False


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

    def means(self, texts: Sequence[Sequence[str]]) -> Floats:
        """The weighted mean of each text's words, of length 1, shape [n, dimensions]; 0 where no word is known.

        In scripts without spaces, pairs of letters are words, too.
        """
        texts = [with_pairs(words) for words in texts]
        numbers = np.fromiter((self.numbers.get(word, -1) for word in chain.from_iterable(texts)), np.int64)
        rows = np.repeat(np.arange(len(texts)), [len(words) for words in texts])
        known = numbers >= 0
        shape = (len(texts), len(self.words))
        counts = sparse.csr_matrix((self.weights[numbers[known]], (rows[known], numbers[known])), shape=shape)
        sums = np.asarray(counts @ self.vectors, np.float64)
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        return sums / np.where(lengths > 0, lengths, 1)  # type: ignore[no-any-return]

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The rows of the words."""
        return {word: number for number, word in enumerate(self.words)}


def exact_svd(matrix: Any, rank: int) -> tuple[Floats, Floats]:
    """The left singular vectors of a sparse matrix and their values, the largest first.

    The largest entry of each vector is positive.
    """
    size, transposed = matrix.shape[0], matrix.T.tocsr()
    if size <= FEW:
        left, values, _ = np.linalg.svd(matrix.toarray(), full_matrices=False)
        left, values = left[:, :rank], values[:rank]
    else:
        product = LinearOperator((size, size), lambda vector: matrix @ (transposed @ vector), dtype=np.float64)
        squares, left = eigsh(product, rank, v0=np.ones(size), rng=0)  # by Lanczos, the smallest first
        left, values = left[:, ::-1], np.sqrt(squares[::-1].clip(min=0))
    return left * np.sign(left[np.abs(left).argmax(axis=0), np.arange(rank)]), values


def word_vectors(texts: Iterable[str], dimensions: int = DIMENSIONS, how: How = How()) -> Vectors:
    """Learn vectors from texts.

    Memory grows with the pairs of words that occur together, and with the words of all texts (4 bytes each).

    Args:
        texts: The texts to learn from.
        dimensions: Length of a vector; fewer if there are fewer words.
        how: How they are learned.
    """
    ids, lengths, words = _encoded(texts)
    counts = np.bincount(ids, minlength=len(words))
    order = np.argsort(-counts, kind="stable")
    kept = order[counts[order] >= LEAST_COUNT][:MOST_WORDS]
    number = np.full(len(words), -1, np.int32)
    number[kept] = np.arange(len(kept), dtype=np.int32)
    vectors = neighbour_vectors(number[ids], lengths, len(kept), dimensions, how)
    weights = SIF / (SIF + counts[kept] / max(1, len(ids)))
    return Vectors([words[one] for one in kept], vectors.astype(np.float32), weights.astype(np.float32))


def neighbour_vectors(
    ids: NDArray[np.int32], lengths: NDArray[np.int64], size: int, dimensions: int, how: How = How()
) -> Floats:
    """PPMI-SVD vectors of words: left singular vectors, scaled by the square roots of their values.

    Their shape is [size, dimensions], fewer if there are fewer words.

    `ids`, `lengths`, `size` and `how` are those of `cooccurrences`.
    """
    matrix = ppmi(cooccurrences(ids, lengths, size, how))
    if not matrix.nnz:
        return np.zeros((size, 1))
    rank = min(dimensions, size)
    left, values = exact_svd(matrix, rank) if how.exact else randomized_svd(matrix, rank, random_state=0)[:2]
    return left * np.sqrt(values)  # type: ignore[no-any-return]


def cooccurrences(ids: NDArray[np.int32], lengths: NDArray[np.int64], size: int, how: How = How()) -> Any:
    """Count how often words stand near each other in a text, the nearer the heavier.

    Args:
        ids: The words of all texts in order, as numbers below `size`; -1 for a word that is not counted.
        lengths: Number of words of each text.
        size: How many words there are.
        how: Which words are neighbours.

    Returns:
        A sparse matrix, float64: symmetric, shape [size, size]; or of shape [size, 2 * size], the right neighbours
        first.
    """
    text, window = np.repeat(np.arange(len(lengths)), lengths), how.window
    total = sparse.csr_matrix((size, size))
    for distance in range(1, window + 1):
        first, second = ids[:-distance], ids[distance:]
        counted = (first >= 0) & (second >= 0) & (text[:-distance] == text[distance:])
        weights = np.full(int(counted.sum()), (window + 1 - distance) / window)
        total = total + sparse.coo_matrix((weights, (first[counted], second[counted])), shape=(size, size)).tocsr()
    return sparse.hstack([total, total.T], format="csr") if how.sided else total + total.T


def ppmi(counts: Any) -> Any:
    """Positive pointwise mutual information, max(0, log p(w, c) / (p(w) p'(c))), with smoothed p' of the neighbours."""
    counts = counts.tocoo()
    of_word = np.asarray(counts.sum(axis=1)).ravel()
    of_neighbour = np.asarray(counts.sum(axis=0)).ravel() ** SMOOTHING
    of_neighbour /= max(of_neighbour.sum(), 1e-300)
    values = np.log(counts.data / (of_word[counts.row] * of_neighbour[counts.col]))
    positive = values > 0
    return sparse.csr_matrix((values[positive], (counts.row[positive], counts.col[positive])), shape=counts.shape)


def _encoded(texts: Iterable[str]) -> tuple[NDArray[np.int32], NDArray[np.int64], list[str]]:
    """The words of all texts as numbers, in order; the number of words of each text; and the words by number."""
    import pyarrow as pa  # here, because predicting does without it

    lengths, portions, source = [np.zeros(0, np.int64)], [pa.array([], pa.string()).dictionary_encode()], iter(texts)
    while portion := [with_pairs(words_of(text)) for text in islice(source, AT_ONCE)]:
        lengths.append(np.array([len(words) for words in portion]))
        portions.append(pa.array(chain.from_iterable(portion), pa.string()).dictionary_encode())
    whole = pa.chunked_array(portions).unify_dictionaries().combine_chunks()
    return whole.indices.to_numpy(), np.concatenate(lengths), whole.dictionary.to_pylist()


FAMILY = "static"
# Of marked texts: few words, by their side, show what a word does; many show its topic (Levy and Goldberg, ACL 2014).
UNMARKED, MARKED = How(exact=True), How(3, sided=True, exact=True)
EDGES = (slice(0, 1), slice(1, 2), slice(-1, None), slice(-2, -1))  # the words between two spans that count by place


@dataclass(frozen=True)
class StaticModel(OnDense):
    """A fitted model.

    Attributes:
        vectors: The word vectors.
    """

    vectors: Vectors

    @property
    def chosen(self) -> dict[str, Any]:
        """The settings that were chosen, for the report."""
        return {"dimensions": self.vectors.vectors.shape[1], "words": len(self.vectors.words), **self.dense.chosen}

    def represented(self, texts: Texts, pairs: Texts | None) -> Floats:
        """The features of texts, or of pairs; shape [n, features]."""
        return represent(self.vectors, self.marks, texts, pairs)

    def write(self, folder: Path) -> None:
        """Write the model into a new folder."""
        config, arrays = self.state(FAMILY)
        arrays |= {"vectors": self.vectors.vectors, "word_weights": self.vectors.weights}
        folders.write(folder, config | {"edges": True}, {"words": self.vectors.words}, arrays)

    @classmethod
    def read(cls, folder: Path) -> "StaticModel":
        """Read what `write` wrote."""
        config, vocabulary, arrays = folders.read(folder)
        if not config.get("edges"):  # the features lack single words and the product of spans
            raise InputError(f"{folder} holds a static model of an older version; make it again with `tlm static`")
        vectors = Vectors(vocabulary["words"], arrays["vectors"], arrays["word_weights"])
        return cls(*cls.restored(config, arrays), vectors)


def learn(passages: Iterable[str], unlabelled: Texts, given: Given) -> StaticModel:
    """Learn vectors from retrieved passages and the task's texts, then a linear model of the training examples.

    Args:
        passages: The retrieved text; may be empty.
        unlabelled: Texts of the task without labels.
        given: What to fit to. Pairs of texts have no marks.

    Raises:
        NothingLeft: no word is frequent enough to learn from.
    """
    train = given.train
    marks = () if train.pairs is not None else marks_of(train.texts, given.marks)
    vectors = vectors_of(passages, chain(train.texts, train.pairs or (), unlabelled), marks)
    if not vectors.words:
        raise NothingLeft("no word occurs often enough in the passages and training texts to learn from")
    dense = Dense.fit(partial(represent, vectors, marks), given, FAMILY)
    return StaticModel(given.labels, marks, dense, train.pairs is not None, vectors)


def vectors_of(passages: Iterable[str], texts: Iterable[str], marks: Marks) -> Vectors:
    """Learn vectors from passages and from texts with such marks, which are left out."""
    own = (" ".join(parts(text, marks).whole) for text in texts)
    read = track(chain(passages, own), "learning word vectors", unit="texts")
    return word_vectors(read, how=MARKED if marks else UNMARKED)


def represent(vectors: Vectors, marks: Marks, texts: Texts, pairs: Texts | None) -> Floats:
    """Features of examples, shape [n, features].

    Of marked texts, those of `of_marked` and `_edges`; of pairs: the means of both texts, their product and their
    difference. Else the mean of the text.
    """
    if pairs is not None:
        return of_pairs(*(vectors.means([words_of(text) for text in side]) for side in (texts, pairs)))
    if not marks:
        return vectors.means([words_of(text) for text in texts])
    cut = [parts(text, marks) for text in texts]
    return np.hstack([of_marked(cut, vectors.means, len), *_edges(vectors, cut)])


def _edges(vectors: Vectors, cut: Sequence[Marked[list[str]]]) -> list[Floats]:
    """The first and last two words between the first two spans, the last word of each span, the product of these spans.

    In English, the last word of a noun phrase is mostly its head.
    """
    spans = [*zip(*(one.spans for one in cut), strict=True)]
    single = [[one.first_between[place] for one in cut] for place in EDGES]
    single += [[words[-1:] for words in span] for span in spans]
    product = [vectors.means(spans[0]) * vectors.means(spans[1])] if len(spans) > 1 else []
    return [*(vectors.means(words) for words in single), *product]
