"""A linear model of static vectors that were learned from fetched text: means over the text, its spans and between."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tlm.data.marks import Marks, marks_of
from tlm.data.tasks.metrics import REGRESSION
from tlm.data.tasks.split import Split
from tlm.errors import InputError
from tlm.shallow import folder as folders
from tlm.shallow.dense import Dense, as_trained, of_pairs
from tlm.shallow.linear import Linear
from tlm.shallow.spans import parts
from tlm.shallow.vectors import Vectors, word_vectors
from tlm.shallow.words import words_of

FAMILY = "static"
FAR = 10  # words between two spans; a larger distance counts as this


@dataclass(frozen=True)
class Static:
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
    def linear(self) -> Linear:
        """The linear model."""
        return self.dense.linear

    @property
    def chosen(self) -> dict[str, Any]:
        """The settings that were chosen, for the report."""
        return {"dimensions": self.vectors.vectors.shape[1], "words": len(self.vectors.words), **self.dense.chosen}

    @property
    def tried(self) -> int:
        """How many settings were tried."""
        return self.dense.tried

    def predict(self, texts: Sequence[str], pairs: Sequence[str] | None = None) -> NDArray[np.float64]:
        """Probabilities, shape [n, classes]; or numbers, shape [n, 1]."""
        return self.dense.predict(represent(self.vectors, self.marks, *as_trained(texts, pairs, pair=self.pair)))

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
        marks = tuple((opening, closing) for opening, closing in config["marks"])
        vectors = Vectors(vocabulary["words"], arrays["vectors"], arrays["word_weights"])
        return cls(config["labels"], vectors, marks, Dense.restored(config, arrays), config["pair"])


def learn(
    passages: Iterable[str],
    unlabelled: Sequence[str],
    train: Split,
    dev: Split,
    metric: str,
    labels: list[str] | None,
    marks: Marks | None = None,
) -> Static:
    """Learn vectors from fetched passages and the task's texts, then a linear model of the training examples.

    Args:
        passages: The fetched text; may be empty.
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
    pairs = None if train.pairs is None else [*train.pairs, *(dev.pairs or [])]
    both = represent(vectors, marks, [*train.texts, *dev.texts], pairs)
    dense = Dense.fit(both, train, dev, metric, labels, FAMILY)
    return Static(None if metric in REGRESSION else labels, vectors, marks, dense, pairs is not None)


def represent(vectors: Vectors, marks: Marks, texts: Sequence[str], pairs: Sequence[str] | None) -> NDArray[np.float64]:
    """Features of examples, shape [n, features].

    Of marked texts: the means of the whole, of each span and of the words between the first two, their distance and
    order. Of pairs: the means of both texts, their product and their difference. Else the mean of the text.
    """
    if pairs is not None:
        return of_pairs(*(vectors.means([words_of(text) for text in side]) for side in (texts, pairs)))
    if not marks:
        return vectors.means([words_of(text) for text in texts])
    cut = [parts(text, marks) for text in texts]
    between = [one.between[0] if one.between else [] for one in cut]
    means = [vectors.means([one.whole for one in cut]), vectors.means(between)]
    means += [vectors.means([one.spans[kind] for one in cut]) for kind in range(len(marks))]
    forward = np.array([[one.order.find("A") < one.order.find("B")] for one in cut], np.float64)
    distance = np.array([[min(len(words), FAR) / FAR, len(words) <= 1] for words in between], np.float64)
    return np.hstack([*means, means[1] * forward, forward, distance])
