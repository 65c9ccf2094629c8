"""What a model learned from, near a text: training texts by the model's own features, passages by telling words."""

import heapq
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from sklearn.preprocessing import normalize

from tlm.artifacts.artifact import Artifact
from tlm.data.passages import evenly, passages
from tlm.data.ranges import by_length
from tlm.data.tasks.examples import examples, read_splits
from tlm.data.tasks.metrics import Floats, Texts
from tlm.evaluation.pages.text import whole_text
from tlm.evaluation.predict.predictor import Predictor
from tlm.progress import track
from tlm.shallow.features import joined, words_of
from tlm.shallow.models import ShallowPredictor
from tlm.shallow.tfidf import Tfidf

MOST_READ = 2_000  # training texts that a network reads


def features(predictor: Predictor, texts: Texts, pairs: Texts | None) -> Any:
    """A model's own features of texts, shape [n, features]: of an encoder, the mean of its last states."""
    if not isinstance(predictor, ShallowPredictor):
        return _states(predictor, texts, pairs)
    if isinstance(predictor.model, Tfidf):
        return predictor.model.features.transform(joined(texts, pairs))
    dense = predictor.model.dense
    return (predictor.model.represented(*predictor.model.given(texts, pairs)) - dense.centre) / dense.scale


def _states(classifier: Any, texts: Texts, pairs: Texts | None) -> Floats:
    import torch

    tokens = classifier.read(texts, pairs)
    found = np.zeros((len(texts), classifier.model.config.hidden_size))
    lengths = np.array([len(ids) for ids in tokens["input_ids"]])
    for rows in track(by_length(lengths, classifier.batch_tokens), "reading training texts", None, "batches"):
        inputs = {name: [values[row] for row in rows] for name, values in tokens.items()}
        batch = classifier.tokenizer.pad(inputs, return_tensors="pt").to(classifier.model.device)
        with torch.inference_mode():
            states = classifier.model(**batch, output_hidden_states=True).hidden_states[-1]
        mask = batch["attention_mask"].unsqueeze(-1)
        found[rows] = ((states * mask).sum(1) / mask.sum(1)).double().cpu().numpy()
    return found


def nearest(predictor: Predictor, task: Artifact, text: str, pair: str | None, most: int) -> list[dict[str, Any]]:
    """The training texts nearest to a text, by the cosine of their features: similarity, id, label, text.

    A network, which takes longer, looks at `MOST_READ` of them, evenly spaced.
    """
    train = read_splits(task, "train")["train"]
    rows = evenly(len(train.texts), len(train.texts) if isinstance(predictor, ShallowPredictor) else MOST_READ)
    pairs = None if train.pairs is None else [*(train.pairs[row] for row in rows), pair or ""]
    found = normalize(features(predictor, [*(train.texts[row] for row in rows), text], pairs))
    product = found[:-1] @ found[-1:].T
    near = np.asarray(product if isinstance(product, np.ndarray) else product.toarray())[:, 0]
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
