"""What the Kubeflow UI is given of a step: numbers only, flat names, an ROC curve with finite thresholds."""

import json
import random
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from kfp import dsl
from sklearn.metrics import roc_auc_score

from tlm.artifacts.artifact import Artifact
from tlm.data.tasks.examples import examples
from tlm.data.tasks.task import load_task
from tlm.evaluation.report import kfp
from tlm.evaluation.report.report import report
from tlm.evaluation.score.baseline import baseline
from tlm.evaluation.score.imported import import_predictions


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    """A binary task whose words tell the class only mostly, with one row that cannot be used."""
    folder, rng = tmp_path_factory.mktemp("binary"), random.Random(5)
    for split, rows in (("train", 80), ("dev", 40), ("test", 60)):
        lines = []
        for row in range(rows):
            label = ("no", "yes")[row % 2]
            words = rng.choices(["good", "fine"] if (label == "yes") == (rng.random() < 0.8) else ["bad", "poor"], k=3)
            lines.append({"text": " ".join([*words, f"number {row} of {split}"]), "label": label})
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with (folder / "train.jsonl").open("a") as file:
        file.write(json.dumps({"text": "", "label": "yes"}) + "\n")
    return load_task(str(folder), root=str(folder / "root"))


@pytest.fixture(scope="module")
def metrics(task):
    return baseline(task, root=Artifact.open(task).uri.rsplit("/", 2)[0])


def test_counts_are_flat_numbers(task):
    shown = dsl.Metrics()
    assert kfp.log_counts(task, shown) == task
    assert shown.metadata["train"] == 80
    assert shown.metadata["labels yes"] == 90
    assert [name for name in shown.metadata if name.startswith("rejected ")] != []
    assert all(isinstance(value, int | float) for value in shown.metadata.values())


def test_a_run_is_named_by_arm_and_seed(metrics):
    """Kubeflow's page numbers the runs of a loop."""
    shown = dsl.Metrics()
    kfp.log_scores(metrics, shown)
    assert (shown.metadata["arm"], shown.metadata["seed"]) == ("linear", 0)
    counted = dsl.Metrics()
    kfp.log_counts(Artifact.open(metrics).input("model").uri, counted)
    assert (counted.metadata["arm"], counted.metadata["seed"]) == ("linear", 0)


def test_a_model_is_shown_by_its_address(metrics, tmp_path):
    """Kubeflow's page shows the file of an output; its metadata is a page further."""
    uri, shown = Artifact.open(metrics).input("model").uri, dsl.Model(uri=str(tmp_path / "model"))
    assert kfp.log_counts(uri, dsl.Metrics(), shown) == uri
    assert (shown.metadata["uri"], (tmp_path / "model").read_text()) == (uri, uri)


def test_the_summary_of_a_report_names_the_models(metrics, task, tmp_path):
    root = task.rsplit("/", 2)[0]
    imported = tmp_path / "answers.csv"
    rows = [row for row in examples(Artifact.open(task)).to_pylist() if row["split"] in ("dev", "test")]
    imported.write_text("\n".join(["id,label", *(f"{row['id']},yes" for row in rows)]))
    others = [import_predictions(str(imported), task, name="always yes", root=root)]
    uri = report([metrics, *others], root=root)
    outputs = [str(tmp_path / name) for name in ("report.html", "summary.md", "notebook")]
    assert kfp.write_report(uri, *outputs) == uri
    assert metrics in "".join(str(cell["source"]) for cell in json.loads(Path(outputs[2]).read_text())["cells"])
    summary = (tmp_path / "summary.md").read_text()
    model = Artifact.open(metrics).input("model").uri
    dev = 100 * Artifact.open(metrics).details["dev"]
    named = f"`linear` (the one to use), seed 0, {dev:.1f} on dev:"
    assert "\n".join([named, "", f"`{model}`", "", "## Results"]) in summary
    assert summary.index("## Models") < summary.index("## Results")
    given = Artifact.open(uri).path("report.md").read_text()
    assert summary.replace(kfp.models(Artifact.open(uri)), "").replace("&nbsp;&nbsp;", "") == given
    assert "| Model&nbsp;&nbsp; |" in summary
    assert root not in given


def test_a_test_split_of_one_class_has_no_roc_curve_and_all_numbers_are_finite(tmp_path):
    """Kubeflow refuses JSON with NaN."""
    for split, labels in (("train", ["no", "yes"] * 5), ("dev", ["no", "yes"]), ("test", ["no"] * 6)):
        lines = [json.dumps({"text": f"{label} text {row}", "label": label}) for row, label in enumerate(labels)]
        (tmp_path / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
    root = str(tmp_path / "root")
    shown, matrix = dsl.Metrics(), dsl.ClassificationMetrics()
    kfp.log_scores(baseline(load_task(str(tmp_path), root=root), root=root), shown, matrix)
    assert "confidenceMetrics" not in matrix.metadata
    assert matrix.metadata["confusionMatrix"]
    json.dumps([shown.metadata, matrix.metadata], allow_nan=False)


def test_the_roc_curve_of_a_binary_task_is_whole_and_finite(metrics):
    shown, matrix = dsl.Metrics(), dsl.ClassificationMetrics()
    kfp.log_scores(metrics, shown, matrix)
    assert matrix.metadata["confusionMatrix"]
    points = matrix.metadata["confidenceMetrics"]
    assert all(0 <= point["confidenceThreshold"] <= 1 for point in points)
    fpr, tpr, _ = kfp.roc(Artifact.open(metrics), "yes")
    assert (fpr[0], tpr[0]) == (0, 0)
    assert (fpr[-1], tpr[-1]) == (1, 1)
    rows = pq.read_table(Artifact.open(metrics).path("predictions.parquet")).to_pylist()
    test = [row for row in rows if row["split"] == "test"]
    expected = roc_auc_score([row["gold"] == "yes" for row in test], [row["probabilities"][1] for row in test])
    assert 0.5 < expected < 1
    assert np.trapezoid(tpr, fpr) == pytest.approx(expected)
