"""tf-idf of words, characters and marked spans with a linear model; features and regularisation are chosen."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tlm.data.marks import Marks, marks_of
from tlm.data.tasks.metrics import Floats, Texts
from tlm.errors import InputError
from tlm.shallow import folder as folders
from tlm.shallow.features import Shape, TextFeatures, joined
from tlm.shallow.linear import STRENGTHS, Given, Linear, Search

FAMILY = "tf-idf"
LARGE = 5_000_000  # characters of training text above which only the cheapest features are tried
_TRIED = ((2, 0, 1), (2, 0, 2), (3, 0, 2), (2, 5, 1), (3, 5, 2))
SHAPES = tuple(Shape(words, chars, False, least) for words, chars, least in _TRIED)
OF_SPANS = (Shape(0, 0, True, 1), Shape(0, 0, True, 2), Shape(2, 0, True, 2), Shape(2, 0, False, 2))
MANY = 30  # classes above which less is tried, because each of them takes a fit
MOST_WORK = 170_000_000  # characters that the fits of a shape read, times classes; with more, one shape is tried
MUCH_WORK = 4 * MOST_WORK  # with more than this, with one strength
OF_MANY = (Shape(2, 0, False, 1), Shape(2, 5, False, 2))  # the second one with the regularisation of the first
SPANS_OF_MANY = (Shape(0, 0, True, 1), Shape(2, 0, True, 2))
CHEAPEST = Shape(2, 0, False, 2)
_COMPARED = tuple(Shape(words, 0, False, least, pairs=True) for words, least in ((2, 2), (0, 2), (0, 1)))
OF_PAIRS = (CHEAPEST, *_COMPARED, Shape(2, 5, False, 1))  # the first and last for pairs such as title and body


@dataclass(frozen=True)
class Tfidf:
    """A fitted model.

    Attributes:
        labels: The classes in the order of the probabilities; None for numbers.
        features: The features of a text.
        linear: The model of these features.
        chosen: The settings that were chosen, for the report.
        tried: How many settings were tried.
    """

    labels: list[str] | None
    features: TextFeatures
    linear: Linear
    chosen: dict[str, Any]
    tried: int = 0

    def predict(self, texts: Texts, pairs: Texts | None = None) -> Floats:
        """Probabilities, shape [n, classes]; or numbers, shape [n, 1]."""
        return self.linear.predict(self.features.transform(joined(texts, pairs)))

    def write(self, folder: Path) -> None:
        """Write the model into a new folder."""
        (values, vocabularies, arrays), (linear, weights) = self.features.state(), self.linear.state()
        config = {folders.FAMILY: FAMILY, "labels": self.labels, **linear, "chosen": self.chosen, **values}
        folders.write(folder, config, vocabularies, {**arrays, **weights})

    @classmethod
    def read(cls, folder: Path) -> "Tfidf":
        """Read what `write` wrote. Weights are kept by feature, because else each prediction would copy them."""
        config, vocabularies, arrays = folders.read(folder)
        arrays["weights"] = np.asfortranarray(arrays["weights"])
        features = TextFeatures.restored(config, vocabularies, arrays)
        return cls(config["labels"], features, Linear.restored(config, arrays), config["chosen"])


def tune(given: Given) -> Tfidf:
    """Choose the features, then the regularisation, and fit the choice on the training examples.

    Raises:
        InputError: no training text has a word in it.
    """
    train, dev = given.train, given.dev
    texts = joined(train.texts, train.pairs)
    marks = marks_of(texts, given.marks)
    both = np.array([*texts, *joined(dev.texts, dev.pairs)], dtype=object)
    search = Search(given)
    many = search.classes > MANY
    shapes, strengths = _of_many(texts, marks, search) if many else (_of_few(texts, marks, train.pairs), STRENGTHS[:2])
    matrices: dict[Shape, list[tuple[Any, Any]]] = {}
    for shape in shapes:
        try:
            matrices[shape] = [
                _matrices(shape, marks, search.shown(both[seen]), search.shown(both[unseen]))
                for seen, unseen in search.folds
            ]
        except ValueError:  # scikit-learn's "empty vocabulary" and "no terms remain"
            continue
        if many and search.best is not None:  # with what was best for the first shape
            search.consider(shape, matrices[shape], [search.best.strength], [search.best.balanced])
        else:
            search.consider(shape, matrices[shape], strengths, (True, False) if many else (False, True))
    if search.best is None:
        raise InputError("no training text has a word in it; the baseline cannot be fitted")
    shape = search.best.features
    if not many:
        search.consider(shape, matrices[shape], STRENGTHS[2:])
    features = TextFeatures(shape, marks)
    linear, chosen = search.fitted(features.fit_transform(search.shown(texts)), shape.describe(), "baseline")
    return Tfidf(given.labels, features, linear, chosen, search.tried)


def _of_few(texts: Texts, marks: Marks, pairs: Texts | None) -> tuple[Shape, ...]:
    """The shapes to try with at most `MANY` classes, or for numbers."""
    if marks:
        return OF_SPANS
    large = sum(map(len, texts)) > LARGE
    if pairs is None:
        return (CHEAPEST,) if large else SHAPES
    return OF_PAIRS[:2] if large else OF_PAIRS


def _of_many(texts: Texts, marks: Marks, search: Search) -> tuple[tuple[Shape, ...], tuple[float, ...]]:
    """The shapes to try with more than `MANY` classes, and the strengths to try with the first of them."""
    fits = 1 + sum(len(seen) for seen, _ in search.folds) / len(texts)  # of all training texts: to judge, and to keep
    shapes: tuple[Shape, ...] = SPANS_OF_MANY if marks else OF_MANY
    work = sum(map(len, texts)) * search.classes * fits
    if work > MOST_WORK:
        shapes = (shapes[0] if marks else CHEAPEST,)
    return shapes, STRENGTHS[: 1 if work > MUCH_WORK else 2]


def _matrices(shape: Shape, marks: Marks, seen: Texts, unseen: Texts) -> tuple[Any, Any]:
    features = TextFeatures(shape, marks)
    return features.fit_transform(seen), features.transform(unseen)
