"""Static word vectors: the counts, the PPMI, the SVD and the means are those of plain loops over the texts."""

import math
import subprocess
import sys
from collections import Counter

import numpy as np
import pyarrow.compute  # noqa: F401 - see the last test
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tlm.shallow import static
from tlm.shallow.static import How, Vectors, cooccurrences, ppmi, word_vectors

WINDOW, LEAST = 5, 3
A, SMOOTHING = 1e-3, 0.75
MOVED = 0.1  # between cosines

corpora = st.lists(st.lists(st.integers(-1, 4), max_size=9), max_size=6)


def random_texts(seed: int, count: int = 80, size: int = 30) -> list[str]:
    """Texts of up to 14 words, of which some are frequent and some are rare."""
    random = np.random.default_rng(seed)
    lengths = random.integers(0, 15, count)
    return [" ".join(f"w{word}" for word in random.zipf(1.4, length).clip(1, size)) for length in lengths]


def counted(texts: list[list[int]], size: int) -> np.ndarray:
    """Pairs of words within five of each other in a text; the nearest count 1, then 0.8, 0.6, 0.4 and 0.2."""
    counts = np.zeros((size, size))
    for text in texts:
        for place, word in enumerate(text):
            for other, neighbour in enumerate(text):
                distance = abs(place - other)
                if 1 <= distance <= WINDOW and word >= 0 and neighbour >= 0:
                    counts[word, neighbour] += (WINDOW + 1 - distance) / WINDOW
    return counts


def counted_by_side(texts: list[list[int]], size: int, window: int) -> np.ndarray:
    """The same by the side of the neighbour: those to the right, then those to the left."""
    counts = np.zeros((size, 2 * size))
    for text in texts:
        for place, word in enumerate(text):
            for other, neighbour in enumerate(text):
                distance = abs(place - other)
                if 1 <= distance <= window and word >= 0 and neighbour >= 0:
                    counts[word, neighbour + size * (other < place)] += (window + 1 - distance) / window
    return counts


def informed(counts: np.ndarray) -> np.ndarray:
    found = np.zeros_like(counts)
    total, of_word, of_neighbour = counts.sum(), counts.sum(axis=1), counts.sum(axis=0)
    smoothed = sum(number**SMOOTHING for number in of_neighbour)
    for word, neighbour in zip(*np.nonzero(counts), strict=True):
        expected = (of_word[word] / total) * (of_neighbour[neighbour] ** SMOOTHING / smoothed)
        found[word, neighbour] = max(0.0, math.log(counts[word, neighbour] / total / expected))
    return found


def flat(texts: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([word for text in texts for word in text], np.int32), np.array([*map(len, texts)], np.int64)


def of_words(found: Vectors, texts: list[str]) -> np.ndarray:
    """The dense PPMI matrix of the words that have vectors."""
    number = {word: place for place, word in enumerate(found.words)}
    return informed(counted([[number.get(word, -1) for word in text.split()] for text in texts], len(number)))


@given(corpora)
def test_neighbours_are_counted_within_five_words_and_within_a_text(texts: list[list[int]]) -> None:
    found = cooccurrences(*flat(texts), 5).toarray()
    assert np.allclose(found, counted(texts, 5), atol=1e-12)


@given(corpora, st.integers(1, 4))
def test_neighbours_are_counted_by_their_side(texts: list[list[int]], window: int) -> None:
    found = cooccurrences(*flat(texts), 5, How(window, sided=True))
    expected = counted_by_side(texts, 5, window)
    assert np.allclose(found.toarray(), expected, atol=1e-12)
    assert np.allclose(ppmi(found).toarray(), informed(expected), atol=1e-9)


def test_a_word_that_is_not_counted_still_takes_its_place() -> None:
    assert cooccurrences(*flat([[0, -1, -1, 1]]), 2).toarray().tolist() == [[0, 0.6], [0.6, 0]]
    assert cooccurrences(*flat([[0], [1]]), 2).nnz == 0
    assert cooccurrences(*flat([[0, -1, -1, -1, -1, -1, 1]]), 2).nnz == 0


@given(corpora)
def test_ppmi_is_that_of_plain_loops(texts: list[list[int]]) -> None:
    found = ppmi(cooccurrences(*flat(texts), 5))
    assert np.allclose(found.toarray(), informed(counted(texts, 5)), atol=1e-9)
    assert (found.data > 0).all()


@pytest.mark.parametrize("seed", range(3))
def test_words_are_the_frequent_ones_and_weigh_more_if_rare(seed: int) -> None:
    texts = random_texts(seed)
    counts = Counter(word for text in texts for word in text.split())
    found = word_vectors(texts, 8)
    assert set(found.words) == {word for word, count in counts.items() if count >= LEAST}
    assert [counts[word] for word in found.words] == sorted((counts[word] for word in found.words), reverse=True)
    share = [counts[word] / counts.total() for word in found.words]
    assert np.allclose(found.weights, [A / (A + part) for part in share], rtol=1e-6)
    assert (found.vectors.dtype, found.weights.dtype) == (np.float32, np.float32)


def test_only_so_many_words_have_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(static, "MOST_WORDS", 3)
    assert word_vectors(["a b c d e"] * 3 + ["e d"] * 2 + ["e"]).words == ["e", "d", "a"]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("exact", "few"), [(False, 0), (True, 0), (True, 500)])
def test_vectors_are_the_left_singular_vectors_of_the_ppmi(
    exact: bool, few: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Times the square roots of the values: their products are those of the best approximation of that rank."""
    monkeypatch.setattr(static, "FEW", few)
    texts = random_texts(seed)
    found = word_vectors(texts, 6, How(exact=exact))
    left, values, _ = np.linalg.svd(of_words(found, texts))
    assert values[5] - values[6] > 1e-3  # else there is no single best one
    best = left[:, :6] * values[:6] @ left[:, :6].T
    mine = found.vectors.astype(np.float64)
    assert np.abs(mine @ mine.T - best).max() < 1e-3
    assert np.allclose(np.linalg.norm(mine, axis=0) ** 2, values[:6], atol=1e-3)  # the largest first
    assert (mine[np.abs(mine).argmax(axis=0), np.arange(6)] > 0).all()  # signs are settled


def test_no_more_dimensions_than_words() -> None:
    texts = random_texts(0)
    found = word_vectors(texts, 1000)
    assert found.vectors.shape == (len(found.words), len(found.words))
    assert word_vectors(texts, 3).vectors.shape == (len(found.words), 3)


@pytest.mark.parametrize(
    "texts",
    [
        ["a b", "b c", "c d", "d a"] * 3,
        [f"hub w{number}" for number in range(12)] * 3,
        [f"k{cluster} w{cluster}{number}" for cluster in range(20) for number in range(10)] * 3,
        [f"hub w{number}" for number in range(600)] * 3,
    ],
    ids=["a ring", "a star", "clusters", "a large star"],
)
@pytest.mark.parametrize("exact", [False, True])
def test_vectors_of_words_in_the_same_company_are_the_same_each_time(exact: bool, texts: list[str]) -> None:
    """Their PPMI has fewer dimensions than the vectors, or equal singular values."""

    found = {word_vectors(texts, how=How(exact=exact)).vectors.tobytes() for _ in range(6)}
    assert len(found) == 1


def test_a_few_other_texts_hardly_change_exact_vectors() -> None:
    """The words of the changed corpus have another order, and the approximate SVD gives them other vectors."""
    texts = random_texts(0, 4000, 900)
    assert moved(texts, texts[5:], exact=True) < MOVED < moved(texts, texts[5:], exact=False)


def moved(texts: list[str], others: list[str], exact: bool) -> float:
    """How much the cosines between words differ, the 99th percentile."""
    found = []
    for some in (texts, others):
        learned = word_vectors(some, 32, How(3, sided=True, exact=exact))
        place = {word: number for number, word in enumerate(learned.words)}
        rows = learned.vectors[[place[f"w{number}"] for number in range(1, 100)]].astype(np.float64)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        found.append(rows @ rows.T)
    return float(np.quantile(np.abs(found[0] - found[1]), 0.99))


def test_the_portions_in_which_texts_are_read_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = random_texts(1)
    whole = word_vectors(texts, 8)
    for portion in (1, 7, len(texts)):
        monkeypatch.setattr(static, "AT_ONCE", portion)
        found = word_vectors(iter(texts), 8)
        assert found.words == whole.words
        assert found.vectors.tobytes() == whole.vectors.tobytes()


@pytest.mark.parametrize(
    ("texts", "words", "shape"),
    [
        ([], [], (0, 1)),
        (["", " \n"], [], (0, 1)),
        (["one"], [], (0, 1)),
        (["one two"], [], (0, 1)),
        (["one two three", "four"], [], (0, 1)),  # no word is frequent enough
        (["one", "one", "one"], ["one"], (1, 1)),
        (["one one one"], ["one"], (1, 1)),
        (["one two"] * 3, ["one", "two"], (2, 2)),
        (["one", "two"] * 3, ["one", "two"], (2, 1)),  # never together
    ],
)
def test_the_smallest_corpora_have_vectors(texts: list[str], words: list[str], shape: tuple[int, int]) -> None:
    found = word_vectors(texts)
    assert (found.words, found.vectors.shape, found.weights.shape) == (words, shape, (len(words),))
    assert np.isfinite(found.vectors).all()
    means = found.means([["one", "absent"], [], ["absent"]])
    assert means.shape == (3, shape[1])
    assert np.isfinite(means).all()
    assert (means[1:] == 0).all()


@settings(max_examples=50)
@given(st.lists(st.lists(st.sampled_from(["a", "b", "c", "d", "absent", "é"]), max_size=8), min_size=1, max_size=5))
def test_the_mean_of_a_text_is_weighted_and_of_length_one(texts: list[list[str]]) -> None:
    random = np.random.default_rng(0)
    words = ["a", "é", "b", "c", "d"]
    vectors = Vectors(words, random.normal(size=(5, 3)).astype(np.float32), random.random(5).astype(np.float32))
    for text, found in zip(texts, vectors.means(texts), strict=True):
        total = np.zeros(3)
        for word in text:
            if word in words:
                total += np.float64(vectors.weights[words.index(word)]) * vectors.vectors[words.index(word)]
        length = np.linalg.norm(total)
        assert np.allclose(found, total / length if length > 1e-6 else 0, atol=1e-4)


def test_no_texts_have_no_means() -> None:
    assert word_vectors(["one two"] * 3).means([]).shape == (0, 2)


def test_the_module_needs_no_other_import() -> None:
    program = """
import numpy as np
from tlm.shallow.static import Vectors
print(Vectors(["a"], np.ones((1, 2), np.float32), np.ones(1, np.float32)).means([["a"]]).shape)
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert found.stdout == "(1, 2)\n", found.stderr
