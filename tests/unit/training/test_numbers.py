"""Regression in the task's units: whatever the mean and deviation of the targets, models learn and predict alike."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from tests.toys import Row, make_task, ragged, read_json
from tests.toys_multitask import together
from tests.toys_training import SMALL, checkpoint, model, passages, rows
from tlm.artifacts.artifact import Artifact
from tlm.artifacts.produce import Recipe
from tlm.evaluation.predict.predict import predict
from tlm.evaluation.score.baseline import baseline, static
from tlm.evaluation.score.evaluate import evaluate
from tlm.evaluation.score.mix import mix
from tlm.serving.distill import distill
from tlm.serving.export_onnx import agreement, export_onnx
from tlm.settings.options import Compute
from tlm.settings.sections import Finetune, Model
from tlm.training.classification import begin, class_logits
from tlm.training.input.texts import Examples, Scale, Special, Texts
from tlm.training.model import build
from tlm.training.model.encoder import Encoder

UNITS = {"ages": (10.0, 40.0), "tiny": (1e-6, 0.0), "shifted": (1.0, 1000.0), "large": (1e6, -3e6)}
KINDS = ("linear", "static", "encoder", "mixture")


def numbers(root: Path, factor: float = 10.0, shift: float = 40.0, name: str = "toy") -> str:
    """A task whose words tell a number of mean `shift` and deviation `factor`."""
    noise = np.random.default_rng(0).normal(0, 0.2, 200)
    found: list[Row] = [
        (text, None, float(factor * ((gold - 1) * 1.2 + own) + shift), split)
        for (text, _, gold, split), own in zip(rows(regression=True), noise, strict=False)
    ]
    return make_task(root, found, "pearson", None, name)


def runs(root: Path, factor: float, shift: float) -> dict[str, Artifact]:
    """The metrics of each kind of model for such a task."""
    task = numbers(root, factor, shift)
    trained = model(root, checkpoint(root, task), task, "finetune.epochs=4")
    found = {
        "linear": baseline(task, root=str(root)),
        "static": static(task, subset=passages(root, "subset"), root=str(root)),
        "encoder": evaluate(trained.uri, task, device="cpu", root=str(root)),
    }
    found["mixture"] = mix([found["encoder"], found["static"], found["linear"]], root=str(root))
    return {name: Artifact.open(uri) for name, uri in found.items()}


def predictions(metrics: Artifact) -> np.ndarray:
    return pq.read_table(metrics.path("predictions.parquet"))["predicted"].to_numpy()


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> dict[str, Artifact]:
    return runs(tmp_path_factory.mktemp("plain"), 1.0, 0.0)


@pytest.fixture(scope="module", params=UNITS)
def other(request, tmp_path_factory) -> tuple[float, float, dict[str, Artifact]]:
    factor, shift = UNITS[request.param]
    return factor, shift, runs(tmp_path_factory.mktemp(request.param), factor, shift)


@pytest.mark.parametrize("kind", KINDS)
def test_other_units_change_predictions_and_errors_as_they_change_targets(kind: str, plain, other) -> None:
    factor, shift, found = other
    expected, values = predictions(plain[kind]), predictions(found[kind])
    assert (values - shift) / factor == pytest.approx(expected, abs=0.01)
    ours, theirs = (read_json(one[kind], "metrics.json")["splits"]["test"] for one in (found, plain))
    assert ours["pearson"] == pytest.approx(theirs["pearson"], abs=0.01)
    assert ours["rmse"] / factor == pytest.approx(theirs["rmse"], abs=0.01)
    assert ours["rmse"] == pytest.approx(ours["mse"] ** 0.5)


@pytest.mark.parametrize("kind", KINDS)
def test_predictions_are_near_the_targets(kind: str, other) -> None:
    factor, shift, found = other
    assert np.mean(predictions(found[kind])) == pytest.approx(shift, abs=0.5 * abs(factor))
    assert read_json(found[kind], "metrics.json")["splits"]["test"]["rmse"] < 0.9 * abs(factor)


@pytest.mark.parametrize("architecture", ["modernbert", "bert", "roberta", "distilbert"])
def test_transformers_alone_predicts_in_the_task_s_units(architecture: str, tmp_path: Path) -> None:
    task = numbers(tmp_path)
    changes = [f"model.architecture={architecture}", "model.positions=64"]
    trained = model(tmp_path, checkpoint(tmp_path, task, *changes), task, "finetune.epochs=2")
    texts = ["the judge of a court", "ship and wave"]
    words = AutoTokenizer.from_pretrained(trained.path("model"))(texts, padding=True, return_tensors="pt")
    whole = AutoModelForSequenceClassification.from_pretrained(trained.path("model")).eval()
    with torch.no_grad():
        found = whole(**words).logits[:, 0].tolist()
    assert found == pytest.approx([row["value"] for row in predict(trained.uri, texts, device="cpu")], rel=1e-4)
    assert all(20 < value < 60 for value in found)


def logits(encoder: Encoder, examples: Examples) -> np.ndarray:
    return class_logits(encoder.eval(), examples.texts, examples.rows("test"), torch.device("cpu"))[:, 0]


def test_stage_2_goes_on_with_a_head_that_answers_in_the_task_s_units(tmp_path: Path) -> None:
    """It learns standardised targets; the head of one task, and those of several, answer as they did."""
    tasks = [numbers(tmp_path), numbers(tmp_path, 0.1, 5.0, "other")]
    alone, several = checkpoint(tmp_path, tasks[0]), together(tmp_path, tasks)
    kept = Finetune(batch=8, lr=1e-3, reset_head=False)
    for start, task, centre in [(alone, tasks[0], 40.0), (several, tasks[0], 40.0), (several, tasks[1], 5.0)]:
        inputs = {"checkpoint": start, "task": Artifact.open(task), "task_tokens": start.input("task_tokens")}
        encoder, examples, *_ = begin(Recipe("model", "finetune", 0, {"arm": "", "seed": 0}, inputs), kept)
        assert examples.labels[examples.rows("train")].mean() == pytest.approx(0, abs=1e-5)
        assert examples.labels[examples.rows("train")].std() == pytest.approx(1, abs=1e-5)
        learned = logits(encoder, examples)
        assert abs(learned.mean()) < 1
        assert examples.scale is not None
        in_units = learned * examples.scale.deviation + examples.scale.mean
        assert in_units.mean() == pytest.approx(centre, rel=0.25)
        if task == tasks[0]:  # whose head is in the model folder
            assert in_units == pytest.approx(logits(build.load(start.path("model")), examples), rel=1e-4)


@pytest.mark.parametrize("architecture", ["bert", "modernbert", "roberta", "xlm", "deberta-v2"])
def test_a_head_can_be_made_to_answer_in_other_units(architecture: str) -> None:
    shape = Model(architecture=architecture, hidden=16, layers=1, heads=2, intermediate=16, max_length=24)
    body = build.build(build.with_task(build.make_config(shape, 64, Special(0, 1, 2, 3, 4)), None, "toy"), 0).eval()
    texts = Texts(ragged([[7, 8, 9, 10], [11, 12]]), None, 24, Special(0, 1, 2, 3, 4))
    before = class_logits(body, texts, np.arange(2), torch.device("cpu"))
    build.to_units(body, Scale(40.0, 10.0))
    assert class_logits(body, texts, np.arange(2), torch.device("cpu")) == pytest.approx(10 * before + 40, abs=1e-4)


def test_a_student_learns_its_teacher_s_numbers(tmp_path: Path) -> None:
    task = numbers(tmp_path)
    start, teacher = checkpoint(tmp_path, task), baseline(task, root=str(tmp_path))
    changes = [*SMALL, "finetune.epochs=4"]
    subset = passages(tmp_path, "subset")
    uri = distill(
        teacher, start.uri, task, subset=subset, preset="tiny", overrides=changes, compute=Compute(device="cpu")
    )
    found = Artifact.open(evaluate(uri, task, device="cpu"))
    assert read_json(found, "metrics.json")["splits"]["test"]["rmse"] < 9
    assert np.mean(predictions(found)) == pytest.approx(40, abs=5)


@pytest.mark.parametrize(("factor", "shift"), [(1e6, -3e6), (1e-6, 0.0)])
def test_onnx_is_compared_in_the_units_of_the_task(factor: float, shift: float, tmp_path: Path) -> None:
    task = numbers(tmp_path, factor, shift)
    trained = model(tmp_path, checkpoint(tmp_path, task), task, "finetune.epochs=4")
    converted = Artifact.open(export_onnx(trained.uri, root=str(tmp_path)))
    assert converted.counts["largest difference"] < 1e-4 * factor
    texts = ["the judge of a court", "ship and wave"]
    found, expected = ([row["value"] for row in predict(one.uri, texts, device="cpu")] for one in (converted, trained))
    assert found == pytest.approx(expected, abs=0.2 * factor)


@given(st.integers(0, 10**6), st.sampled_from([1e-9, 1e-3, 1e6]))
def test_agreement_of_numbers_depends_on_no_unit(seed: int, factor: float) -> None:
    exact, small = np.random.default_rng(seed).normal(size=(2, 9, 1)).cumsum(axis=0)
    found = agreement(factor * exact, factor * small, numbers=True)
    assert found == pytest.approx(agreement(exact, small, numbers=True))
