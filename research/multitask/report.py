"""The step `report-multitask`: tasks side by side, each trained alone and all of them together."""

from dataclasses import asdict

from tlm.artifacts.artifact import Artifact, home
from tlm.artifacts.produce import Draft, Recipe, produce
from tlm.errors import InputError
from tlm.evaluation.report.report import report
from tlm.settings.options import Prices

VERSION = 13


def report_multitask(
    metrics: list[str],
    *,
    prices: Prices = Prices(),
    root: str | None = None,
) -> str:
    """Compare tasks trained alone with tasks trained together, and make the report of each task.

    Shows scores with intervals, and the cost of all trainings of an arm: a stage 1 that several tasks share counts
    once. Writes report.html (self-contained, without scripts), report.md and report.json.

    Args:
        metrics: URIs of the metrics of all tasks, in any order.
        prices: Of the time and energy that were spent.
        root: Store to write to, which holds all inputs; by default TLM_ROOT, else the store of the inputs.
    """
    by_task: dict[str, dict[str, Artifact]] = {}
    for uri in metrics:
        artifact = Artifact.open(uri, "metrics")
        task = artifact.manifest.inputs["task"].content
        by_task.setdefault(task, {})[artifact.manifest.key] = artifact
    runs = sorted((list(found.values()) for found in by_task.values()), key=lambda found: str(found[0].details["task"]))
    if len(runs) < 2:
        raise InputError(f"these are metrics of {len(runs)} tasks; expected two or more; for one task use `report`")
    names = [found[0].details["task"] for found in runs]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"two of the tasks are called '{name}'; give each task once, by its own name")
    root = home(root, [run for found in runs for run in found]).root
    reports = [Artifact.open(report([run.uri for run in found], prices=prices, root=root)) for found in runs]
    inputs = {f"report-{number:03d}": one for number, one in enumerate(reports)}
    recipe = Recipe("report", "report-multitask", VERSION, asdict(prices), inputs)
    return produce(recipe, root, _write, runs, reports, prices)


def _write(draft: Draft, runs: list[list[Artifact]], reports: list[Artifact], prices: Prices) -> None:
    from research.multitask.page import write_multitask
    from research.multitask.side_by_side import side_by_side

    contents = side_by_side(runs, reports, prices)
    write_multitask(draft.folder, contents)
    draft.counts["tasks"] = len(runs)
    tests = {arm["name"]: arm["mean"]["mean"] for arm in contents["arms"]}
    draft.details.update(tasks=[task["name"] for task in contents["tasks"]], test=tests)
