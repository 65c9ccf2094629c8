"""Encoders of texts with several labels: a loss for each label, both stages, transformers, ONNX and the model card."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.special import expit

from research.multitask.train import train_multitask
from tests.toys import make_task
from tests.toys_several import BOTH, several
from tests.toys_training import checkpoint, model
from tlm.artifacts.artifact import Artifact
from tlm.data.tasks.examples import read_splits
from tlm.data.tasks.metrics import MULTI_LABEL, THRESHOLDS, above, cross_decided, fitted_thresholds
from tlm.errors import InputError
from tlm.evaluation.predict.predict import predict
from tlm.evaluation.predict.predictor import labels_of, open_predictor
from tlm.evaluation.report.kfp import summary
from tlm.evaluation.score.baseline import baseline
from tlm.evaluation.score.evaluate import evaluate
from tlm.evaluation.score.mix import mix
from tlm.serving.distill import distill
from tlm.serving.export_onnx import agreement, export_onnx
from tlm.serving.serve import manifest
from tlm.shallow.folder import config_of
from tlm.training.classification import class_logits
from tlm.training.device import to_device
from tlm.training.input.batches import collate
from tlm.training.input.texts import Examples
from tlm.training.model import build
from tlm.training.model.losses import classification_loss


@pytest.fixture(scope="module")
def task(tmp_path_factory) -> Artifact:
    return several(tmp_path_factory.mktemp("encoder"), 160)


@pytest.fixture(scope="module")
def root(task):
    return task.uri.rsplit("/", 2)[0]


@pytest.fixture(scope="module")
def start(root, task):
    return checkpoint(root, task.uri)


@pytest.fixture(scope="module")
def end(root, start, task):
    return model(root, start, task.uri, "finetune.epochs=8", "finetune.lr=3e-3", "finetune.evaluations=3")


def read(end: Artifact) -> tuple[Examples, np.ndarray, np.ndarray]:
    """The examples of stage 2, the rows of dev, and the model's logits of these."""
    examples = Examples.open(end.input("task"), end.input("task_tokens"), 64)
    rows = examples.rows("dev")
    body = build.load(end.path("model"))
    return examples, rows, class_logits(body, examples.texts, rows, torch.device("cpu"))


def test_the_loss_adds_up_the_binary_cross_entropies_of_a_text(end):
    examples, rows, _ = read(end)
    encoder = build.load(end.path("model")).eval()
    inputs = to_device(collate(examples.texts, rows, examples.labels), torch.device("cpu"))
    with torch.no_grad():
        found = classification_loss(encoder, inputs)
        _, logits = encoder(inputs, inputs.ids, tokens=False, classes=True)
    by_text = F.binary_cross_entropy(torch.sigmoid(logits), inputs.labels, reduction="none").sum(dim=1)
    assert found.total.item() == pytest.approx(by_text.mean().item(), rel=1e-5)
    assert (found.ce.item(), found.mlm.item()) == (found.total.item(), 0)


def test_both_stages_are_of_several_labels(start, end):
    for trained in (start, end):
        config = config_of(trained.path("model"))
        assert config["problem_type"] == MULTI_LABEL
        assert list(config["id2label"].values()) == BOTH
        assert labels_of(trained.path("model")) == (BOTH, True)
    assert THRESHOLDS not in config_of(start.path("model"))


def test_thresholds_are_fitted_on_dev_and_stored_in_the_config(end):
    examples, rows, logits = read(end)
    expected = fitted_thresholds(expit(logits.astype(np.float64)), examples.labels[rows]).tolist()
    assert config_of(end.path("model"))[THRESHOLDS] == pytest.approx(expected, abs=1e-6)
    assert open_predictor(end.path("model"), "cpu")[0].thresholds == pytest.approx(expected, abs=1e-6)


def test_transformers_loads_it_with_equal_logits(end, task):
    from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline

    texts = read_splits(task, "test")["test"].texts
    folder = end.path("model")
    library, tokenizer = (
        AutoModelForSequenceClassification.from_pretrained(folder),
        AutoTokenizer.from_pretrained(folder),
    )
    assert library.config.problem_type == MULTI_LABEL
    with torch.no_grad():
        theirs = library.eval()(**tokenizer(texts, padding=True, truncation=True, return_tensors="pt")).logits.numpy()
    predictor, _ = open_predictor(folder, "cpu")
    assert predictor.logits(texts) == pytest.approx(theirs, abs=1e-4)
    assert predictor.predict(texts) == pytest.approx(expit(theirs), abs=1e-4)
    found = pipeline("text-classification", model=library, tokenizer=tokenizer, top_k=None)(texts[:1])[0]
    assert {one["label"]: one["score"] for one in found} == pytest.approx(
        dict(zip(BOTH, predictor.predict(texts[:1])[0], strict=True)), abs=1e-4
    )


def test_scores_are_of_labels_above_the_thresholds_and_cross_fitted_on_dev(end, task):
    metrics = evaluate(end.uri, task.uri, device="cpu")
    predictor, _ = open_predictor(end.path("model"), "cpu")
    splits = read_splits(task, "dev", "test")
    chances = {name: predictor.predict(split.texts) for name, split in splits.items()}
    test = above(chances["test"], predictor.thresholds)
    dev = cross_decided(chances["dev"], splits["dev"].gold, splits["dev"].group)
    for name, decided in (("test", test), ("dev", dev)):
        expected = float((decided == splits[name].gold).all(axis=1).mean())
        assert summary(Artifact.open(metrics).json("metrics.json"))[f"{name}_exact_match"] == pytest.approx(expected)


def test_a_checkpoint_is_scored_at_a_half(start, task):
    predictor, _ = open_predictor(start.path("model"), "cpu")
    assert predictor.thresholds == [0.5] * 3
    metrics = Artifact.open(evaluate(start.uri, task.uri, device="cpu"))
    for name, split in read_splits(task, "dev", "test").items():  # on dev, too: nothing was fitted to it
        right = (above(predictor.predict(split.texts), [0.5] * 3) == split.gold).all(axis=1)
        assert summary(metrics.json("metrics.json"))[f"{name}_exact_match"] == pytest.approx(right.mean())


def test_onnx_answers_alike_and_a_mixture_too(end, task, root):
    texts = read_splits(task, "test")["test"].texts
    mixture = mix([evaluate(end.uri, task.uri, device="cpu"), baseline(task.uri)])
    for uri in (end.uri, mixture):
        made = export_onnx(uri, root=root)
        ours, theirs = (list(predict(one, texts, device="cpu")) for one in (uri, made))
        alike = [one["labels"] == other["labels"] for one, other in zip(ours, theirs, strict=True)]
        assert np.mean(alike) > 0.9
        assert all(row.keys() == {"row", "text", "labels", "probabilities"} for row in theirs)


def test_agreement_is_the_share_of_texts_with_equal_labels():
    exact = np.array([[1, -1], [1, 1], [-1, -1]], np.float32)
    small = np.array([[2, -3], [1, -1], [-1, -2]], np.float32)
    assert agreement(exact, small, numbers=False, thresholds=[0.5, 0.5]) == pytest.approx(2 / 3)
    assert agreement(exact, small, numbers=False, thresholds=[0.5, 0.9]) == 1


def test_the_card_says_how_labels_are_decided(end):
    card = (end.path("model") / "README.md").read_text(encoding="utf-8")
    assert "`tlm_thresholds` of `config.json`" in card
    assert "3 labels, several or none a text: `blue`, `green`, `red`" in card
    assert "micro_f1 on dev" in card


def test_training_goes_on_from_it_without_its_thresholds(root, end, task):
    again = model(root, end.input("checkpoint"), task.uri, "finetune.steps=2", "finetune.reset_head=false")
    assert len(config_of(again.path("model"))[THRESHOLDS]) == 3


def test_the_head_of_several_labels_does_not_become_one_of_classes_of_the_same_names(root, start, task):
    splits = read_splits(task, "train", "dev", "test").items()
    rows = [(text, None, BOTH[place % 3], name) for name, split in splits for place, text in enumerate(split.texts)]
    one_each = make_task(Path(root), rows, "accuracy", BOTH)
    with pytest.raises(InputError, match="was trained for other classes than this task's; set finetune"):
        model(root, start, one_each, "finetune.steps=2", "finetune.reset_head=false")


def test_what_cannot_do_it_says_so_before_any_work(root, start, task, end):
    linear = baseline(task.uri)
    with pytest.raises(InputError, match=r"several labels a text, and distill works with one; leave this step out"):
        distill(linear, start.uri, task.uri, preset="tiny", root=root)
    vocabulary = start.input("task_tokens").input("tokenizer").uri
    with pytest.raises(InputError, match=r"several labels a text, and train-multitask works with one"):
        train_multitask([task.uri], tokenizer=vocabulary, preset="tiny", root=root)


def test_kserve_s_own_runtime_is_refused(end, monkeypatch):
    monkeypatch.setattr("tlm.serving.serve.storage_uri", lambda _: "s3://bucket/model")
    with pytest.raises(InputError, match=r"gives several labels, but KServe's runtime answers with one; use --runtime"):
        manifest(end.uri, name="toy", runtime="huggingface")
    assert json.loads((end.path("model") / "config.json").read_text())["problem_type"] == MULTI_LABEL
