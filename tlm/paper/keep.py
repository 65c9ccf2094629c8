"""Keeping results: from the metrics of finished runs to the small files that are committed."""

import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tlm import __version__
from tlm.artifacts.artifact import Artifact
from tlm.errors import InputError
from tlm.evaluation.report.lineage import Lineage, flat
from tlm.evaluation.report.runs import Run
from tlm.paper.examples import packed
from tlm.paper.plan import command_for
from tlm.paper.results import BASELINE, FOLDER, differences, write_result
from tlm.paper.tables import NEUTRAL, Cell, cells, is_of, our_name, scales
from tlm.revision import revision as revision_of_code

PACKAGES = ("torch", "transformers", "tokenizers", "numpy", "pyarrow")
SECTIONS = {"checkpoint": ("model", "train"), "model": ("finetune",)}


def keep(
    metrics: list[str], *, table: str, corpus: str = "", command: str = "", results: str = FOLDER, revision: str = ""
) -> str:
    """Keep finished runs as result files of one of the paper's tables, to be committed; their paths, a line each.

    Args:
        metrics: URIs of metrics, or of reports: then all runs that they compare.
        table: Number of the table, such as 4.
        corpus: C_BERT or C_RoBERTa, where a table has both; empty: the one of the scale.
        command: What made the run, to be noted; empty: the command that `tlm paper` gives.
        results: Folder of the result files.
        revision: Of the code that ran; empty: that of this checkout.

    Raises:
        InputError: a run fits no cell of the table: the nearest one is named, and in what it differs.
    """
    lineage = Lineage()
    runs = [Run.read(artifact, lineage) for uri in metrics for artifact in _metrics_of(uri)]
    made = [_result(run, lineage, table, corpus, command, revision or revision_of_code("--abbrev=40")) for run in runs]
    return "\n".join(str(write_result(Path(results), values)) for values in made)


def _metrics_of(uri: str) -> list[Artifact]:
    opened = Artifact.open(uri, "metrics", "report")
    return [opened] if opened.manifest.kind == "metrics" else [opened.input(name) for name in opened.manifest.inputs]


def _result(run: Run, lineage: Lineage, table: str, corpus: str, command: str, revision: str) -> dict[str, Any]:
    values, settings = run.values, _settings(run, lineage)
    task = our_name(values["task"])
    if values["arm"] == BASELINE:
        place = {"table": table, "scale": BASELINE, "column": task, "row": BASELINE}
        key, found = f"{BASELINE}-{task}", None
    else:
        found = _cell(run, settings, table, task, corpus)
        place = {"table": table, "scale": found.scale, "column": found.column, "row": found.row}
        key = found.key
    return {
        "key": key,
        "cell": place,
        "arm": values["arm"],
        "seed": values["seed"],
        "metric": values["metric"],
        "scores": {split: _numbers(scores) for split, scores in values["splits"].items()},
        "examples": packed(run.predictions, values["labels"]),
        "mlm_loss": values["mlm_loss"],
        "parameters": values.get("parameters"),
        "cost": values["cost"],
        "settings": settings,
        "versions": _versions(run),
        "command": command or command_for(table, place["scale"], task, [values["seed"]]),
        "revision": revision,
        "made_from": _origins(run, lineage),
    }


def _cell(run: Run, settings: dict[str, Any], table: str, task: str, corpus: str) -> Cell:
    """The cell that the run fills: the one with its settings, at whatever scale."""
    stages = 1 if run.values["stage"] == "stage 1" else 2
    alike = [
        cell
        for scale in scales()
        for cell in cells(table, scale, [task])
        if (cell.arm, cell.stages) == (run.values["arm"], stages) and is_of(cell, corpus)
    ]
    if not alike:
        stage = "without stage 2" if stages == 1 else "with stage 2"
        raise InputError(
            f"{run.artifact.uri} (arm {run.values['arm']}, {stage}, task {task}) fits no cell of table {table}; "
            "name another table, or repeat the run as one of the table's cells has it"
        )
    told = {cell: differences(settings, cell.settings()) for cell in alike}
    best = min(alike, key=lambda cell: len(told[cell]))
    if told[best]:
        raise InputError(
            f"{run.artifact.uri} is not what table {table} asks for: it comes nearest to scale {best.scale}, row "
            f"'{best.row}', but has {', '.join(told[best][:3])}"
        )
    found = {cell.scale for cell in alike if not told[cell]}
    if len(found) > 1:
        raise InputError(
            f"{run.artifact.uri} fits table {table} at the scales {', '.join(sorted(found))}: the artifacts that tell "
            "its settings apart are gone; repeat the run"
        )
    return best


def _settings(run: Run, lineage: Lineage) -> dict[str, Any]:
    """What decided the result, by ``section.name``, as the artifacts' manifests have it."""
    found: dict[str, Any] = {}
    hits = lineage.follow(run.subset, "hits")
    if hits is not None and hits.manifest.settings["arm"] == "random":
        hits = lineage.follow(hits, "like", "hits")
    if hits is not None:
        found |= {f"retrieve.{name}": hits.manifest.settings[name] for name in ("top_k", "query")}
    start = lineage.follow(run.checkpoint, "start") or run.checkpoint
    if start is not None and "name" in start.details:
        found["start"] = start.details["name"]
    tokenizer = lineage.follow(run.checkpoint, "task_tokens", "tokenizer")
    if tokenizer is not None:
        found |= {f"tokenizer.{name}": value for name, value in flat(tokenizer.manifest.settings)}
    for artifact in (run.checkpoint, run.model):
        if artifact is not None:
            for section in SECTIONS[artifact.manifest.kind]:
                values = artifact.manifest.settings.get(section, {})
                found |= {f"{section}.{name}": value for name, value in flat(values)}
    return {name: value for name, value in found.items() if name not in NEUTRAL}


def _origins(run: Run, lineage: Lineage) -> dict[str, str]:
    """Content by kind/key of the run's metrics and all that they were made from."""
    return {one.folder_name: one.content for one in lineage.everything([run.artifact])}


def _numbers(scores: dict[str, Any]) -> dict[str, float]:
    return {name: value for name, value in scores.items() if isinstance(value, int | float)}


def _versions(run: Run) -> dict[str, str]:
    """Of the run where it noted them, else those here."""
    told = {
        name: value for one in (run.artifact, run.checkpoint, run.model) if one for name, value in one.run().items()
    }
    found = {"tlm": told.get("tlm", __version__), "python": told.get("python", platform.python_version())}
    for package in PACKAGES:
        try:
            found[package] = told.get(package) or version(package)
        except PackageNotFoundError:
            continue
    return {name: str(value) for name, value in found.items()} | {"device": str(told.get("device", ""))}
