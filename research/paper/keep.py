"""The command `keep`: from the metrics of finished runs to lines of the results that are committed."""

import platform
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from research.paper.plan import command_for
from research.paper.results import BASELINE, FOLDER, baseline_key, differences, packed, write_results
from research.paper.tables import NEUTRAL, Cell, cells, check_names, curves, is_of, our_name, place_of, scales
from tlm import __version__
from tlm.artifacts.artifact import Artifact, follow, share_inputs
from tlm.artifacts.produce import revision as revision_of_code
from tlm.errors import InputError
from tlm.evaluation.predict.predictor import MIXTURE
from tlm.evaluation.report.lineage import compared, everything, flat
from tlm.evaluation.report.runs import ScoredModel
from tlm.evaluation.score.baseline import EMBEDDINGS, STATIC
from tlm.evaluation.score.imported import IMPORTED
from tlm.settings.sections import SECTIONS
from tlm.settings.selectors import WITHOUT_QUERIES

NO_CELL = (STATIC, EMBEDDINGS, IMPORTED, MIXTURE)
PACKAGES = ("torch", "transformers", "tokenizers", "numpy", "pyarrow")


def keep(
    metrics: list[str],
    *,
    table: str,
    corpus: str = "",
    at: float = 0.0,
    draw: int = 0,
    command: str = "",
    results: str = FOLDER,
    revision: str = "",
) -> str:
    """Keep finished runs as results of one of the paper's tables or of a curve, and print where each is.

    All runs are kept or none. A run replaces an earlier one of the same cell and seed.

    Args:
        metrics: URIs of metrics, or of reports, which stand for the encoders and the baseline that they compare (for a
            curve: for all of their rows).
        table: Number of the table, such as 4; or a curve: dilution, labels, labels-and-texts or compute.
        corpus: C_BERT or C_RoBERTa, if the table has both; by default the corpus of the scale.
        at: Where on the axis of a curve the runs are.
        draw: Number of the draw of corpus, labels and random subset; runs of a curve at one place differ in it.
        command: The command that made the run; by default the one that `python -m research paper` prints.
        results: Folder of the results.
        revision: Revision of the code that ran; by default that of this checkout.

    Raises:
        InputError: A run fits no cell of the table; the message names the nearest cell and the differences.
    """
    code = revision or revision_of_code("--abbrev=40")
    opened = [Artifact.open(uri, "metrics", "report") for uri in metrics]
    curve = table in curves()
    if curve and not command:
        raise InputError(f"a point of the curve '{table}' needs --command, the one that made its run")
    if not curve:
        check_names(table, scales()[0])
        if at or draw:
            raise InputError(f"--at and --draw are for curves ({', '.join(curves())}), and '{table}' is none")
    scored = {metrics.manifest.key: metrics for given in opened for metrics in _scored(given, curve)}
    share_inputs(scored.values())
    runs = [ScoredModel.read(artifact) for artifact in scored.values()]
    lines = []
    for run in runs:
        settings, task = _settings(run), our_name(run.values["task"])
        if curve:
            seed, place = draw, place_of(table, task, run.values["arm"], at)
        else:
            seed, place = run.values["seed"], _place(run, settings, table, task, corpus)
        how = command or command_for(table, place["cell"]["scale"], task, [seed])
        kept = _kept(run)
        lines.append({**place, "seed": seed, **kept, "settings": settings, "command": how, "revision": code})
    _check_distinct(table, lines)
    path = write_results(Path(results), table, lines)
    return "\n".join(f"{path}: {line['key']}, seed {line['seed']}" for line in lines)


def _check_distinct(table: str, lines: Sequence[dict[str, Any]]) -> None:
    """Raise InputError if two runs have the same key and seed, because a table has one line for these."""
    counts = Counter((line["key"], line["seed"]) for line in lines)
    for line in lines:
        count = counts[line["key"], line["seed"]]
        if count > 1:
            raise InputError(
                f"{count} runs of arm {line['arm']} would be one line of table {table}, {line['key']} with seed "
                f"{line['seed']}; give the metrics of one of them, for a curve each with its own --draw"
            )


def _scored(given: Artifact, curve: bool) -> list[Artifact]:
    """The metrics themselves; of a report, those of runs that tables have cells for, or all for a curve."""
    if given.manifest.kind == "metrics":
        return [given]
    return [metrics for metrics in compared(given) if curve or metrics.details["stage"] not in NO_CELL]


def _place(run: ScoredModel, settings: dict[str, Any], table: str, task: str, corpus: str) -> dict[str, Any]:
    """Key and cell of a run of a table; the baseline, which has no cell, counts at every scale."""
    key, scale, column, row = baseline_key(task), BASELINE, task, BASELINE
    if run.values["arm"] != BASELINE:
        cell = _cell(run, settings, table, task, corpus)
        key, scale, column, row = cell.key, cell.scale, cell.column, cell.row
    return {"key": key, "cell": {"table": table, "scale": scale, "column": column, "row": row}}


def _kept(run: ScoredModel) -> dict[str, Any]:
    """The part of a run that a result keeps."""
    values = run.values
    scores = {}
    for split, scores_of_split in values["splits"].items():
        scores[split] = {name: value for name, value in scores_of_split.items() if isinstance(value, int | float)}
    return {
        "arm": values["arm"],
        "metric": values["metric"],
        "scores": scores,
        "examples": packed(run.predictions, values["labels"]),
        "mlm_loss": values["mlm_loss"],
        "parameters": values.get("parameters"),
        "cost": values["cost"],
        "versions": _versions(run),
        "made_from": {one.folder_name: one.content for one in everything([run.artifact])},
    }


def _cell(run: ScoredModel, settings: dict[str, Any], table: str, task: str, corpus: str) -> Cell:
    """The cell with the settings of the run, at any scale."""
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
            "name another table, or repeat the run with the settings of one of the table's cells"
        )
    different = {cell: differences(settings, cell.settings()) for cell in alike}
    best = min(alike, key=lambda cell: len(different[cell]))
    if different[best]:
        raise InputError(
            f"{run.artifact.uri} does not match table {table}: it is nearest to scale {best.scale}, row "
            f"'{best.row}', but has {', '.join(different[best][:3])}"
        )
    fitting = {cell.scale for cell in alike if not different[cell]}
    if len(fitting) > 1:
        raise InputError(
            f"{run.artifact.uri} fits table {table} at the scales {', '.join(sorted(fitting))}: the artifacts that "
            "have its settings are gone; repeat the run"
        )
    return best


def _settings(run: ScoredModel) -> dict[str, Any]:
    """The settings that determined the result, by ``section.name``, from the artifacts' manifests."""
    found: dict[str, Any] = {}
    hits = follow(run.subset, "hits")
    if hits and hits.manifest.settings["arm"] in WITHOUT_QUERIES:
        hits = follow(hits, "like", "hits")
    if hits:
        found |= {f"retrieve.{name}": hits.manifest.settings[name] for name in ("top_k", "query")}
    start = follow(run.checkpoint, "start") or run.checkpoint
    if start and "name" in start.details:
        found["start"] = start.details["name"]
    tokenizer = follow(run.checkpoint, "task_tokens", "tokenizer")
    if tokenizer:
        found |= {f"tokenizer.{name}": value for name, value in flat(tokenizer.manifest.settings)}
    for artifact in (run.checkpoint, run.model):
        settings = flat(artifact.manifest.settings) if artifact else ()
        found |= {name: value for name, value in settings if name.partition(".")[0] in SECTIONS}
    return {name: value for name, value in found.items() if name not in NEUTRAL}


def _versions(run: ScoredModel) -> dict[str, str]:
    """The versions that the run recorded, else those installed here."""
    noted: dict[str, Any] = {}
    for artifact in (run.artifact, run.checkpoint, run.model):
        noted |= artifact.run() if artifact else {}
    found = {"tlm": noted.get("tlm", __version__), "python": noted.get("python", platform.python_version())}
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            found[package] = noted.get(package) or version(package)
    return {name: str(value) for name, value in found.items()} | {"device": str(noted.get("device", ""))}
