"""Spans put first in a text: by training and by prediction alike, and by the lines that a model card shows."""

import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from tests.toys_training import checkpoint, model, rows, task, tokenizer
from tlm.artifacts.artifact import Artifact
from tlm.data.marks import with_spans_first
from tlm.evaluation.predict.classifier import Classifier
from tlm.evaluation.score.evaluate import evaluate
from tlm.training.input.texts import Examples
from tlm.training.input.tokenize import tokenize

MARKS = (("<<", ">>"), ("[[", "]]"))
FIRST, PLAIN = "model.spans_first=true", "model.spans_first=false"


def marked(text: str) -> str:
    words = text.split()
    return " ".join([*words[:1], "[[", *words[1:2], "]]", "of", "<<", *words[-1:], ">>", "and"])


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("root")


@pytest.fixture(scope="module")
def examples(root):
    return task(root, [(marked(text), pair, gold, split) for text, pair, gold, split in rows()])


@pytest.fixture(scope="module")
def start(root, examples):
    return checkpoint(root, examples, FIRST)


@pytest.fixture(scope="module")
def trained(root, start, examples):
    return model(root, start, examples)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a [[ b ]] c << d >> e", "[[ b ]] c << d >> . a [[ b ]] c << d >> e"),
        ("a << b >> c [[ d ]]", "<< b >> c [[ d ]] . a << b >> c [[ d ]]"),
        ("a [[ b << c >> d ]] e", "[[ b << c >> d ]] . a [[ b << c >> d ]] e"),
        ("a [[ b ]] c", "[[ b ]] . a [[ b ]] c"),
        ("a [[ b", "a [[ b"),
        ("", ""),
    ],
)
def test_spans_stand_first(text: str, expected: str) -> None:
    assert with_spans_first(text, MARKS) == expected


@given(st.text(st.sampled_from("ab []<> "), max_size=20))
def test_the_text_itself_is_kept_whole(text: str) -> None:
    found = with_spans_first(text, MARKS)
    assert found.endswith(text)
    assert with_spans_first(text, ()) == text


def test_tokens_are_those_of_the_prepared_texts(root, examples, start) -> None:
    tokens, words = start.input("task_tokens"), start.input("task_tokens").input("tokenizer")
    assert tokens.details["marks"] == [list(pair) for pair in MARKS]
    reader = AutoTokenizer.from_pretrained(words.path("tokenizer"))
    first = Examples.open(Artifact.open(examples), tokens, 48).texts.first
    text = with_spans_first(marked(rows()[0][0]), MARKS)
    found = first.take(np.array([0]), first.lengths_of(np.array([0])))
    assert found.tolist() == reader(text, add_special_tokens=False)["input_ids"]


def test_tokens_of_texts_as_they_are_keep_their_key(root, examples) -> None:
    words = tokenizer(root, examples)
    plain, first = (tokenize(examples, words, spans_first=value, root=str(root)) for value in (False, True))
    assert plain == tokenize(examples, words, root=str(root)) != first
    assert Artifact.open(plain).manifest.settings == {}
    assert "spans_first" not in checkpoint(root, examples, PLAIN).manifest.settings["model"]


def test_a_task_without_marks_is_read_as_it_is(root) -> None:
    start = checkpoint(root, task(root), FIRST)
    assert start.input("task_tokens").details["marks"] == []
    assert "tlm_spans_first" not in json.loads((start.path("model") / "config.json").read_text())


def test_marks_are_those_of_training_texts(root) -> None:
    examples = task(root, [(marked(text) if split == "train" else text, *more, split) for text, *more, split in rows()])
    tokens = tokenize(examples, tokenizer(root, examples), spans_first=True, root=str(root))
    assert Artifact.open(tokens).details["marks"] == [list(pair) for pair in MARKS]


def test_prediction_prepares_texts_as_training_did(root, examples, start, trained) -> None:
    """The logits are those of transformers' own classes on texts that were prepared by hand."""
    folder = trained.path("model")
    assert json.loads((folder / "config.json").read_text())["tlm_spans_first"] == [list(pair) for pair in MARKS]
    reader, whole = AutoTokenizer.from_pretrained(folder), AutoModelForSequenceClassification.from_pretrained(folder)
    text = marked(rows()[3][0])
    inputs = reader(with_spans_first(text, MARKS), return_tensors="pt", truncation=True)
    expected = whole.eval()(**inputs).logits.detach().numpy()
    assert np.allclose(Classifier(folder, "cpu").logits([text]), expected, atol=1e-5)
    plain = whole(**reader(text, return_tensors="pt", truncation=True)).logits.detach().numpy()
    assert not np.allclose(plain, expected, atol=1e-3)
    metrics = Artifact.open(evaluate(trained.uri, examples, device="cpu", root=str(root)))
    assert json.loads(metrics.path("metrics.json").read_text())["mlm_loss"] > 0


def test_a_model_that_keeps_its_head_knows_the_marks_of_its_last_texts(root, examples) -> None:
    """Stage 2 puts the spans of its own task first, whether stage 1 knew their marks or not."""
    kept = model(root, checkpoint(root, task(root), FIRST), examples, "finetune.reset_head=false")
    folder, text = kept.path("model"), marked(rows()[3][0])
    reader, whole = AutoTokenizer.from_pretrained(folder), AutoModelForSequenceClassification.from_pretrained(folder)
    expected = whole.eval()(**reader(with_spans_first(text, MARKS), return_tensors="pt", truncation=True)).logits
    assert np.allclose(Classifier(folder, "cpu").logits([text]), expected.detach().numpy(), atol=1e-5)


@pytest.mark.parametrize("text", ["a [[ b ]] c << d >> e", "<< a >> [[ b ]]", "x [[ y", "plain", "]] [[ a ]]"])
def test_the_model_card_shows_how_to_prepare_a_text(trained, text: str) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (trained.path("model") / "README.md").read_text(), re.DOTALL)
    names: dict = {}
    exec(next(block for block in blocks if "def prepared" in block), names)  # noqa: S102
    assert names["prepared"](text) == with_spans_first(text, MARKS)
