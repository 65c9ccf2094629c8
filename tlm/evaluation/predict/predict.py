"""Predict texts, in chunks, so that memory stays flat."""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from tlm.data.text import normalise
from tlm.errors import InputError
from tlm.evaluation.predict.models import check_pairs, located, of_pairs
from tlm.evaluation.predict.predictor import Predictor, labels_of, open_predictor
from tlm.evaluation.predict.rows import InputRow, checked
from tlm.settings.options import NOT_NEGATIVE, PROBABILITY

CHUNK = 1024


def predict(
    model: str,
    texts: Iterable[str | tuple[str, str]],
    *,
    at_least: float = 0.0,
    likeliest: int = 0,
    device: str = "auto",
) -> Iterator[dict[str, Any]]:
    """Predict texts (or pairs of texts) in order; yields the rows that the command writes.

    Args:
        model: URI of a model or checkpoint, of metrics or a report, or a model folder.
        texts: Texts, or pairs of texts, but not a mix of both.
        at_least: Probability below which an answer is unsure; 0: rows do not say whether they are.
        likeliest: How many labels have a probability in a row, the likeliest first; 0: all, in the model's order.
        device: Where to compute: auto (cuda if there is one, else cpu; never mps), cpu, cuda, cuda:N or mps.

    Yields:
        row (from 1), text, label, probability, probabilities by label; or value for regression; or error. Of a model of
        several labels a text labels, a list that may be empty, in place of label and probability. With `at_least` also
        unsure, true or false.
    """
    folder, artifact = located(model)
    check_asked(folder, at_least, likeliest)
    learned = of_pairs(folder, artifact)

    def rows() -> Iterator[InputRow]:
        for number, text in enumerate(texts, 1):
            check_pairs(learned, not isinstance(text, str), "tuples")
            yield checked(number, [text] if isinstance(text, str) else text)

    yield from answers(open_predictor(folder, device)[0], rows(), at_least, likeliest)


def check_asked(folder: Path, at_least: float, likeliest: int = 0) -> None:
    """Raise InputError unless the model in this folder can be asked for such answers."""
    NOT_NEGATIVE.check("likeliest", likeliest)
    PROBABILITY.check("at_least", at_least)
    labels, several = labels_of(folder) if at_least else ([], False)
    if labels is None or several:
        kind = "several labels a text, each with a threshold of its own" if several else "numbers"
        raise InputError(f"the model answers with {kind}; --at-least needs one label a text: leave it out")


def answers(
    predictor: Predictor, rows: Iterator[InputRow], at_least: float = 0.0, likeliest: int = 0
) -> Iterator[dict[str, Any]]:
    """Answer each row, in order, `CHUNK` rows at a time."""
    while chunk := list(islice(rows, CHUNK)):
        good = [row for row in chunk if not row.error]
        found = iter(_predicted(predictor, good, at_least, likeliest))
        for row in chunk:
            yield {"row": row.number, **row.kept, "error": row.error} if row.error else next(found)


def _predicted(predictor: Predictor, rows: list[InputRow], at_least: float, likeliest: int) -> Iterator[dict[str, Any]]:
    pairs = [normalise(row.pair or "") for row in rows] if any(row.pair is not None for row in rows) else None
    predicted = predictor.predict([normalise(row.text) for row in rows], pairs)  # as texts were that it learned from
    for row, values in zip(rows, predicted.tolist(), strict=True):
        answer = {"value": values[0]} if predictor.labels is None else chosen(values, predictor, at_least)
        if likeliest and "probabilities" in answer:
            answer["probabilities"] = dict(Counter(answer["probabilities"]).most_common(likeliest))
        pair = {} if row.pair is None else {"text_pair": row.pair}
        yield {"row": row.number, **row.kept, "text": row.text, **pair, **answer}


def chosen(chances: list[float], model: Predictor, at_least: float = 0.0) -> dict[str, Any]:
    """The likeliest label, its probability, and the probabilities of all labels.

    Of a model of several labels a text those above their thresholds, the likeliest first, and all probabilities.
    If `at_least` is above 0, also whether the probability is below it: an unsure answer.
    """
    named = dict(zip(model.labels or [], chances, strict=True))
    if model.thresholds is not None:
        above = [label for label, least in zip(named, model.thresholds, strict=True) if named[label] > least]
        return {"labels": sorted(above, key=lambda label: -named[label]), "probabilities": named}
    label = max(named, key=named.__getitem__)
    unsure = {"unsure": named[label] < at_least} if at_least else {}
    return {"label": label, "probability": named[label], **unsure, "probabilities": named}
