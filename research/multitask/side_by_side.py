"""The contents of the report on several tasks: scores by task and arm, and the cost of each arm's trainings."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

from research.multitask.plan import TOGETHER
from tlm.artifacts.artifact import Artifact
from tlm.errors import InputError
from tlm.evaluation.pages.text import power
from tlm.evaluation.report.findings import points, score_text
from tlm.evaluation.report.runs import Group, ScoredModel, Spent, grouped, spreads, total
from tlm.evaluation.score.intervals import LEAST_SEEDS, Arm, Difference, compared, with_interval
from tlm.settings.options import Prices

Contents = dict[str, Any]
Training = tuple[str, tuple[str, ...]]  # a stage, and the tasks that it was for


def side_by_side(metrics: Sequence[Sequence[Artifact]], reports: Sequence[Artifact], prices: Prices) -> Contents:
    """Collect all about several tasks that were trained in the same arms.

    Args:
        metrics: The ``metrics`` artifacts of each task.
        reports: The ``report`` of each task.
        prices: Prices of time and energy.

    Raises:
        InputError: an arm of a task was run with several settings, or the tasks have no arm in common.
    """
    pages = [report.json("report.json") for report in reports]
    names = [page["task"]["name"] for page in pages]
    found = [_by_arm(name, own) for name, own in zip(names, metrics, strict=True)]
    common = [arm for arm in found[0] if all(arm in groups for groups in found)]
    if not common:
        raise InputError(f"{', '.join(names)} have no arm in common; give metrics of the same arms for all tasks")
    tasks = [_task(page, common, report) for page, report in zip(pages, reports, strict=True)]
    groups = {arm: [own[arm] for own in found] for arm in common}
    arms = [
        {name: shown[name] for name in ("arm", "name", "role")} | _arm(names, groups[shown["arm"]], prices)
        for shown in tasks[0]["groups"]
    ]
    differences = list(_differences(names, groups, arms))
    contents = {"tasks": tasks, "arms": arms, "prices": asdict(prices), "differences": differences}
    return {**contents, "findings": [*_findings(arms, tasks, differences), *_left_out(names, found)]}


def _left_out(names: Sequence[str], found: Sequence[dict[str, Group]]) -> Iterator[str]:
    """A sentence for each arm that some of the tasks lack."""
    for arm in dict.fromkeys(arm for groups in found for arm in groups):
        lacking = [name for name, groups in zip(names, found, strict=True) if arm not in groups]
        if lacking:
            of = f"{len(lacking)} of the {len(names)} tasks, {lacking[0]} for one"
            yield f"{arm} is left out of this page, because there are no runs of it on {of}."


def _by_arm(name: str, metrics: Sequence[Artifact]) -> dict[str, Group]:
    """The groups of a task by arm, whole runs only: groups that ended after stage 1 are left out."""
    found: dict[str, Group] = {}
    for group in grouped(metrics):
        if group.stage == "stage 1":
            continue
        if group.arm in found:
            raise InputError(
                f"the runs of {group.arm} on {name} differ in their settings ({found[group.arm].name}; {group.name}); "
                "give the metrics of one setting"
            )
        found[group.arm] = group
    return found


def _task(page: Contents, common: Sequence[str], report: Artifact) -> Contents:
    scores = {group["arm"]: group for group in page["groups"] if group["arm"] in common and group["stage"] != "stage 1"}
    return {
        **{name: page["task"][name] for name in ("name", "metric", "metric_name", "counts")},
        "report": f"report/{report.manifest.key}",
        "groups": [scores[arm] for arm in common],
    }


def _arm(names: Sequence[str], groups: Sequence[Group], prices: Prices) -> Contents:
    """The mean score over the tasks, for the seeds that all tasks have, and the cost of all trainings."""
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
    """The seeds that every group has. Raises InputError if there is none."""
    if found := [seed for seed in groups[0].seeds if all(seed in group.seeds for group in groups)]:
        return found
    raise InputError(f"the tasks have no seed of {groups[0].arm} in common; give metrics of the same seeds for all")


def _over_tasks(groups: Sequence[Group]) -> Arm:
    """One arm's predictions for the test splits of all tasks, for the seeds that all tasks have."""
    seeds, splits = _seeds(groups), []
    for group in groups:
        (split,) = group.on("test").splits
        splits.append(replace(split, predicted=split.predicted[[group.seeds.index(seed) for seed in seeds]]))
    drawn = [[group.draws[group.seeds.index(seed)] for seed in seeds] for group in groups if group.draws]
    draws = tuple(min(drawn, key=lambda one: len(set(one)), default=()))  # of the task that has fewest
    return Arm(tuple(splits), fixed=groups[0].arm == "baseline", draws=draws)


class OnTask(Difference):
    """A difference on one task; on the mean of all, the task is ""."""

    task: str


def _differences(names: Sequence[str], groups: dict[str, list[Group]], arms: Sequence[Contents]) -> Iterator[OnTask]:
    """The difference on test between training together and each other arm: over all tasks (task ""), then by task."""
    together, others = _compared(arms)
    if together is None:
        return
    ours = groups[TOGETHER]
    for other in others:
        theirs = groups[other["arm"]]
        pairs = [(_over_tasks(ours), _over_tasks(theirs))]
        pairs += [(a.on("test"), b.on("test")) for a, b in zip(ours, theirs, strict=True)]
        for task, (a, b) in zip(["", *names], pairs, strict=True):
            both = together["name"], other["name"]
            yield {"task": task, **compared(both, a, b, comparisons=len(others) * len(pairs))}


def _compared(arms: Sequence[Contents]) -> tuple[Contents | None, list[Contents]]:
    """The arm that trained all tasks together, if any, and the arms to compare it with."""
    together = next((arm for arm in arms if arm["arm"] == TOGETHER), None)
    return together, [arm for arm in arms if arm["arm"] not in (TOGETHER, "baseline")]


def _trainings(
    names: Sequence[str], runs: dict[int, list[ScoredModel]]
) -> tuple[list[tuple[Training, list[Spent]]], list[Spent]]:
    """The cost of each training (stage and tasks) by seed, and the sum over all trainings by seed."""
    found: dict[Training, list[Spent]] = {}
    totals = []
    for own in runs.values():
        once: dict[tuple[str, str], tuple[list[str], Spent]] = {}  # a stage 1 that several tasks share is one training
        for name, run in zip(names, own, strict=True):
            for stage, cost in run.costs().items():
                shared = run.checkpoint.manifest.key if run.checkpoint is not None and stage == "stage 1" else name
                once.setdefault((stage, shared), ([], cost))[0].append(name)
        for (stage, _), (tasks, cost) in once.items():
            found.setdefault((stage, tuple(tasks)), []).append(cost)
        totals.append(total(cost for _, cost in once.values()))
    return sorted(found.items(), key=lambda pair: pair[0][0]), totals


def _findings(arms: Sequence[Contents], tasks: Sequence[Contents], differences: Sequence[OnTask]) -> Iterator[str]:
    """Sentences, the most important first; an order is claimed only where an interval supports it."""
    together, others = _compared(arms)
    if together is None or not others:
        yield f"{len(tasks)} tasks. There is nothing to compare without runs of {TOGETHER} and of another arm."
        return
    place = arms.index(together)
    for other in others:
        claims = {one["task"]: _claim(one) for one in differences if one["second"] == other["name"]}
        yield (
            f"On average over {len(tasks)} tasks, one encoder for all ({together['name']}) reaches "
            f"{score_text(together['mean'])} on test, each task alone ({other['name']}) {score_text(other['mean'])}; "
            f"{claims['']}."
        )
        for task in tasks:
            both, alone = (score_text(task["groups"][at]["test"]) for at in (place, arms.index(other)))
            yield f"{task['name']}: together {both}, alone {alone}; {claims[task['name']]}."
        yield from _flops(together, other)


def _claim(found: Difference) -> str:
    if found["low"] is None:
        return f"fewer than {LEAST_SEEDS} seeds give no interval, so no order is claimed"
    claim = f"{found['ahead']} is ahead" if found["ahead"] else "no order is claimed"
    return f"{claim}: {points(found)}"


def _flops(together: Contents, other: Contents) -> Iterator[str]:
    ours, theirs = (arm["total"]["flops"]["mean"] for arm in (together, other))
    if ours and theirs:
        yield (
            f"For one seed, all trainings cost {power(ours)} FLOPs with {together['name']} and {power(theirs)} with "
            f"{other['name']}, a ratio of {ours / theirs:.2f}."
        )
