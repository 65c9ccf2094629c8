"""The model that a URI or a folder stands for, and whether it learned from pairs of texts."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tlm.artifacts.artifact import Artifact
from tlm.errors import InputError
from tlm.shallow.folder import CONFIG, UNFINISHED, known_of


def located(model: str) -> tuple[Path, Artifact | None]:
    """The folder with config.json, and its artifact: `model` itself and None, or what a URI stands for.

    Raises InputError: `tlm download` has not finished the folder, which may still have files of an earlier model.
    """
    if (unfinished := Path(model) / UNFINISHED).is_file():
        uri = unfinished.read_text() or "URI"  # the disk was full
        raise InputError(f"{model} is not copied whole; repeat `tlm download {uri} {model}`")
    if (Path(model) / CONFIG).is_file():
        return Path(model), None
    artifact = trained(model)
    return artifact.path("model"), artifact


def trained(uri: str) -> Artifact:
    """The model or checkpoint that a URI stands for: itself, what metrics are of, or what a report says to use.

    Raises:
        InputError: there is none, such as of imported predictions or of a report on several tasks.
    """
    found = resolved(uri, "model", "checkpoint", "metrics", "report")
    model = model_of(found) if found.manifest.kind == "metrics" else found
    if model is None:
        raise InputError(f"{uri} has no model: it is of imported predictions, or of an older version; give a model")
    return model


def resolved(uri: str, *kinds: str) -> Artifact:
    """The artifact at a URI, of one of these kinds; for a report, the metrics of the model that it says to use."""
    found = Artifact.open(uri, *kinds)
    return recommended_by(found)[0] if found.manifest.kind == "report" else found


def recommended_by(report: Artifact) -> tuple[Artifact, dict[str, Any]]:
    """The metrics of the model that a report says to use, of its seeds the one best on dev; and the report's facts."""
    if report.manifest.step != "report":
        raise InputError(f"{report.uri} is on several tasks; give the report of one task")
    facts = report.json("report.json")
    if "metrics" not in facts["best"]:
        raise InputError(f"{report.uri} is of an older version, which does not say which model to use; make it again")
    inputs = report.manifest.inputs.items()
    return report.input(next(role for role, metrics in inputs if metrics.key == facts["best"]["metrics"])), facts


def model_of(metrics: Artifact) -> Artifact | None:
    """The model that metrics are of; None if they were imported."""
    return next((metrics.input(name) for name in ("model", "checkpoint") if name in metrics.manifest.inputs), None)


def usual_labels(uri: str, model: Artifact | None) -> tuple[str, Mapping[str, int]]:
    """How often each label is usual, and where: in the answers on dev, of metrics or a report, else in the task.

    A model gives other shares of the labels than the task has, also for texts like the task's. Scores of several labels
    a text do not say how often each was given.

    Args:
        uri: What `located` was asked for.
        model: The model that it found.
    """
    if model is None:
        return "task", {}
    with suppress(InputError, KeyError):  # the scores are gone, or of an earlier version
        if (found := resolved(uri)).manifest.kind == "metrics":
            scores = found.json("metrics.json")
            if confusion := scores["splits"]["dev"].get("confusion"):
                return "dev", dict(zip(scores["labels"], map(sum, zip(*confusion, strict=True)), strict=True))
    task = model.nearest("task")
    return "task", task.counts.get("labels", {}) if task else {}


def of_pairs(folder: Path, model: Artifact | None) -> bool | None:
    """Whether a model that `located` found learned from pairs of texts; None if nothing says so."""
    task = model.nearest("task") if model else None
    return bool(task.details["pair"]) if task else known_of(folder).get("pair")


def check_pairs(learned: bool | None, given: bool, option: str) -> None:
    """Raise InputError if a model of pairs gets single texts, or the other way round; `option` gives second texts."""
    if learned is not None and learned != given:
        advice = f"do without {option}" if given else f"give the second text of each pair with {option}"
        raise InputError(f"the model learned from {'single texts' if given else 'pairs of texts'}; {advice}")
