"""Outputs for Kubeflow's user interface."""

import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tlm.artifacts.artifact import Artifact
from tlm.data.tasks.metrics import METRICS
from tlm.evaluation.pages.blocks import Block, Heading, Quote, Span, Text
from tlm.evaluation.pages.plain import markdown
from tlm.evaluation.report import preview
from tlm.evaluation.report.lineage import compared, dropped, dropped_section, flat
from tlm.evaluation.report.notebook import notebook
from tlm.evaluation.score.mix import ReportRow
from tlm.evaluation.score.scores import positive, predictions_of

ROC_POINTS = 200  # at most, because they are stored in the run's metadata


def summary(values: dict[str, Any]) -> dict[str, float]:
    """The scores in metrics.json by name (``test_macro_f1``, ``dev_accuracy``, ``test_mlm_loss``), all finite."""
    scores: dict[str, float] = {}
    for split, found in values["splits"].items():
        scores |= {f"{split}_{name}": float(found[name]) for name in (*METRICS[1:], "rmse") if name in found}
    if values["mlm_loss"] is not None:
        scores["test_mlm_loss"] = float(values["mlm_loss"])
    return scores


def roc(metrics: Artifact, label: str) -> tuple[list[float], list[float], list[float]] | None:
    """ROC curve of a binary task on test, with `label`, its second one, as the positive one.

    Returns false and true positive rates and thresholds, which fall from 1 (scikit-learn begins with infinity, which
    the pipeline's interface cannot store). None if test has only one class, because one of the rates is then undefined.
    """
    from sklearn.metrics import roc_curve

    test = predictions_of(metrics, "test").to_pylist()
    truth = [row["gold"] == label for row in test]
    if len(set(truth)) < 2:
        return None
    curve = roc_curve(truth, [row["probabilities"][1] for row in test])
    shown = np.unique(np.linspace(0, len(curve[0]) - 1, ROC_POINTS).round().astype(int))  # with both ends
    fpr, tpr, thresholds = ([min(float(value), 1.0) for value in part[shown]] for part in curve)
    return fpr, tpr, thresholds


def dataset_card(subset: str) -> str:
    """A subset in Markdown: a few passages and what was left out, as in a report. Texts are in code spans."""
    artifact = Artifact.open(subset, "subset")
    return markdown([*preview.section([preview.shown(artifact)]), *dropped_section([dropped(artifact)])])


def log_counts(uri: str, metrics: Any, model: Any = None) -> str:
    """Log the counts of an artifact's manifest into the pipeline's Metrics output (duck-typed); returns `uri`.

    A step that made nothing ("") has none. The pipeline's Model output, if there is one, gets the URI in its metadata,
    and as its file, which the page shows.
    """
    if model is not None:
        model.metadata["uri"] = uri
        Path(model.path).write_text(uri, encoding="utf-8")
    if not uri:
        return uri
    artifact = Artifact.open(uri)
    _name_run(artifact, metrics)
    for name, count in flat(artifact.counts, " "):
        metrics.log_metric(name, count)
    return uri


def log_scores(uri: str, metrics: Any, confusion_matrix: Any = None) -> str:
    """Log a ``metrics`` artifact into the pipeline's Metrics and ClassificationMetrics outputs; returns `uri`."""
    artifact = Artifact.open(uri, "metrics")
    values = artifact.json("metrics.json")
    _name_run(artifact, metrics)
    for name, value in summary(values).items():
        metrics.log_metric(name, value)
    matrix = values["splits"]["test"].get("confusion")  # not of numbers, nor of several labels a text
    if confusion_matrix is not None and matrix:
        confusion_matrix.log_confusion_matrix(values["labels"], matrix)
        if (label := positive(values["labels"])) and (curve := roc(artifact, label)):
            confusion_matrix.log_roc_curve(*curve)
    return uri


def write_dataset_card(subset: str, path: str, missing: str) -> None:
    """Write `dataset_card`, or why there is no subset, to the path of the pipeline's Markdown output."""
    Path(path).write_text(missing or _spaced(dataset_card(subset)), encoding="utf-8")


def write_report(report: str, html: str, markdown: str, to_notebook: str = "") -> str:
    """Write a report to the paths of the pipeline's HTML and Markdown outputs, the latter with the models' URIs.

    The notebook is on the model that the report recommends; a report on several tasks has none. Returns the report.
    """
    if to_notebook:
        notebook(report, to=to_notebook)
    artifact = Artifact.open(report, "report")
    shutil.copyfile(artifact.path("report.html"), html)
    head, heading, rest = artifact.path("report.md").read_text(encoding="utf-8").partition("\n## ")
    Path(markdown).write_text(_spaced(f"{head}{models(artifact)}{heading}{rest}"), encoding="utf-8")
    return report


def models(report: Artifact) -> str:
    """The models that a report compares, in Markdown: the one that it says to use, then the best on dev first.

    Reports themselves have no URIs, because these depend on the store. Imported scores have no model, and a report on
    several tasks names models in the reports on each.
    """
    found = [one for one in compared(report) if "model" in one.manifest.inputs]
    if not found:
        return ""
    best = report.json("report.json").get("best", {}).get("metrics")
    found.sort(key=lambda one: (one.manifest.key != best, -one.details["dev"]))
    return "\n" + markdown(_models(found, best))


def _models(found: Sequence[Artifact], best: str | None) -> Iterator[Block]:
    commands = [Span(f"tlm {command}", "code") for command in ("download URI FOLDER", "predict URI --source FILE")]
    yield Heading("Models")
    yield Text((commands[0], " copies a model, ", commands[1], " labels new texts."))
    for one in found:  # no table, because Kubeflow's page leaves no space between columns and cuts off long addresses
        use = " (the one to use)" if one.manifest.key == best else ""
        known = f"{use}, seed {one.details['seed']}, {100 * one.details['dev']:.1f} on dev:"
        yield Text((Span(ReportRow.of(one.details["arm"], one.details["stage"]).name), known))
        yield Text(Quote.of(one.input("model").uri))


def _spaced(markdown: str) -> str:
    """Markdown with space between the columns of its tables; Kubeflow's page leaves none."""
    rows = re.compile(r"^\|.*[^-:|\s].*\|$", re.MULTILINE)  # not the line below the head
    return rows.sub(lambda row: re.sub(r" \|(?=.)", "&nbsp;&nbsp; |", row[0]), markdown)


def _name_run(artifact: Artifact, metrics: Any) -> None:
    """Say which run it is: Kubeflow's page calls the runs of a loop by numbers only."""
    details = artifact.details
    if "arm" in details and "seed" in details:
        name = ReportRow.of(details["arm"], details.get("stage", "")).name
        metrics.metadata |= {"arm": name, "seed": details["seed"]}
