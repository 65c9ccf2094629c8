"""The step `retrieval-study`: what one or several subsets of a corpus hold, from where, and for whom."""

from collections.abc import Sequence

from tlm.artifacts.artifact import Artifact
from tlm.artifacts.produce import Draft, Recipe, produce
from tlm.errors import InputError

VERSION = 2


def retrieval_study(
    subsets: list[str],
    *,
    names: Sequence[str] = (),
    top: int = 10,
    sample: int = 20_000,
    seed: int = 0,
    root: str | None = None,
) -> str:
    """Look into one subset, or lay several of the same corpus side by side (arms, settings, tasks).

    Share of the corpus, overlap between subsets, ranks, sources, words that became more and less frequent, passages
    that the most labelled examples asked for, and how many examples share a passage. Writes study.html (self-contained,
    without any script), study.md, study.json and the figures as SVG.

    Args:
        subsets: URIs of subsets.
        names: What to call them, in their order; without it, by task and arm.
        top: How many of the most-asked passages and of the most-shifted words are shown.
        sample: Passages at most whose words are counted, of each subset and of the corpus.
        seed: Of that sample.
        root: Store to write to, which holds all inputs; by default TLM_ROOT, else the store of the inputs.
    """
    if top < 1 or sample < 1 or seed < 0:
        raise InputError(f"top is {top}, sample {sample} and seed {seed}; expected at least 1, 1 and 0")
    opened = [Artifact.open(uri, "subset") for uri in subsets]
    if not opened:
        raise InputError("retrieval-study needs the URI of at least one subset")
    called = _called(opened, names)
    inputs = {f"subset-{number:03d}": artifact for number, artifact in enumerate(opened)}
    settings = {"names": called, "top": top, "sample": sample, "seed": seed}
    recipe = Recipe("study", "retrieval-study", VERSION, settings, inputs)

    def write(draft: Draft) -> None:
        from tlm.analysis.retrieval.study import write_study

        write_study(draft, opened, settings)

    return produce(recipe, root, write)


def _called(subsets: list[Artifact], names: Sequence[str]) -> list[str]:
    if names and len(names) != len(subsets):
        raise InputError(f"{len(names)} names for {len(subsets)} subsets; give one name for each, in their order")
    called = list(names) or _by_origin(subsets)
    if len(set(called)) < len(called):
        twice = next(name for name in called if called.count(name) > 1)
        raise InputError(f"two subsets are called '{twice}'; give --names that differ, and each subset once")
    return called


def _by_origin(subsets: list[Artifact]) -> list[str]:
    """Arm alone where all are of one task, else task and arm; with some of the key where that is not enough."""
    from tlm.evaluation.report.lineage import Lineage

    lineage = Lineage()
    tasks = [_tasks(one, lineage.follow(one, "hits", "task")) for one in subsets]
    arms = [str(one.details.get("arm", "subset")) for one in subsets]
    several = len(set(tasks)) > 1
    called = [f"{arm} for {task}" if several and task else arm for task, arm in zip(tasks, arms, strict=True)]
    if len(set(called)) == len(called):
        return called
    keys = {one.manifest.key for one in subsets}
    if len(keys) < len(subsets):
        return called
    return [f"{name} {one.manifest.key[:6]}" for name, one in zip(called, subsets, strict=True)]


def _tasks(subset: Artifact, task: Artifact | None) -> str:
    """Whose it is: a task's, or those of all whose subsets were merged; "" if nobody knows."""
    return " + ".join(one["name"] for one in subset.details.get("tasks", [])) or (task.details["name"] if task else "")
