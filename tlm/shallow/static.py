"""A linear model of static word vectors that are learned from retrieved text."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tlm.data.marks import Marks, listed_marks, marks_of
from tlm.data.tasks.metrics import REGRESSION, Split
from tlm.errors import InputError
from tlm.shallow import folder as folders
from tlm.shallow.features import Marked, of_marked, parts, words_of
from tlm.shallow.linear import Dense, OnDense, of_pairs
from tlm.shallow.vectors import How, Vectors, word_vectors

FAMILY = "static"
# Of marked texts: few words, by their side, show what a word does; many show its topic (Levy and Goldberg, ACL 2014).
UNMARKED, MARKED = How(exact=True), How(3, sided=True, exact=True)
EDGES = (slice(0, 1), slice(1, 2), slice(-1, None), slice(-2, -1))  # the words between two spans that count by place


@dataclass(frozen=True)
class StaticModel(OnDense):
    """A fitted model.

    Attributes:
        labels: The classes in the order of the probabilities; None for numbers.
        vectors: The word vectors.
        marks: The marks around spans.
        dense: The model of the features.
        pair: Whether the examples are pairs of texts.
        edges: Whether the features of marked texts include single words and a product, which older models lack.
    """

    labels: list[str] | None
    vectors: Vectors
    marks: Marks
    dense: Dense
    pair: bool
    edges: bool = True

    @property
    def chosen(self) -> dict[str, Any]:
        """The settings that were chosen, for the report."""
        return {"dimensions": self.vectors.vectors.shape[1], "words": len(self.vectors.words), **self.dense.chosen}

    def represented(self, texts: Sequence[str], pairs: Sequence[str] | None) -> NDArray[np.float64]:
        """The features of texts, or of pairs; shape [n, features]."""
        return represent(self.vectors, self.marks, texts, pairs, self.edges)

    def write(self, folder: Path) -> None:
        """Write the model into a new folder."""
        values, arrays = self.dense.state()
        config = {folders.FAMILY: FAMILY, "labels": self.labels, **values, "marks": self.marks, "pair": self.pair}
        config["edges"] = self.edges
        arrays |= {"vectors": self.vectors.vectors, "word_weights": self.vectors.weights}
        folders.write(folder, config, {"words": self.vectors.words}, arrays)

    @classmethod
    def read(cls, folder: Path) -> "StaticModel":
        """Read what `write` wrote."""
        config, vocabulary, arrays = folders.read(folder)
        vectors = Vectors(vocabulary["words"], arrays["vectors"], arrays["word_weights"])
        dense, marks = Dense.restored(config, arrays), listed_marks(config["marks"])
        return cls(config["labels"], vectors, marks, dense, config["pair"], config.get("edges", False))


def learn(
    passages: Iterable[str],
    unlabelled: Sequence[str],
    train: Split,
    dev: Split,
    metric: str,
    labels: list[str] | None,
    marks: Marks | None = None,
) -> StaticModel:
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
    vectors = vectors_of(passages, chain(train.texts, train.pairs or (), unlabelled), marks)
    if not vectors.words:
        raise InputError("no word occurs often enough in the passages and training texts to learn from")
    dense = Dense.fit(partial(represent, vectors, marks), train, dev, metric, labels, FAMILY)
    return StaticModel(None if metric in REGRESSION else labels, vectors, marks, dense, train.pairs is not None)


def vectors_of(passages: Iterable[str], texts: Iterable[str], marks: Marks) -> Vectors:
    """Learn vectors from passages and from texts with such marks, which are left out."""
    own = (" ".join(parts(text, marks).whole) for text in texts)
    return word_vectors(chain(passages, own), how=MARKED if marks else UNMARKED)


def represent(
    vectors: Vectors, marks: Marks, texts: Sequence[str], pairs: Sequence[str] | None, edges: bool = True
) -> NDArray[np.float64]:
    """Features of examples, shape [n, features].

    Of marked texts, those of `of_marked` and `_edges`; of pairs: the means of both texts, their product and their
    difference. Else the mean of the text.
    """
    if pairs is not None:
        return of_pairs(*(vectors.means([words_of(text) for text in side]) for side in (texts, pairs)))
    if not marks:
        return vectors.means([words_of(text) for text in texts])
    cut = [parts(text, marks) for text in texts]
    found = of_marked(cut, len(marks), vectors.means, len)
    return np.hstack([found, *_edges(vectors, cut)]) if edges else found


def _edges(vectors: Vectors, cut: Sequence[Marked[list[str]]]) -> list[NDArray[np.float64]]:
    """The first and last two words between the first two spans, the last word of each span, the product of these spans.

    In English, the last word of a noun phrase is mostly its head.
    """
    spans = [*zip(*(one.spans for one in cut), strict=True)]
    single = [[one.first_between[place] for one in cut] for place in EDGES]
    single += [[words[-1:] for words in span] for span in spans]
    product = [vectors.means(spans[0]) * vectors.means(spans[1])] if len(spans) > 1 else []
    return [*(vectors.means(words) for words in single), *product]
