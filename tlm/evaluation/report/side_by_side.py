"""All that the report on several tasks says: scores by task and arm, and what each arm's trainings cost together."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

from tlm.artifacts.artifact import Artifact
from tlm.errors import InputError
from tlm.evaluation.pages.text import power
from tlm.evaluation.report.cost import Cost, Prices, total
from tlm.evaluation.report.findings import hundred, points
from tlm.evaluation.report.lineage import Lineage
from tlm.evaluation.report.runs import Group, Run, grouped, spreads, with_interval
from tlm.evaluation.score.intervals import LEAST_SEEDS, Arm, compared, difference

TOGETHER = "multi-task"
Told = dict[str, Any]
Groups = dict[str, Group]  # of one task, by arm
Training = tuple[str, tuple[str, ...]]  # the stage, and the tasks that it was for


def side_by_side(metrics: Sequence[Sequence[Artifact]], reports: Sequence[Artifact], prices: Prices) -> Told:
    """Everything about several tasks that were trained in the same arms.

    Args:
        metrics: Of each task the ``metrics`` artifacts.
        reports: Of each task the ``report``.
        prices: What the trainings' time and energy are paid by.

    Raises:
        InputError: an arm of a task was run with several settings, or the tasks have no arm in common.
    """
    pages = [json.loads(report.path("report.json").read_text(encoding="utf-8")) for report in reports]
    names = [page["task"]["name"] for page in pages]
    runs = [[Run.read(one, Lineage()) for one in own] for own in metrics]
    found = [_by_arm(name, grouped(own)) for name, own in zip(names, runs, strict=True)]
    common = [arm for arm in found[0] if all(arm in groups for groups in found)]
    if not common:
        raise InputError(f"{', '.join(names)} have no arm in common; give metrics of the same arms for all tasks")
    tasks = [_task(page, common, report) for page, report in zip(pages, reports, strict=True)]
    arms = [
        {name: shown[name] for name in ("arm", "name", "role")} | _arm(names, [groups[arm] for groups in found], prices)
        for arm, shown in zip(common, tasks[0]["groups"], strict=True)
    ]
    differences = list(_differences(names, {arm["name"]: [own[arm["arm"]] for own in found] for arm in arms}, arms))
    told = {"tasks": tasks, "arms": arms, "prices": asdict(prices), "differences": differences}
    return {**told, "findings": list(_findings(arms, tasks, differences))}


def _by_arm(name: str, groups: Sequence[Group]) -> Groups:
    found: Groups = {}
    for group in groups:
        if group.stage == "stage 1":  # whole runs are compared with whole runs
            continue
        if group.arm in found:
            raise InputError(
                f"the runs of {group.arm} on {name} differ in their settings ({found[group.arm].name}; {group.name}); "
                "give the metrics of one setting"
            )
        found[group.arm] = group
    return found


def _task(page: Told, common: Sequence[str], report: Artifact) -> Told:
    scores = {group["arm"]: group for group in page["groups"] if group["arm"] in common and group["stage"] != "stage 1"}
    return {
        **{name: page["task"][name] for name in ("name", "metric", "metric_name", "counts")},
        "report": f"report/{report.manifest.key}",
        "groups": [scores[arm] for arm in common],
    }


def _arm(names: Sequence[str], groups: Sequence[Group], prices: Prices) -> Told:
    """Mean score over the tasks for each seed that all have, and what all trainings cost."""
    by_seed, seeds = [{run.values["seed"]: run for run in group.runs} for group in groups], _seeds(groups)
    runs = {seed: [one[seed] for one in by_seed] for seed in seeds}
    trainings, totals = _trainings(names, runs)
    return {
        "seeds": seeds,
        "mean": with_interval(_over_tasks(groups)),
        "trainings": [
            {"stage": stage, "tasks": list(tasks), **spreads(costs, prices)} for (stage, tasks), costs in trainings
        ],
        "total": spreads(totals, prices),
    }


def _seeds(groups: Sequence[Group]) -> list[int]:
    """Those that every group has."""
    return [seed for seed in groups[0].seeds if all(seed in group.seeds for group in groups)]


def _over_tasks(groups: Sequence[Group]) -> Arm:
    """One arm's runs on the test splits of all tasks: a run for each seed that all tasks have."""
    seeds, splits = _seeds(groups), []
    for group in groups:
        (split,) = group.on("test").splits
        splits.append(replace(split, predicted=split.predicted[[group.seeds.index(seed) for seed in seeds]]))
    return Arm(tuple(splits), fixed=groups[0].arm == "baseline")


def _differences(names: Sequence[str], groups: dict[str, list[Group]], arms: Sequence[Told]) -> Iterator[Told]:
    """Training together minus each other arm on test: over all tasks (task ""), then on each task."""
    together, others = _compared(arms)
    if together is None:
        return
    count = len(others) * (1 + len(names))
    for other in others:
        first, second = together["name"], other["name"]
        pairs = [(_over_tasks(groups[first]), _over_tasks(groups[second]))]
        pairs += [(a.on("test"), b.on("test")) for a, b in zip(groups[first], groups[second], strict=True)]
        for task, (a, b) in zip(["", *names], pairs, strict=True):
            yield {"task": task, **compared(first, second, difference(a, b, count))}


def _compared(arms: Sequence[Told]) -> tuple[Told | None, list[Told]]:
    """The arm that trained together, if any, and those that it is compared with."""
    together = next((arm for arm in arms if arm["arm"] == TOGETHER), None)
    return together, [arm for arm in arms if arm["arm"] not in (TOGETHER, "baseline")]


def _trainings(
    names: Sequence[str], runs: dict[int, list[Run]]
) -> tuple[list[tuple[Training, list[Cost]]], list[Cost]]:
    """The trainings by stage and tasks, each with its cost by seed, and the sum over all of them by seed."""
    found: dict[Training, list[Cost]] = {}
    totals = []
    for own in runs.values():
        once: dict[tuple[str, str], tuple[list[str], Cost]] = {}  # a stage 1 that several tasks share is one training
        for name, run in zip(names, own, strict=True):
            for stage, cost in run.costs().items():
                shared = run.checkpoint.manifest.key if run.checkpoint is not None and stage == "stage 1" else name
                once.setdefault((stage, shared), ([], cost))[0].append(name)
        for (stage, _), (tasks, cost) in once.items():
            found.setdefault((stage, tuple(tasks)), []).append(cost)
        totals.append(total(cost for _, cost in once.values()))
    return sorted(found.items(), key=lambda pair: pair[0][0]), totals


def _findings(arms: Sequence[Told], tasks: Sequence[Told], differences: Sequence[Told]) -> Iterator[str]:
    """Sentences, the most important first; an order is claimed only where intervals carry it."""
    together, others = _compared(arms)
    if together is None or not others:
        yield f"{len(tasks)} tasks side by side; there is nothing to compare {TOGETHER} with."
        return
    place = arms.index(together)
    for other in others:
        claims = {one["task"]: _claim(one) for one in differences if one["second"] == other["name"]}
        yield (
            f"On average over {len(tasks)} tasks, one encoder for all ({together['name']}) reaches "
            f"{hundred(together['mean'])} on test, each task alone ({other['name']}) {hundred(other['mean'])}; "
            f"{claims['']}."
        )
        for task in tasks:
            scores = [task["groups"][at]["test"] for at in (place, arms.index(other))]
            told = f"together {hundred(scores[0])}, alone {hundred(scores[1])}"
            yield f"{task['name']}: {told}; {claims[task['name']]}."
        yield from _spent(together, other)


def _claim(found: Told) -> str:
    if found["low"] is None:
        return f"fewer than {LEAST_SEEDS} seeds give no interval, so no order is claimed"
    told = points(found, found["first"])
    return f"{found['ahead']} is ahead ({told})" if found["ahead"] else f"no order is claimed ({told})"


def _spent(together: Told, other: Told) -> Iterator[str]:
    ours, theirs = (arm["total"]["flops"]["mean"] for arm in (together, other))
    if ours and theirs:
        yield (
            f"All trainings of a seed together cost {power(ours)} FLOPs with {together['name']} and {power(theirs)} "
            f"with {other['name']}: {ours / theirs:.2f} times as much."
        )
