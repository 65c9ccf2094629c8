"""The explanation of an answer: what decided it, and what the model learned from near the text; as data, and as blocks.

The numbers of words are exact for tf-idf and static vectors. For other models they are hints: gradients of encoders,
and what the answer loses without a word.
"""

import heapq
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.metrics.pairwise import cosine_similarity

from tlm.artifacts.artifact import Artifact
from tlm.data.passages import evenly, passages
from tlm.data.tasks.examples import examples, read_splits
from tlm.data.tasks.metrics import Floats, Texts
from tlm.data.text import normalise, with_pairs
from tlm.errors import InputError, nearest
from tlm.evaluation.pages.blocks import Block, Column, Heading, Items, Quote, Row, Span, Table, Text
from tlm.evaluation.pages.text import label_text, shared_words, visible, whole_text
from tlm.evaluation.predict.encoder import OnnxClassifier
from tlm.evaluation.predict.models import check_pairs, located, of_pairs
from tlm.evaluation.predict.predictor import Cascade, Mixture, Predictor, open_predictor
from tlm.progress import track
from tlm.shallow import published, tfidf
from tlm.shallow.features import LETTERS, joined, parts, words_of
from tlm.shallow.linear import Linear
from tlm.shallow.models import ShallowPredictor
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
        sign = 1 if place == 0 else -1
        return sign * linear.weights[0], sign * float(bias[0])
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
        yield from [("", cut.whole, width), ("between: ", between, width)]
        yield from ((f"{name}: ", words, width) for name, words in zip("ABCD", cut.spans, strict=False))
        yield "A to B: ", between if ordered else [], width
        yield "order and distance of the spans", None, 3
        yield from (("edge: ", between[place], width) for place in EDGES)
        yield from (("edge: ", words[-1:], width) for words in cut.spans)
        if len(cut.spans) > 1:
            yield "product of both spans", None, width


def _words(vectors: Vectors, words: list[str], weights: NDArray[np.float64]) -> Values:
    """What each word of a mean of length 1 adds."""
    known = [word for word in with_pairs(words) if word in vectors.numbers]
    rows = [vectors.numbers[word] for word in known]
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
LEFT_OUT = "By how much the answer falls without the word: a hint; words act together, so it adds up to nothing."


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
    (slopes,) = torch.autograd.grad(model(**batch, inputs_embeds=path.requires_grad_()).logits[:, place].sum(), path)
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
    """By how much the probability of the class (or the number) falls without each word, at most `MOST_WORDS` a text."""
    sides = [text] if pair is None else [text, pair]
    words, tried = list[str](), [sides]
    for side, own in enumerate(sides):
        for word in [*re.finditer(r"\S+", own)][:MOST_WORDS]:
            words.append(word[0])
            tried.append([*sides[:side], own[: word.start()] + own[word.end() :], *sides[side + 1 :]])
    pairs = None if pair is None else [one[1] for one in tried]
    found = predictor.predict([one[0] for one in tried], pairs)[:, place]
    return Explained.of(LEFT_OUT, zip(words, found[0] - found[1:], strict=True))


WIDTH = 300  # characters shown of a text
AS_REPORTS_SAY = {tfidf.FAMILY: "linear", published.FAMILY: "embeddings"}
NEAR = (Column("label", "left"), Column("id", "left"), Column("text", "words"))
NO_LINEAGE = "No training texts or passages: a folder does not say what it was made from; give the model's URI."
NO_TASK = "No training texts: the model had none, its task is gone, or it is ONNX, which does not show its features."
NO_SUBSET = "No passages: the model read no retrieved text, or no word of the text spoke for this answer."


class Part(NamedTuple):
    """A part of a model, or all of it: its kind, its weight, what it adds to the answer, itself, and why."""

    name: str
    share: float
    adds: float
    predictor: Predictor
    why: Explained


def explained(model: str, text: str, pair: str | None, label: str, top: int, device: str) -> dict[str, Any]:
    """Explain the answer of a model to a text.

    Args:
        model: URI of a model, checkpoint, metrics or report, or a model folder.
        text: The text.
        pair: The second text; None if there is none.
        label: The class to explain; "" for the likeliest.
        top: How many training texts and passages to find.
        device: Where to compute.

    Returns:
        text, pair, label (None for a number), answer, parts, nearest, passages, and notes on what is missing.
    """
    text, pair = normalise(text), None if pair is None else normalise(pair)
    folder, artifact = located(model)
    check_pairs(of_pairs(folder, artifact), pair is not None, "--pair")
    predictor, _ = open_predictor(folder, device)
    (values,) = predictor.predict([text], None if pair is None else [pair])
    labels = predictor.labels or []
    if label and label not in labels:
        raise InputError(f"{model} has no class '{label}'{nearest(label, labels)}")
    place = labels.index(label) if label else int(values.argmax())
    answer = float(values[place])
    found = {"text": text, "pair": pair, "label": labels[place] if labels else None, "answer": answer}
    parts = list(_parts(predictor, text, pair, place, answer))
    by_part = [(part.share, telling(part.why, f"{text} {pair or ''}")) for part in parts]
    words = Explained.of("", ((word, share * value) for share, own in by_part for word, value in own.items())).features
    shown = [{"model": part.name, "adds": part.adds, **vars(part.why)} for part in parts]
    chief = max(parts, key=lambda part: part.share).predictor
    return found | {"parts": shown} | _learned(artifact, chief, words, text, pair, top)


def _parts(predictor: Predictor, text: str, pair: str | None, place: int, answer: float) -> Iterator[Part]:
    if not isinstance(predictor, Mixture):
        yield Part(_kind(predictor), 1.0, answer, predictor, _why(predictor, text, pair, place))
        return
    weights, predicted = predictor.weights, predictor.of_parts([text], None if pair is None else [pair])
    if isinstance(weights, Cascade):  # the one that answers says why
        yield from _parts(predictor.parts[int(weights.passed(predicted[0])[0])][0], text, pair, place, answer)
        return
    plain = replace(weights, temperature=1.0)
    total = float(plain.apply(predicted)[0, place])
    scale = answer / total if total and weights != plain else 1.0  # what they add adds up to the answer
    for number, (share, members) in enumerate(zip(weights.shares, predictor.parts, strict=True)):
        alone = tuple(share if other == number else 0.0 for other in range(len(predicted)))
        adds = scale * float(replace(plain, shares=alone).apply(predicted)[0, place])
        own = float(predicted[number][0, place])
        for part in _parts(members[0], text, pair, place, own):  # several, if the member is a mixture itself
            yield part._replace(share=share * part.share, adds=adds * part.adds / own if own else 0.0)


def _kind(predictor: Predictor) -> str:
    if isinstance(predictor, ShallowPredictor):
        return AS_REPORTS_SAY.get(predictor.family, predictor.family)
    return "encoder"


def _why(predictor: Predictor, text: str, pair: str | None, place: int) -> Explained:
    if isinstance(predictor, ShallowPredictor) and not isinstance(predictor.model, published.EmbeddingsModel):
        return exact(predictor.model, text, pair, place)
    hint = left_out if isinstance(predictor, ShallowPredictor | OnnxClassifier) else gradient
    return hint(predictor, text, pair, place)


def _learned(
    source: Artifact | None, predictor: Predictor, words: dict[str, float], text: str, pair: str | None, top: int
) -> dict[str, Any]:
    """What the model learned from, near the text, and notes on what is missing."""
    if source is None:
        return {"nearest": [], "passages": [], "notes": [NO_LINEAGE]}
    task, subset = source.nearest("task"), source.nearest("subset")
    shows = not isinstance(predictor, OnnxClassifier)
    near = nearest_texts(predictor, task, text, pair, top) if task and shows else []
    passages = taught(subset, words, top) if subset else []
    notes = [note for note, found in ((NO_TASK, near), (NO_SUBSET, passages)) if not found]
    return {"nearest": near, "passages": passages, "notes": notes}


def blocks(found: dict[str, Any], top: int) -> Iterator[Block]:
    """The explanation for people: of each part, the `top` features."""
    label, answer = found["label"], found["answer"]
    yield Heading(f"{answer:.4g}" if label is None else (Span(label, "label"), f", probability {answer:.3f}"), 1)
    yield Text(Quote.of(visible(" ⁄ ".join(filter(None, (found["text"], found["pair"]))), WIDTH)))
    for part in found["parts"]:
        yield Heading(f"{part['model']} adds {part['adds']:.4f} to the {'number' if label is None else 'probability'}")
        yield Table(["feature", "hint" if part["bias"] is None else "adds"], _features(part, top), part["method"])
    if found["nearest"]:
        yield Heading("Nearest training texts, by the model’s own features")
        yield Table([Column("similarity"), *NEAR], [_training_text(row) for row in found["nearest"]])
    if found["passages"]:
        yield Heading("Passages of the subset with the most telling words")
        texts = ((row, visible(row["text"], WIDTH), " ".join(row["words"])) for row in found["passages"])
        lines = ((f"passage {row['doc']}: ", Quote(tuple(shared_words(text, words, 1)))) for row, text, words in texts)
        yield Items(tuple(lines))
    yield from map(Text, found["notes"])


def _features(part: dict[str, Any], top: int) -> list[Row]:
    values = list(part["features"].items())
    rows: list[Row] = [(Quote.of(visible(_shown(name), WIDTH)), f"{value:+.4g}") for name, value in values[:top]]
    if part["bias"] is None:
        return rows
    rest = sum(value for _, value in values[top:])
    total = part["bias"] + sum(part["features"].values())
    return [*rows, ("all others", f"{rest:+.4g}"), ("bias", f"{part['bias']:+.4g}"), ("sum", f"{total:+.4g}")]


def _shown(feature: str) -> str:
    """A feature's name; the spaces in n-grams of letters are shown as ␣."""
    kind, colon, letters = feature.partition(": ")
    return f"{kind}{colon}{letters.replace(' ', '␣')}" if kind == LETTERS else feature


def _training_text(row: dict[str, Any]) -> Row:
    shown, name = (Span(visible(one, 60)) for one in (label_text(row["label"]), row["id"]))
    return f"{row['similarity']:.3f}", shown, name, Quote.of(visible(row["text"], WIDTH))


MOST_READ = 2_000  # training texts that a network reads
PORTION = 1000  # texts between two looks at the clock


def features(predictor: Predictor, texts: Texts, pairs: Texts | None) -> Any:
    """A model's own features of texts, shape [n, features]: of an encoder, the mean of its last states."""
    if not isinstance(predictor, ShallowPredictor):
        return _states(predictor, texts, pairs)
    if not isinstance(predictor.model, Tfidf):
        return predictor.model.standardised(texts, pairs)
    read, starts = joined(texts, pairs), range(0, len(texts), PORTION)
    portions = track(starts, "reading training texts", len(starts), "thousand texts")
    return sparse.vstack([predictor.model.features.transform(read[at : at + PORTION]) for at in portions], "csr")


def _states(classifier: Any, texts: Texts, pairs: Texts | None) -> Floats:
    import torch

    found = np.zeros((len(texts), classifier.model.config.hidden_size))
    for rows, inputs in classifier.batches(texts, pairs, "reading training texts"):
        batch = classifier.tokenizer.pad(inputs, return_tensors="pt").to(classifier.model.device)
        with torch.inference_mode():
            states = classifier.model(**batch, output_hidden_states=True).hidden_states[-1]
        mask = batch["attention_mask"].unsqueeze(-1)
        found[rows] = ((states * mask).sum(1) / mask.sum(1)).double().cpu().numpy()
    return found


def nearest_texts(predictor: Predictor, task: Artifact, text: str, pair: str | None, most: int) -> list[dict[str, Any]]:
    """The training texts nearest to a text, by the cosine of their features: similarity, id, label, text.

    A network, which takes longer, looks at `MOST_READ` of them, evenly spaced.
    """
    train = read_splits(task, "train")["train"]
    rows = evenly(len(train.texts), len(train.texts) if isinstance(predictor, ShallowPredictor) else MOST_READ)
    pairs = None if train.pairs is None else [*(train.pairs[row] for row in rows), pair or ""]
    found = features(predictor, [*(train.texts[row] for row in rows), text], pairs)
    near = cosine_similarity(found[:-1], found[-1:])[:, 0]
    order = np.argsort(-near, kind="stable")[:most]
    table = examples(task).take(train.example[np.array(rows)[order]]).to_pylist()
    labels = (row["target"] if row["label"] is None else row["label"] for row in table)
    named = zip(near[order].tolist(), table, labels, strict=True)
    return [{"similarity": one, "id": row["id"], "label": label, "text": whole_text(row)} for one, row, label in named]


def taught(subset: Artifact, words: Mapping[str, float], most: int) -> list[dict[str, Any]]:
    """The passages of a subset with the most telling words: doc, text, and the words, the most telling first."""

    def scored() -> Iterator[tuple[float, int, str, list[str]]]:
        for batch in track(passages(subset, ["doc", "text"]), "looking through the subset", None, "portions"):
            for doc, text in zip(batch["doc"].to_pylist(), batch["text"].to_pylist(), strict=True):
                there = sorted(words.keys() & words_of(text), key=lambda word: (-words[word], word))
                yield sum(words[word] for word in there), -doc, text, there

    best = heapq.nlargest(most, scored())
    return [{"doc": -doc, "text": text, "words": there} for _, doc, text, there in best if there]
