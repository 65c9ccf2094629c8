"""Evaluation of a model folder: what is written is what plain `transformers` gives."""

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSequenceClassification, AutoTokenizer
from transformers.utils import logging

from tests.tiny import refused
from tests.toys import Row, make, make_task, random_model, read_json, words
from tlm.artifacts.artifact import Artifact
from tlm.artifacts.produce import Draft
from tlm.errors import InputError
from tlm.evaluation.predict.classifier import Classifier
from tlm.evaluation.predict.models import model_of
from tlm.evaluation.score.baseline import baseline, static
from tlm.evaluation.score.evaluate import evaluate
from tlm.evaluation.score.mix import mix
from tlm.training.classification import masked_lm_loss

LABELS = ["blue", "green", "red"]


def toy_task(root: Path, pair: bool = False, labels: list[str] | None = LABELS) -> str:
    texts, others = words(40, 0), words(40, 1)
    texts[35] = " ".join(texts)  # longer than the model reads
    rows: list[Row] = []
    for index, (text, other) in enumerate(zip(texts, others, strict=True)):
        split = "train" if index < 20 else "dev" if index < 28 else "test"
        rows.append((text, other if pair else None, LABELS[index % 3] if labels else index / 7, split))
    return make_task(root, rows, "macro_f1" if labels else "pearson", labels)


def plain_logits(folder: Path, task: Artifact) -> np.ndarray:
    """Of dev and test, one text at a time, in the way that the library's own documentation shows."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    logits = []
    for row in pq.read_table(task.path("examples.parquet")).to_pylist():
        if row["split"] != "train":
            inputs = tokenizer(row["text"], row["text_pair"], truncation=True, return_tensors="pt")
            with torch.no_grad():
                logits.append(model(**inputs).logits[0].numpy())
    return np.stack(logits)


@pytest.mark.parametrize("architecture", ["bert", "modernbert"])
@pytest.mark.parametrize("pair", [False, True])
def test_predictions_are_those_of_plain_transformers(architecture: str, pair: bool, tmp_path: Path) -> None:
    task = toy_task(tmp_path, pair)
    _, model = random_model(tmp_path, task, words(50, 9), architecture)
    found = Artifact.open(evaluate(model, task, device="cpu", root=str(tmp_path)))
    table = pq.read_table(found.path("predictions.parquet"))
    logits = plain_logits(Artifact.open(model).path("model"), Artifact.open(task))
    expected = torch.softmax(torch.from_numpy(logits).double(), dim=1).numpy()
    assert np.abs(np.array(table["probabilities"].to_pylist()) - expected).max() < 1e-5
    assert table["predicted"].to_pylist() == [LABELS[index] for index in logits.argmax(axis=1)]
    assert logits.std(axis=0).min() > 1e-3  # they depend on the text
    assert table["example"].to_pylist() == list(range(20, 40))


def test_logits_are_those_of_plain_transformers_in_any_company(tmp_path: Path) -> None:
    task = toy_task(tmp_path)
    _, model = random_model(tmp_path, task, words(50, 9))
    folder = Artifact.open(model).path("model")
    classifier = Classifier(folder, "cpu")
    texts = pq.read_table(Artifact.open(task).path("examples.parquet"))["text"].to_pylist()[20:]
    expected = plain_logits(folder, Artifact.open(task))
    assert np.abs(classifier.logits(texts) - expected).max() < 1e-5
    assert np.abs(classifier.logits(texts[::-1])[::-1] - expected).max() < 1e-5
    assert np.abs(np.concatenate([classifier.logits([text]) for text in texts]) - expected).max() < 1e-5
    assert classifier.logits([]).shape == (0, 3)


def test_what_is_recorded(tmp_path: Path) -> None:
    task = toy_task(tmp_path)
    checkpoint, model = random_model(tmp_path, task, words(50, 9))
    second, first = (
        Artifact.open(evaluate(uri, task, device="cpu", root=str(tmp_path))) for uri in (model, checkpoint)
    )
    values = read_json(second, "metrics.json")
    assert {name: second.details[name] for name in ("arm", "seed", "stage", "metric", "task")} == {
        "arm": "task-only", "seed": 5, "stage": "stage 2", "metric": "macro_f1", "task": "toy",
    }  # fmt: skip
    assert second.details["test"] == values["splits"]["test"]["macro_f1"]
    vocabulary = Artifact.open(checkpoint).input("task_tokens").input("tokenizer").details["vocab_size"]
    assert second.details["mlm_loss"] > np.log(vocabulary) - 1  # random weights know nothing
    on_test = masked_lm_loss(Artifact.open(checkpoint), Artifact.open(task), "test", "cpu")
    assert second.details["mlm_loss"] == on_test
    assert set(values["cost"]) == {"stage 1", "stage 2"}
    assert values["cost"]["stage 1"]["flops"] == 7000
    assert second.run()["stages"]["stage 1"]["threads"] == 1
    assert "seconds" not in json.dumps(values)
    assert first.details["stage"] == "stage 1"
    assert set(read_json(first, "metrics.json")["cost"]) == {"stage 1"}
    assert first.details["mlm_loss"] == second.details["mlm_loss"]
    assert evaluate(model, task, root=str(tmp_path)) == second.uri


def test_regression(tmp_path: Path) -> None:
    task = toy_task(tmp_path, labels=None)
    _, model = random_model(tmp_path, task, words(50, 9))
    found = Artifact.open(evaluate(model, task, device="cpu", root=str(tmp_path)))
    table = pq.read_table(found.path("predictions.parquet"))
    expected = plain_logits(Artifact.open(model).path("model"), Artifact.open(task))[:, 0]
    assert np.abs(np.array(table["predicted"].to_pylist()) - expected).max() < 1e-5
    assert found.details["test"] == pytest.approx(
        np.corrcoef(table["gold"][8:], table["predicted"][8:])[0, 1], abs=1e-6
    )


def test_another_task_is_refused(tmp_path: Path) -> None:
    task = toy_task(tmp_path)
    _, model = random_model(tmp_path, task, words(50, 9))
    other = make_task(tmp_path, [("a", None, "x", "train"), ("b", None, "y", "test")], "macro_f1", ["x", "y"])
    with pytest.raises(InputError, match=r"gives the 3 classes blue, green, red but .* has the 2 classes x, y"):
        evaluate(model, other, root=str(tmp_path))
    many = [f"{number} of many" for number in range(400)]
    rows = [("a", None, one, split) for one in many for split in ("train", "test")]
    with pytest.raises(InputError, match="has the 400 classes 0 of many, 1 of many, ") as caught:
        evaluate(model, make_task(tmp_path, rows, "macro_f1", many), root=str(tmp_path))
    assert len(str(caught.value)) < 1000
    pairs = make_task(
        tmp_path, [("a", "b", "blue", "train"), ("c", "d", "red", "test")], "macro_f1", ["blue", "green", "red"]
    )
    with pytest.raises(InputError, match="learned from single texts; do without --pair-field of load-task"):
        evaluate(model, pairs, root=str(tmp_path))
    with pytest.raises(InputError, match="is a task; expected a model or a checkpoint or metrics or a report"):
        evaluate(task, task, root=str(tmp_path))


def test_a_model_is_not_scored_on_texts_that_it_learned_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    splits, labels, root = ["train"] * 8 + ["dev"] * 4 + ["test"] * 8, LABELS[:2], str(tmp_path)
    texts = words(20, 0)
    rows: list[Row] = [(text, None, labels[n % 2], split) for n, (text, split) in enumerate(zip(texts, splits))]  # noqa: B905

    def task(of: list[Row]) -> str:
        return make_task(tmp_path, sorted(of, key=lambda row: splits.index(row[3])), "accuracy", labels)

    one = model_of(Artifact.open(baseline(task(rows), root=root)))
    assert one
    moved = {"train": "test", "dev": "dev", "test": "train"}
    swapped: list[Row] = [(row[0].upper(), None, row[2], moved[row[3]]) for row in rows]
    resplit, refused = (
        task(swapped),
        r"learned from 8 of the 12 dev and test texts of .*, such as '.*', which .* in train",
    )
    with pytest.raises(InputError, match=refused):
        evaluate(one.uri, resplit)
    new = task([(f"text {number}", None, labels[number % 2], split) for number, split in enumerate(splits)])
    scored = [evaluate(one.uri, new), static(new, root=root)]
    mixture = model_of(Artifact.open(mix(scored, root=root)))
    assert mixture
    with pytest.raises(InputError, match="learned from"):
        evaluate(mixture.uri, resplit)  # although its members were scored on new texts
    capsys.readouterr()
    assert evaluate(one.uri, task([*rows, ("new", None, labels[0], "test"), ("more", None, labels[1], "train")]))
    assert "learned from" not in capsys.readouterr().err
    assert evaluate(one.uri, task([*rows[1:], (*rows[0][:3], "test")]))  # one text, by chance
    assert "learned from 1 of the 13 dev and test texts" in capsys.readouterr().err
    copies = [(*row[:3], "train") for row in rows if row[3] == "train"]
    assert evaluate(one.uri, task([*swapped, *copies]))  # scores without copies are given for these


def test_a_model_that_diverged_is_refused(tmp_path: Path) -> None:
    task = toy_task(tmp_path)
    _, model = random_model(tmp_path, task, words(50, 9), scale=float("nan"))
    with pytest.raises(InputError, match="not finite: its training diverged"):
        evaluate(model, task, device="cpu", root=str(tmp_path))


def test_a_model_with_missing_weights_is_refused(tmp_path: Path) -> None:
    task = toy_task(tmp_path)
    _, model = random_model(tmp_path, task, words(50, 9))
    folder = tmp_path / "part"
    shutil.copytree(Artifact.open(model).path("model"), folder)
    weights = load_file(folder / "model.safetensors")
    save_file(
        {name: value for name, value in weights.items() if "classifier" not in name}, folder / "model.safetensors"
    )
    with pytest.raises(InputError, match=r"lacks weights of a classifier .classifier.bias, .*; fine-tune it"):
        Classifier(folder, "cpu")


def test_a_model_without_its_checkpoint_says_so(tmp_path: Path) -> None:
    task = toy_task(tmp_path)
    checkpoint, model = random_model(tmp_path, task, words(50, 9))
    (Path(checkpoint) / "manifest.json").unlink()
    with pytest.raises(InputError, match=r"was made from checkpoint/.*, which is gone"):
        evaluate(model, task, device="cpu", root=str(tmp_path))


def test_a_split_without_examples_scores_zero(tmp_path: Path) -> None:
    def write(draft: Draft) -> None:
        from tlm.data.tasks.examples import read_splits
        from tlm.evaluation.score.scores import Prediction, write_metrics

        opened = Artifact.open(task)
        nothing = np.zeros((0, 2))
        predictions = [
            Prediction(split, nothing[:, 0].astype(int), nothing) for split in read_splits(opened, "dev").values()
        ]
        write_metrics(draft, opened, predictions, {"arm": "x", "seed": 0, "stage": "baseline", "mlm_loss": None}, {})

    task = make_task(tmp_path, [("a", None, "x", "train"), ("b", None, "y", "test")], "macro_f1", ["x", "y"])
    found = Artifact.open(make("metrics", tmp_path, write, {}))
    assert found.details["dev"] == 0
    assert pq.read_table(found.path("predictions.parquet")).num_rows == 0


def test_a_folder_that_is_no_classifier_is_said_and_the_library_s_warnings_stay_as_they_were(tmp_path: Path) -> None:
    _, model = random_model(tmp_path, toy_task(tmp_path), words(50, 9))
    folder = shutil.copytree(Artifact.open(model).path("model"), tmp_path / "folder")
    before = logging.get_verbosity()
    Classifier(folder, "cpu")
    config = json.loads((folder / "config.json").read_text()) | {"model_type": "unheard-of"}
    (folder / "config.json").write_text(json.dumps(config))
    assert "does not load as a classifier: " in refused(Classifier, folder, "cpu")
    assert logging.get_verbosity() == before


def test_a_folder_of_others_may_cut_long_texts_at_their_beginning(tmp_path: Path) -> None:
    _, model = random_model(tmp_path, toy_task(tmp_path), words(50, 9))
    folder = shutil.copytree(Artifact.open(model).path("model"), tmp_path / "folder")
    file, end = folder / "tokenizer_config.json", " ".join(words(40, 2))
    texts = [f"{'alpha ' * 1000}{end}", end, f"{end}{' alpha' * 1000}"]
    for side, equal in (("left", [True, True, False]), ("right", [False, True, True])):
        file.write_text(json.dumps(json.loads(file.read_text()) | {"truncation_side": side}))
        found = Classifier(folder, "cpu").logits(texts)
        assert [one == pytest.approx(found[1], abs=1e-5) for one in found] == equal
