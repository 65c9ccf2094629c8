"""tf-idf features of texts: words, characters, and what stands in and around marked spans."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer

from tlm.data.marks import Marks, listed_marks
from tlm.shallow.spans import features, parts
from tlm.shallow.words import words_of

MOST_FEATURES = 1_000_000


@dataclass(frozen=True)
class Shape:
    """Which features there are.

    Attributes:
        words: Length of the longest word n-grams; 0 for none.
        chars: Length of the longest character n-grams; 0 for none.
        spans: Whether there are features of marked spans.
        min_count: Number of training texts that a feature must occur in.
    """

    words: int
    chars: int
    spans: bool
    min_count: int

    def describe(self) -> dict[str, Any]:
        """The shape as metrics.json and the report show it."""
        return {
            "word n-grams": f"1-{self.words}" if self.words else "none",
            "character n-grams": f"2-{self.chars}" if self.chars else "none",
            "span features": "yes" if self.spans else "none",
            "least count": self.min_count,
        }


class TextFeatures:
    """Vectorizers fitted on training texts. Their vocabularies and weights are all that is kept of them.

    Attributes:
        shape: Which features there are.
        marks: The marks around spans.
        vectorizers: By the name of their part: words, chars, spans.
    """

    def __init__(self, shape: Shape, marks: Marks) -> None:
        self.shape, self.marks = shape, marks
        shared = {"sublinear_tf": True, "min_df": shape.min_count, "max_features": MOST_FEATURES, "dtype": np.float64}
        self.vectorizers: dict[str, Any] = {}
        if shape.spans:
            self.vectorizers["spans"] = TfidfVectorizer(analyzer=self._of_spans, **shared)
        if shape.words:
            self.vectorizers["words"] = TfidfVectorizer(
                ngram_range=(1, shape.words), tokenizer=words_of, token_pattern=None, lowercase=False, **shared
            )
        if shape.chars:
            self.vectorizers["chars"] = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, shape.chars), **shared)

    def fit(self, texts: Sequence[str]) -> "TextFeatures":
        """Learn vocabularies and weights. Raises ValueError if no text has such a feature."""
        for vectorizer in self.vectorizers.values():
            vectorizer.fit(texts)
        return self

    def transform(self, texts: Sequence[str]) -> Any:
        """The features of texts as a sparse matrix, shape [n, features]."""
        found = [vectorizer.transform(texts) for vectorizer in self.vectorizers.values()]
        return sparse.hstack(found, format="csr")

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[np.float64]]]:
        """All that `restored` needs: JSON values, and arrays by name."""
        vocabularies = {
            name: sorted(vectorizer.vocabulary_, key=vectorizer.vocabulary_.__getitem__)
            for name, vectorizer in self.vectorizers.items()
        }
        arrays = {f"idf.{name}": vectorizer.idf_ for name, vectorizer in self.vectorizers.items()}
        return {"shape": asdict(self.shape), "marks": self.marks, "vocabularies": vocabularies}, arrays

    @classmethod
    def restored(cls, values: dict[str, Any], arrays: dict[str, NDArray[np.float64]]) -> "TextFeatures":
        """The features whose `state` this is."""
        found = cls(Shape(**values["shape"]), listed_marks(values["marks"]))
        for name, vectorizer in found.vectorizers.items():
            vectorizer.vocabulary = values["vocabularies"][name]
            vectorizer.idf_ = arrays[f"idf.{name}"]
        return found

    def _of_spans(self, text: str) -> list[str]:
        return features(parts(text, self.marks))
