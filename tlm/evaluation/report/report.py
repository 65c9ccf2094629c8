"""The step `report`: the results of runs on one task, as a plain dictionary, which the pages and report.json show."""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tlm.artifacts.artifact import Artifact, follow
from tlm.artifacts.produce import Draft, Recipe, produce
from tlm.data.tasks.examples import SEVERAL
from tlm.errors import InputError
from tlm.evaluation.pages.blocks import roles
from tlm.evaluation.pages.text import visible
from tlm.evaluation.report.bill import predictions, spent
from tlm.evaluation.report.checks import WARNING, checks
from tlm.evaluation.report.findings import Planned, findings, finished, planned, recommended, same_vocabulary
from tlm.evaluation.report.lineage import dropped, everything, gone, lineage_rows, numbers
from tlm.evaluation.report.preview import evidence
from tlm.evaluation.report.runs import Group, Summary, grouped
from tlm.evaluation.report.since import earlier, finding, since
from tlm.evaluation.report.tracking import track
from tlm.evaluation.score.imported import IMPORTED
from tlm.evaluation.score.intervals import Difference, differences, spread
from tlm.evaluation.score.mix import LINEAR
from tlm.evaluation.score.scores import coverage, metric_names, predictions_of
from tlm.progress import say
from tlm.settings.options import Prices
from tlm.settings.selectors import WITHOUT_QUERIES

if TYPE_CHECKING:
    from tlm.evaluation.report.page import Contents, Task  # which draws with matplotlib

VERSION = 37


def report(
    metrics: list[str],
    *,
    prices: Prices = Prices(),
    notes: Sequence[str] = (),
    against: str = "",
    root: str | None = None,
) -> str:
    """Put runs of one task side by side: arms and seeds beside the baseline, cost, losses, retrieved passages.

    Writes report.html (self-contained, without scripts), report.md and report.json. Corpus, retrieval and training
    are found through the artifacts that the metrics were made from; if some are gone, the report says so. With
    MLFLOW_TRACKING_URI, it is logged to MLflow.

    Args:
        metrics: URIs of the metrics, in any order.
        prices: Of the time and energy that were spent.
        notes: Sentences to add to the findings, such as why settings were chosen.
        against: URI of a report, or of metrics, on an earlier version of the task: the report says what has changed
            since, in data, settings and answers, and whether the recommended model is ahead of that one.
        root: Store to write to, which holds all inputs; by default TLM_ROOT, else the store of the inputs.
    """
    opened = {artifact.manifest.key: artifact for artifact in (Artifact.open(uri, "metrics") for uri in metrics)}
    runs = [opened[key] for key in sorted(opened)]
    _check(runs)
    inputs = {f"metrics-{number:03d}": run for number, run in enumerate(sorted(runs, key=lambda run: run.content))}
    before = earlier(against) if against else []
    inputs |= {f"against-{number:03d}": run for number, run in enumerate(before)}
    settings = asdict(prices) | ({"notes": list(notes)} if notes else {})
    recipe = Recipe("report", "report", VERSION, settings, inputs)
    uri = produce(recipe, root, _write, runs, prices, notes, before)
    made = Artifact.open(uri)
    facts = made.json("report.json")
    warnings = [check["sentence"] for check in facts["checks"] if check["severity"] == WARNING]
    for sentence in [*facts["findings"][:1], *warnings]:
        say(f"report: {sentence}")
    track(made)
    return uri


def _check(runs: list[Artifact]) -> None:
    if not runs:
        raise InputError("report needs the URI of at least one metrics artifact")
    for run in runs:
        if run.manifest.inputs["task"].content != runs[0].manifest.inputs["task"].content:
            raise InputError(f"{runs[0].uri} and {run.uri} are of different tasks; make one report for each task")
    imported = [(run.details["arm"], run.details["seed"]) for run in runs if run.details["stage"] == IMPORTED]
    for name, seed in imported:
        if (count := imported.count((name, seed))) > 1:
            advice = "leave all but one out, or import each with its own seed or name"
            raise InputError(f"{count} imported predictions are called '{name}' and have seed {seed}; {advice}")


def _write(draft: Draft, runs: list[Artifact], prices: Prices, notes: Sequence[str], before: list[Artifact]) -> None:
    from tlm.evaluation.report.page import write_report  # draws with matplotlib

    found = contents(runs, prices, before)
    found["findings"] += notes
    write_report(draft.folder, found)
    draft.counts["runs"] = len(runs)
    groups: Sequence[Mapping[str, Any]] = found["groups"]
    means = {group["name"]: {part: group[part]["mean"] for part in ("dev", "test", "mlm_loss")} for group in groups}
    draft.details.update(task=found["task"]["name"], metric=found["task"]["metric"], groups=means)
    since = (found["since"] or {}).get("difference")
    draft.details.update(best=found["best"]["name"], checks=[one["code"] for one in found["checks"]], since=since)


MOST_CLASSES = 15  # of a confusion matrix; with more classes, the most frequent confusions are listed
MOST_CONFUSIONS = 20
MOST_POINTS = 1000


def contents(metrics: list[Artifact], prices: Prices = Prices(), before: Sequence[Artifact] = ()) -> "Contents":
    """Collect all about these runs of one task.

    Args:
        metrics: ``metrics`` artifacts of the same task.
        prices: Prices of time and energy, and grid intensity.
        before: Metrics of the model of an earlier report to compare with, from `tlm.evaluation.report.since.earlier`.
    """
    groups = grouped(metrics)
    task, artifacts = follow(metrics[0], "task"), everything(metrics)
    summaries = [group.summary(prices) for group in groups]
    whole = finished(summaries)
    _colour(summaries, whole)
    whole_groups = {group.name: group for group, summary in zip(groups, summaries, strict=True) if summary in whole}
    compared = _compared(whole_groups, planned(whole))
    best, _ = recommended(whole, compared)
    chosen = whole_groups[best["name"]]
    best_run = chosen.runs[chosen.best_on_dev].artifact
    first = groups[0].runs[0].values
    names = metric_names(first["labels"])
    regression, several = (first["problem"] == problem for problem in ("regression", SEVERAL))
    found: Contents = {
        "task": _task(first, task, names),
        # the best on dev first; what ended after stage 1 last
        "groups": sorted(summaries, key=lambda group: (group not in whole, -group["dev"]["mean"])),
        "losses": [group["name"] for group in same_vocabulary(summaries)],
        "prices": asdict(prices),
        "differences": compared,
        "findings": findings(summaries, names[first["metric"]], compared),
        "bill": {"spent": spent(groups, summaries, artifacts, prices), "predictions": predictions(groups, prices)},
        "metric_names": names,
        "curves": curves([*whole_groups.values()], regression),
        "best": {"name": best["name"], "role": best["role"], "metrics": best_run.manifest.key},
        "since": since(chosen, grouped(before)[0]) if before else None,
        "classes": None if regression else _classes(_looked_at(groups, best["name"], compared), chosen),
        "confusion": None if regression or several else _confusion(chosen),
        "coverage": None if regression or several else coverage(best_run, first["labels"]),
        "scatter": _scatter(chosen) if regression else None,
        "evidence": evidence(groups),
        "dropped": _dropped(groups, task),
        "checks": [check._asdict() for check in checks(groups, summaries, best, task)],
        "lineage": lineage_rows(artifacts),
        "gone": gone(artifacts),
    }
    if found["since"]:
        found["findings"].insert(1, finding(found["since"]))
    return found


def _task(first: dict[str, Any], task: Artifact | None, names: dict[str, str]) -> "Task":
    """The task, from the metrics of a run and what metrics are called; its counts only if it is still there."""
    return {
        "name": visible(first["task"], 80),
        "problem": first["problem"],
        "metric": first["metric"],
        "metric_name": names[first["metric"]],
        "classes": len(first["labels"] or []),
        "counts": numbers(task.counts) if task is not None else {},
    }


def _compared(groups: dict[str, Group], pairs: Sequence[Planned]) -> list[Difference]:
    """The planned differences on test."""
    found = differences({name: group.on("test") for name, group in groups.items()}, [pair[:2] for pair in pairs])
    return [{**one, "question": pair.question} for one, pair in zip(found, pairs, strict=True)]


def _colour(groups: list[Summary], whole: list[Summary]) -> None:
    """Give each group a role: within a kind of model, each text has its own colour."""
    for kind in dict.fromkeys(group["kind"] for group in groups):
        own = [group for group in groups if group["kind"] == kind]
        texts = ["baseline" if kind == LINEAR else group["text"] if group in whole else "" for group in own]
        for group, role in zip(own, roles(texts), strict=True):
            group["role"] = role


def _looked_at(groups: list[Group], best: str, compared: list[Difference]) -> list[Group]:
    """The best group and the groups that it is compared with; all groups if there are none."""
    both = [(one["first"], one["second"]) for one in compared]
    names = {name for pair in both if best in pair for name in pair}
    return [group for group in groups if group.name in names] or groups


def _classes(groups: list[Group], best: Group) -> dict[str, Any]:
    """F1 of each class on test by group, mean over seeds; the most frequent class first."""
    labels: dict[str, Any] = best.runs[0].values["splits"]["test"]["classes"]
    found = [[run.values["splits"]["test"]["classes"] for run in group.runs] for group in groups]
    f1 = {label: [spread(classes[label]["f1"] for classes in runs) for runs in found] for label in labels}
    rows = [{"label": visible(label, 60), "support": labels[label]["support"], "f1": f1[label]} for label in labels]
    return {"groups": [group.name for group in groups], "rows": sorted(rows, key=lambda row: -row["support"])}


def _confusion(best: Group) -> dict[str, Any]:
    """The best group's confusion matrix on test, summed over its seeds, and the most frequent confusions."""
    labels = [visible(label, 60) for label in best.runs[0].values["labels"]]
    matrix = np.sum([run.values["splits"]["test"]["confusion"] for run in best.runs], axis=0)
    places = [(i, j) for i, j in np.argwhere(matrix) if i != j]
    wrong = [{"gold": labels[i], "predicted": labels[j], "count": int(matrix[i, j])} for i, j in places]
    frequent = sorted(wrong, key=lambda one: -one["count"])[:MOST_CONFUSIONS]
    found = {"labels": labels, "matrix": matrix.tolist(), "frequent": frequent}
    return {**found, "shown": len(labels) <= MOST_CLASSES, "seeds": len(best.runs)}


def _scatter(best: Group) -> dict[str, list[float]]:
    """Gold and predicted values on test for the best group's first seed, at most `MOST_POINTS`."""
    table = predictions_of(best.runs[0].artifact, "test")
    step = -(-table.num_rows // MOST_POINTS) or 1
    return {name: [round(value, 4) for value in table[name].to_pylist()[::step]] for name in ("gold", "predicted")}


def _dropped(groups: list[Group], task: Artifact | None) -> list[dict[str, Any]]:
    """Rows that each step left out: import of the corpus and the task, then each arm's retrieval and export."""
    firsts = {one.manifest.key: one for group in groups if (one := group.runs[0].subset) is not None}  # of the draws
    shown_corpus, steps = None, []
    for subset in sorted(firsts.values(), key=lambda one: one.details["arm"] in WITHOUT_QUERIES):  # as the evidence
        hits = follow(subset, "hits")  # None for a merged subset
        corpus = follow(hits, "index", "corpus") or follow(subset, "corpus")
        shown_corpus = shown_corpus or corpus
        if hits is not None:
            steps.append(dropped(hits))
        steps.append(dropped(subset, corpus))
    return [dropped(artifact) for artifact in (shown_corpus, task) if artifact is not None] + steps


BINS = 80
PANELS = {  # title: (artifact of a run, kind of batch or None, column)
    "Stage 1, external batches: masked LM": ("checkpoint", "external", "mlm"),
    "Stage 1, task batches: masked LM": ("checkpoint", "internal", "mlm"),
    "Stage 1, task batches: cross-entropy": ("checkpoint", "internal", "ce"),
    "Stage 2: cross-entropy": ("model", None, "ce"),
}


def curves(groups: list[Group], regression: bool) -> list[dict[str, Any]]:
    """One panel for each kind of loss in some group: {title, lines: [{group, points: [[step, loss]]}]}."""
    panels = []
    for title, (part, kind, column) in PANELS.items():
        points = {group.name: _line(group, part, kind, column) for group in groups}
        if lines := [{"group": name, "points": line} for name, line in points.items() if line]:
            shown = title.replace("cross-entropy", "squared error") if regression else title
            panels.append({"title": shown, "lines": lines})
    return panels


def _line(group: Group, part: str, kind: str | None, column: str) -> list[list[float]]:
    """Mean loss over all seeds in `BINS` equal parts of the steps; [] if there is no curve."""
    read = [_read(getattr(run, part), kind, column, run.values["task"]) for run in group.runs]
    steps, losses = np.concatenate(read, axis=1)
    if not len(steps):
        return []
    edges = np.linspace(0, steps.max() + 1, min(BINS, int(steps.max()) + 1) + 1)
    place = np.searchsorted(edges, steps, side="right") - 1
    bins = [place == index for index in range(len(edges) - 1)]
    return [[round(float(steps[one].mean()), 1), round(float(losses[one].mean()), 4)] for one in bins if one.any()]


def _read(artifact: Artifact | None, kind: str | None, column: str, task: str) -> NDArray[np.float64]:
    """Steps and losses, shape [2, n]; of a stage 1 for several tasks, external batches and `task`'s own."""
    rows: list[dict[str, Any]] = []
    if artifact is not None:
        with suppress(InputError):  # kind and task are not in every file
            rows = pq.ParquetFile(artifact.path("curve.parquet")).read(["step", column, "kind", "task"]).to_pylist()
    chosen = (row for row in rows if kind in (None, row.get("kind")) and row.get("task") in (task, None))
    found = [(row["step"], row[column]) for row in chosen if row[column] is not None and math.isfinite(row[column])]
    return np.array(found, dtype=float).reshape(-1, 2).T
