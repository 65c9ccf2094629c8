"""The step `report`: the results of runs on one task, as a page and as data."""

from collections.abc import Sequence
from dataclasses import asdict

from tlm.artifacts.artifact import Artifact
from tlm.artifacts.produce import Draft, Recipe, produce
from tlm.errors import InputError
from tlm.evaluation.tracking import track
from tlm.settings.options import Prices

VERSION = 15


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
    before = list[Artifact]()
    if against:
        from tlm.evaluation.report.since import earlier

        before = earlier(against, runs[0])
        inputs |= {f"against-{number:03d}": run for number, run in enumerate(before)}
    settings = asdict(prices) | ({"notes": list(notes)} if notes else {})
    recipe = Recipe("report", "report", VERSION, settings, inputs)
    uri = produce(recipe, root, _write, runs, prices, notes, before)
    track(Artifact.open(uri))
    return uri


def _check(runs: list[Artifact]) -> None:
    if not runs:
        raise InputError("report needs the URI of at least one metrics artifact")
    for run in runs:
        if run.manifest.inputs["task"].content != runs[0].manifest.inputs["task"].content:
            raise InputError(f"{runs[0].uri} and {run.uri} are of different tasks; make one report for each task")


def _write(draft: Draft, runs: list[Artifact], prices: Prices, notes: Sequence[str], before: list[Artifact]) -> None:
    from tlm.evaluation.report.contents import contents
    from tlm.evaluation.report.lineage import Lineage
    from tlm.evaluation.report.page import write_report

    lineage = Lineage()
    found = contents(runs, lineage.follow(runs[0], "task"), lineage, prices, before)
    found["findings"] += notes
    write_report(draft.folder, found)
    draft.counts["runs"] = len(runs)
    groups = {
        group["name"]: {part: group[part]["mean"] for part in ("dev", "test", "mlm_loss")} for group in found["groups"]
    }
    draft.details.update(task=found["task"]["name"], metric=found["task"]["metric"], groups=groups)
