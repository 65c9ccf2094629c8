"""Words as shallow models and selectors see them, and tf-idf features: words, characters, and marked spans.

A word is a run of letters and digits with their marks, of any length. In scripts without spaces between words (Han,
kana, Thai, Lao, Khmer, Burmese) each letter is a word. Runs of punctuation are words of models: scikit-learn's default
pattern drops them and one-letter words, but span marks and one-letter words carry the answer in some tasks.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any, Generic, TypeVar

import numpy as np
import regex
from scipy import sparse
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

from tlm.data.marks import Marks, listed_marks, places
from tlm.data.tasks.metrics import Floats, Texts
from tlm.data.text import is_plain, word_pattern

NEIGHBOURS = 3  # words beside a span that are features
LONGEST_BETWEEN = 8  # words between two spans that are one feature as a whole
FAR = 10  # words between two spans; as a number, a larger distance counts as this
MOST_FEATURES = 1_000_000
LETTERS = "letters"  # begins the names of the features of characters
EXCHANGED = 10  # words of each text of a pair, missing in the other, that may have been exchanged
TENTHS, ROUNDING = np.arange(11), 1e-9
OVERLAPS = [f"overlap of {text} ≥ {10 * tenth} %" for text in ("both", "first", "second") for tenth in TENTHS]

_PLAIN_WORD, _PLAIN_LETTERS = re.compile(r"\w+|[^\w\s]+"), re.compile(r"[^\W_]+")
_WORD = regex.compile(rf"{word_pattern('_')}|[^\p{{L}}\p{{N}}_\s]+", regex.V1)
_LETTERS = regex.compile(word_pattern(), regex.V1)


def words_of(text: str) -> list[str]:
    """The lower-cased words of a text, runs of punctuation among them."""
    lowered = text.lower()
    return (_PLAIN_WORD if is_plain(lowered) else _WORD).findall(lowered)  # type: ignore[no-any-return]


def letters_of(text: str) -> list[str]:
    """The lower-cased words of a text without punctuation and underscores."""
    lowered = text.lower()
    return (_PLAIN_LETTERS if is_plain(lowered) else _LETTERS).findall(lowered)  # type: ignore[no-any-return]


BREAK = " \n "  # between the texts of a pair; no text has a line break in it


def joined(texts: Texts, pairs: Texts | None) -> list[str]:
    """The texts; the two texts of a pair become one."""
    if pairs is None:
        return list(texts)
    return [f"{first}{BREAK}{second}" for first, second in zip(texts, pairs, strict=True)]


def features_of_pair(pair: str) -> list[str]:
    """Names of the features of a joined pair: words of both texts, words of only one, and their possible exchanges."""
    first_text, _, second_text = pair.partition(BREAK)
    first, second = dict.fromkeys(words_of(first_text)), dict.fromkeys(words_of(second_text))
    only_first = [word for word in first if word not in second]
    only_second = [word for word in second if word not in first]
    found = [f"both: {word}" for word in first if word in second]
    found += [f"first only: {word}" for word in only_first] + [f"second only: {word}" for word in only_second]
    return found + [f"{old} > {new}" for old in only_first[:EXCHANGED] for new in only_second[:EXCHANGED]]


class _Counts(CountVectorizer):  # type: ignore[misc]
    """Counts in the order that `transform` gives them: the length of a row is rounded by it."""

    def fit_transform(self, texts: Texts, y: None = None) -> Any:
        """Learn the terms, and count them, shape [n, terms]."""
        found = super().fit_transform(texts)
        found.sort_indices()
        return found


class Terms(TfidfVectorizer, _Counts):  # type: ignore[misc]
    """Tf-idf whose `fit_transform` gives the bytes of `fit` and `transform`, and reads the texts once."""


class Overlap(TfidfVectorizer):  # type: ignore[misc]
    """How much the two texts of a joined pair overlap: the share of letter trigrams that they have in common.

    Trigrams are weighted by idf. There is a share of the trigrams of both texts, one of the first text's, and one of
    the second text's. Each becomes features that are on from 0 %, 10 %, …, 100 %.
    """

    def __init__(self) -> None:
        super().__init__(analyzer="char_wb", ngram_range=(3, 3), binary=True, norm=None)

    def fit(self, pairs: Texts) -> "Overlap":
        """Learn the trigrams and their weights from all texts."""
        first, second = _sides(pairs)
        super().fit(first + second)
        return self

    def fit_transform(self, pairs: Texts) -> Any:
        """Learn the trigrams, and transform the same pairs."""
        return self.fit(pairs).transform(pairs)

    def transform(self, pairs: Texts) -> Any:
        """The features as a sparse matrix, shape [n, OVERLAPS]; all rows have the length 1."""
        first, second = (super(Overlap, self).transform(side) for side in _sides(pairs))
        shared = np.asarray(first.minimum(second).sum(axis=1))
        totals = [np.asarray(trigrams.sum(axis=1)) for trigrams in (first.maximum(second), first, second)]
        shares = [np.divide(shared, total, out=np.zeros_like(shared), where=total > 0) for total in totals]
        found = np.hstack([share >= TENTHS / 10 - ROUNDING for share in shares])
        return sparse.csr_matrix(found / np.linalg.norm(found, axis=1, keepdims=True))


def _sides(pairs: Texts) -> tuple[list[str], list[str]]:
    """The first and the second texts of joined pairs."""
    parted = [pair.partition(BREAK) for pair in pairs]
    return [first for first, _, _ in parted], [second for _, _, second in parted]


Part = TypeVar("Part", str, list[str])


@dataclass(frozen=True)
class Marked(Generic[Part]):
    """The parts of a text with marked spans, each as words or as it is written.

    Attributes:
        whole: The text, marks left out.
        spans: What is inside each kind of mark, in the order of the marks; empty where the text lacks one of them.
        order: The kinds of spans by their place in the text, such as "AB".
        between: What is between each two consecutive spans.
        left: What is before the first span.
        right: What is after the last span.
    """

    whole: Part
    spans: list[Part]
    order: str
    between: list[Part]
    left: Part
    right: Part

    @property
    def first_between(self) -> Part:
        """What is between the first two spans; empty where there are no two."""
        return self.between[0] if self.between else self.whole[:0]


def pieces(text: str, marks: Marks) -> Marked[str]:
    """Cut a text at its marks. A kind of span whose marks the text lacks is empty."""
    spans, order = [""] * len(marks), ""
    outside, end = list[str](), 0
    for begin, start, stop, closed, kind in places(text, marks):
        outside.append(_plain(text[end:begin], marks))
        spans[kind] = _plain(text[start:stop], marks)
        order += "ABCD"[kind]
        end = closed
    left, *between = [*outside, _plain(text[end:], marks)]
    right = between.pop() if between else ""
    return Marked(_plain(text, marks), spans, order, between, left, right)


def parts(text: str, marks: Marks) -> Marked[list[str]]:
    """The words of the `pieces` of a text."""
    cut = pieces(text, marks)
    spans, between = [*map(words_of, cut.spans)], [*map(words_of, cut.between)]
    return Marked(words_of(cut.whole), spans, cut.order, between, words_of(cut.left), words_of(cut.right))


def of_marked(
    cut: Sequence[Marked[Part]], vectors: Callable[[list[Part]], Floats], count: Callable[[Part], int]
) -> Floats:
    """Dense features of marked texts, shape [n, features].

    The vectors of the whole, of what is between the first two spans, and of each span; the second of these again where
    the spans stand in the order of their marks, else 0; whether they do; their distance in words, and whether it is
    at most one word.

    Args:
        cut: The texts, one or more.
        vectors: The vectors of parts, shape [parts, dimensions].
        count: The words of a part.
    """
    between = [one.first_between for one in cut]
    columns: list[list[Part]] = [[one.whole for one in cut], between]
    columns += map(list, zip(*(one.spans for one in cut), strict=True))
    found: list[Floats] = np.split(vectors([part for column in columns for part in column]), len(columns))
    forward = np.array([[one.order.find("A") < one.order.find("B")] for one in cut], np.float64)
    words = [count(part) for part in between]
    distance = np.array([[min(number, FAR) / FAR, number <= 1] for number in words], np.float64)
    return np.hstack([*found, found[1] * forward, forward, distance])


def features(marked: Marked[list[str]]) -> list[str]:
    """Names of the features of a text's spans, for a linear model: their words, their places, and the words between."""
    order, found = marked.order, []
    for name, span in zip("ABCD", marked.spans, strict=False):
        found += [f"{name}: {gram}" for gram in _grams(span, 2)]
        found += [f"{name} begins {span[0]}", f"{name} ends {span[-1]}"] if span else []
    found.append(f"ends {' '.join(span[-1] for span in marked.spans if span)}")
    for number, words in enumerate(marked.between):
        grams = _grams(words, 3)
        found += [f"between {number}: {gram}" for gram in grams]
        found += [f"{order} between {number}: {gram}" for gram in grams]
        found.append(f"{order} between {number} whole: {' '.join(words[:LONGEST_BETWEEN])}")
        found.append(f"{order} distance {number}: {_rounded(len(words))}")
        for side, some in (("after", words[:NEIGHBOURS]), ("before", words[: -NEIGHBOURS - 1 : -1])):
            found += [f"{order} {side} {number}.{place}: {word}" for place, word in enumerate(some)]
    for side, words in (("left", marked.left[: -NEIGHBOURS - 1 : -1]), ("right", marked.right[:NEIGHBOURS])):
        found += [f"{prefix}{side} {place}: {word}" for place, word in enumerate(words) for prefix in ("", f"{order} ")]
    return found


def _plain(text: str, marks: Marks) -> str:
    for mark in chain.from_iterable(marks):
        text = text.replace(mark, " ")
    return text


def _grams(words: list[str], longest: int) -> list[str]:
    spans = ((start, start + size) for size in range(1, longest + 1) for start in range(len(words) - size + 1))
    return [" ".join(words[start:end]) for start, end in spans]


def _rounded(distance: int) -> int:
    """Distances up to 3 as they are, then in steps of 4 up to 20."""
    return distance if distance < 4 else 4 * min(distance // 4, 5)


@dataclass(frozen=True)
class Shape:
    """The kinds of features in use.

    Attributes:
        words: Length of the longest word n-grams; 0 for none.
        chars: Length of the longest character n-grams; 0 for none.
        spans: Whether there are features of marked spans.
        min_count: Number of training texts that a feature must occur in.
        pairs: Whether there are features of pairs of texts.
    """

    words: int
    chars: int
    spans: bool
    min_count: int
    pairs: bool = False

    def describe(self) -> dict[str, Any]:
        """The shape as metrics.json and the report show it."""
        words = f"1-{self.words}" if self.words else "none"
        grams = {"word n-grams": words, "character n-grams": f"2-{self.chars}" if self.chars else "none"}
        pairs = {"pair features": "yes"} if self.pairs else {}
        return {**grams, "span features": "yes" if self.spans else "none", **pairs, "least count": self.min_count}


class TextFeatures:
    """Vectorizers fitted on training texts. Their vocabularies and weights are all that is kept of them.

    Attributes:
        shape: Which features there are.
        marks: The marks around spans.
        vectorizers: By the name of their part: words, chars, spans, pairs, overlap.
    """

    def __init__(self, shape: Shape, marks: Marks) -> None:
        self.shape, self.marks = shape, marks
        shared = {"sublinear_tf": True, "min_df": shape.min_count, "max_features": MOST_FEATURES, "dtype": np.float64}
        self.vectorizers: dict[str, Any] = {}
        if shape.spans:
            self.vectorizers["spans"] = Terms(analyzer=lambda text: features(parts(text, marks)), **shared)
        if shape.pairs:
            self.vectorizers["pairs"] = Terms(analyzer=features_of_pair, **shared)
            self.vectorizers["overlap"] = Overlap()
        if shape.words:
            own = {"tokenizer": words_of, "token_pattern": None, "lowercase": False, "ngram_range": (1, shape.words)}
            self.vectorizers["words"] = Terms(**own, **shared)
        if shape.chars:
            self.vectorizers["chars"] = Terms(analyzer="char_wb", ngram_range=(2, shape.chars), **shared)

    def fit_transform(self, texts: Texts) -> Any:
        """Learn vocabularies and weights, and transform these texts. Raises ValueError if none has such a feature."""
        found = [vectorizer.fit_transform(texts) for vectorizer in self.vectorizers.values()]
        return sparse.hstack(found, format="csr")

    def transform(self, texts: Texts) -> Any:
        """The features of texts as a sparse matrix, shape [n, features]."""
        return sparse.hstack([vectorizer.transform(texts) for vectorizer in self.vectorizers.values()], format="csr")

    def names(self) -> list[str]:
        """The names of the features, in the order of `transform`; those of letters begin with LETTERS."""
        found = list[str]()
        for kind, vectorizer in self.vectorizers.items():
            names = OVERLAPS if kind == "overlap" else vectorizer.get_feature_names_out()
            found += [f"{LETTERS}: {name}" if kind == "chars" else str(name) for name in names]
        return found

    def state(self) -> tuple[dict[str, Any], dict[str, list[str]], dict[str, Floats]]:
        """All that `restored` needs: JSON values, vocabularies and arrays by name."""
        vocabularies = {name: one.get_feature_names_out().tolist() for name, one in self.vectorizers.items()}
        arrays = {f"idf.{name}": one.idf_ for name, one in self.vectorizers.items()}
        return {"shape": asdict(self.shape), "marks": self.marks}, vocabularies, arrays

    @classmethod
    def restored(
        cls, values: dict[str, Any], vocabularies: dict[str, list[str]], arrays: dict[str, Floats]
    ) -> "TextFeatures":
        """Return the features of this `state`."""
        found = cls(Shape(**values["shape"]), listed_marks(values["marks"]))
        for name, vectorizer in found.vectorizers.items():
            vectorizer.vocabulary, vectorizer.idf_ = vocabularies[name], arrays[f"idf.{name}"]
        return found
