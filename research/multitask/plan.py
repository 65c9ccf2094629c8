"""The runs of several tasks: stage 1 of all together, then each task alone and after it."""

from collections.abc import Sequence

from tlm.artifacts.artifact import Artifact
from tlm.data.tasks.examples import one_label_each
from tlm.data.tasks.task import load_task
from tlm.errors import InputError
from tlm.runs.plan import AUTO, PlannedRun, parse_seeds
from tlm.settings import presets
from tlm.settings.options import Fields, Problem

TOGETHER = "multi-task"


def load_together(
    paths: Sequence[str], overrides: Sequence[str], fields: Fields, problem: Problem, root: str | None
) -> list[str]:
    """Load tasks that train together. Raises InputError, before anything is read, for settings they cannot share."""
    if AUTO in overrides:
        raise InputError(f"overrides: '{AUTO}' chooses for one task, but tasks together share settings; name them")
    if "retrieve.share=classes" in overrides:
        raise InputError("overrides: retrieve.share=classes is for one task; leave it out for tasks together")
    if fields.label_separator:
        raise InputError("label_separator: tasks that train together have one label a text; leave it empty")
    tasks = [load_task(path.strip(), fields=fields, problem=problem, root=root) for path in paths]
    for task in tasks:
        one_label_each(Artifact.open(task, "task"), "training tasks together")
    return tasks


def plan_together(
    seeds: str, *, tasks: Sequence[str], tokenizer: str, subset: str, preset: str, overrides: str
) -> list[str]:
    """Return a `PlannedRun` as a string for each seed: stage 1 of several tasks together.

    It has as many steps, and as many of them are warm-up, as the runs of the single tasks have together.
    """
    train, count = presets.resolve(preset, overrides.split()).train, len(tasks)
    more = f"train.steps={train.steps * count} train.warmup_steps={train.warmup_steps * count}"
    own = f"{overrides} {more}".strip()
    return [
        str(PlannedRun(TOGETHER, seed, "\n".join(tasks), tokenizer, subset, preset, own, stages="1"))
        for seed in parse_seeds(seeds)
    ]


def plan_apart(
    together: Sequence[str], checkpoints: Sequence[str], *, subsets: Sequence[str], overrides: str
) -> list[str]:
    """Return two `PlannedRun` strings for each task and seed: the task alone, and stage 2 from the checkpoint of all.

    Args:
        together: The runs from `plan_together`.
        checkpoints: URIs of the checkpoints that these runs made, in any order.
        subsets: URIs of the subsets of the single tasks, in the order of the tasks.
        overrides: Settings to change in the runs of single tasks.
    """
    starts = {Artifact.open(uri, "checkpoint").details["seed"]: uri for uri in checkpoints}
    found = []
    for text in together:
        run = PlannedRun.parse(text)._replace(overrides=overrides)
        for task, subset in zip(run.tasks(), subsets, strict=True):
            found.append(run._replace(arm="bm25", task=task, subset=subset, stages="12"))
            found.append(run._replace(task=task, stages="2", start=starts[run.seed]))
    return [str(run) for run in found]
