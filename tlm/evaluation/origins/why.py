"""What decided an answer: numbers of words that are exact for tf-idf and static vectors, and hints for other models.

Hints are gradients of encoders, and what the answer loses without a word.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tlm.evaluation.predict.predictor import Predictor
from tlm.shallow.features import LETTERS, joined, parts, with_pairs, words_of
from tlm.shallow.linear import Linear
from tlm.shallow.static import EDGES, StaticModel, Vectors
from tlm.shallow.tfidf import Tfidf

Values = Iterable[tuple[str, float]]
EXACT = "Exact: with the bias, these numbers add up to the logit of the class, or to the number."


@dataclass(frozen=True)
class Explained:
    """What decided an answer.

    Attributes:
        method: How the values were found, and how far they can be trusted, in a sentence.
        features: Values by the name of the feature or word, the weightiest first.
        bias: What the model says without any feature; None if the values do not add up with it.
    """

    method: str
    features: dict[str, float]
    bias: float | None = None

    @classmethod
    def of(cls, method: str, found: Values, bias: float | None = None) -> "Explained":
        """Sum the values of each name."""
        sums: dict[str, float] = {}
        for name, value in found:
            sums[name] = sums.get(name, 0.0) + float(value)
        return cls(method, dict(sorted(sums.items(), key=lambda item: (-abs(item[1]), item[0]))), bias)


def exact(model: Tfidf | StaticModel, text: str, pair: str | None, place: int) -> Explained:
    """Explain the logit of the class in `place`, before any temperature, or the number.

    Where each class has a model of its own, that is the log-odds of the class against all others; in a static model of
    three classes or more, the logit before the softmax.
    """
    pairs = None if pair is None else [pair]
    weights, bias = _row(model.linear, place)
    if isinstance(model, Tfidf):
        return Explained.of(EXACT, _of_tfidf(model, text, pairs, weights), bias)
    weights = weights / model.dense.scale
    texts, seconds = model.given([text], pairs)
    found = _of_vectors(model, texts[0], None if seconds is None else seconds[0], weights)
    return Explained.of(EXACT, found, bias - float(weights @ model.dense.centre))


def _row(linear: Linear, place: int) -> tuple[NDArray[np.float64], float]:
    """The weights and the bias of a class; a single row is that of the first of two classes.

    A bias that is infinite becomes the largest number, because JSON has no infinity.
    """
    bias = np.nan_to_num(linear.bias)
    if linear.classes == 2 and len(linear.weights) == 1:
        return (1 - 2 * place) * linear.weights[0], (1 - 2 * place) * float(bias[0])
    return linear.weights[place], float(bias[place])


def _of_tfidf(model: Tfidf, text: str, pairs: list[str] | None, weights: NDArray[np.float64]) -> Values:
    found = model.features.transform(joined([text], pairs))
    names = model.features.names()
    return zip([names[place] for place in found.indices], found.data * weights[found.indices], strict=True)


def _of_vectors(model: StaticModel, text: str, second: str | None, weights: NDArray[np.float64]) -> Values:
    (features,) = model.represented([text], None if second is None else [second])
    end = 0
    for name, words, width in _sources(model, text, second):
        end += width
        own = weights[end - width : end]
        if words is None:
            yield name, float(features[end - width : end] @ own)
        else:
            yield from ((f"{name}{word}", value) for word, value in _words(model.vectors, words, own))
    assert end == len(features), "the sources are those of `represent`"


def _sources(model: StaticModel, text: str, second: str | None) -> Iterator[tuple[str, list[str] | None, int]]:
    """Where the features come from, in the order of `tlm.shallow.static.represent`.

    Yields a name, the words whose mean these features are (None if they are no mean), and how many they are.
    """
    width = model.vectors.vectors.shape[1]
    if second is not None:
        yield from [("first: ", words_of(text), width), ("second: ", words_of(second), width)]
        yield from [("product of both texts", None, width), ("difference of both texts", None, width)]
    elif not model.marks:
        yield "", words_of(text), width
    else:
        cut = parts(text, model.marks)
        between, ordered = cut.first_between, cut.order.find("A") < cut.order.find("B")
        spans = zip(("A: ", "B: ", "C: ", "D: "), cut.spans, strict=False)
        means = [("", cut.whole), ("between: ", between), *spans, ("A to B: ", between if ordered else [])]
        yield from ((name, words, width) for name, words in means)
        yield "order and distance of the spans", None, 3
        if model.edges:
            single = [between[place] for place in EDGES] + [words[-1:] for words in cut.spans]
            yield from (("edge: ", words, width) for words in single)
            yield from [("product of both spans", None, width)] * (len(cut.spans) > 1)


def _words(vectors: Vectors, words: list[str], weights: NDArray[np.float64]) -> Values:
    """What each word of a mean of length 1 adds."""
    number = {word: place for place, word in enumerate(vectors.words)}
    known = [word for word in with_pairs(words) if word in number]
    rows = [number[word] for word in known]
    weighted = vectors.weights[rows, np.newaxis].astype(np.float64) * vectors.vectors[rows]
    return zip(known, weighted @ weights / (np.linalg.norm(weighted.sum(axis=0)) or 1.0), strict=True)


def telling(found: Explained, text: str) -> dict[str, float]:
    """The words of a text that spoke for the answer, each with the sum of the features that it alone makes."""
    words, values = {word for word in words_of(text) if word[0].isalnum()}, dict[str, float]()
    for name, value in found.features.items():
        place, _, word = name.rpartition(": ")
        word = word.lower()
        if word in words and place != LETTERS:
            values[word] = values.get(word, 0.0) + value
    return {word: value for word, value in values.items() if value > 0}


STEPS = 32  # on the way from the average token
MOST_WORDS = 200  # of a text, each left out in turn
GRADIENT = (
    "Gradient times input of each token, averaged on the way from the average token: a hint, not exact. It adds up to "
    "what the tokens together change in the logit of the class, roughly."
)
LEFT_OUT = (
    "By how much the answer falls without the word: a hint, not exact; words act together, so it adds up to nothing."
)


def gradient(classifier: Any, text: str, pair: str | None, place: int) -> Explained:
    """Gradient times input of each token, for the logit of the class in `place` (or the number).

    The gradient is the mean on the way from the average token to this one (integrated gradients, Sundararajan et al.,
    ICML 2017). At the end of the way alone it is near 0 in an encoder that has learned, whatever the token does:
    layers that normalise ignore the length of their input, and tanh is flat. Special tokens stay as they are.

    Args:
        classifier: A `tlm.evaluation.predict.classifier.Classifier`.
        text: The text.
        pair: The second text; None if there is none.
        place: Which class.
    """
    import torch

    model, tokenizer = classifier.model, classifier.tokenizer
    read = tokenizer.pad(classifier.read([text], None if pair is None else [pair]), return_tensors="pt")
    batch = {name: values.expand(STEPS, -1) for name, values in read.to(model.device).items()}
    ids, words = batch.pop("input_ids")[0], model.get_input_embeddings()
    own = torch.tensor([one not in tokenizer.all_special_ids for one in ids.tolist()], device=ids.device).unsqueeze(-1)
    with torch.no_grad():
        change = own * (words(ids) - words.weight.mean(0))
        shares = (torch.arange(STEPS, 0, -1, device=ids.device) - 0.5) / STEPS
        path = words(ids) - shares.reshape(-1, 1, 1) * change
    logits = model(**batch, inputs_embeds=path.requires_grad_()).logits
    (slopes,) = torch.autograd.grad(logits[:, place].sum(), path)
    values = (slopes.mean(0) * change).sum(-1)[own[:, 0]].tolist()
    return Explained.of(GRADIENT, characters(tokenizer, ids[own[:, 0]].tolist(), values))


MOST_BYTES = 4  # of a character in UTF-8


def characters(tokenizer: Any, ids: list[int], values: list[float]) -> Values:
    """Tokens as text, with their values; tokens that are bytes of one character stand together."""
    held, value = list[int](), 0.0
    for one, own in zip(ids, values, strict=True):
        held, value = [*held, one], value + own
        text = tokenizer.decode(held)
        if "\ufffd" not in text or len(held) == MOST_BYTES:
            yield text.strip() or "␣", value
            held, value = [], 0.0
    if held:  # a text that is cut within a character
        yield tokenizer.decode(held), value


def left_out(predictor: Predictor, text: str, pair: str | None, place: int) -> Explained:
    """By how much the probability of the class (or the number) falls without each of the first `MOST_WORDS` words."""
    words = list(re.finditer(r"\S+", text))[:MOST_WORDS]
    texts = [text, *(text[: word.start()] + text[word.end() :] for word in words)]
    found = predictor.predict(texts, None if pair is None else [pair] * len(texts))[:, place]
    return Explained.of(LEFT_OUT, zip((word[0] for word in words), found[0] - found[1:], strict=True))
