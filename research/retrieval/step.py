"""The step `retrieval-study`: what subsets of a corpus contain, from which sources, and for which examples."""

from collections.abc import Sequence

from research.studies import unique_names
from tlm.artifacts.artifact import Artifact, follow
from tlm.artifacts.produce import Draft, Recipe, produce
from tlm.errors import InputError

VERSION = 9


def retrieval_study(
    subsets: list[str],
    *,
    names: Sequence[str] = (),
    top: int = 10,
    sample: int = 20_000,
    seed: int = 0,
    root: str | None = None,
) -> str:
    """Study one subset, or compare several subsets of the same corpus (arms, settings, tasks).

    Shows the share of the corpus, overlap between subsets, ranks, sources, words that became more and less frequent,
    how much closer to the task's they are (KL reduction), the passages that were retrieved for the most
    examples, and how many examples share a passage. Writes study.html (self-contained, without any script), study.md,
    study.json and the figures as SVG.

    Args:
        subsets: URIs of subsets.
        names: Name of a subset on the page; repeated, in order of the subsets; by default task and arm.
        top: Number of most-retrieved passages and of over- and under-represented words to show.
        sample: Maximum number of passages, of each subset and of the corpus, whose words are counted.
        seed: Seed of that sample.
        root: Store to write to, which holds all inputs; by default TLM_ROOT, else the store of the inputs.
    """
    if top < 1 or sample < 1 or seed < 0:
        raise InputError(f"top is {top}, sample {sample} and seed {seed}; expected at least 1, 1 and 0")
    opened = [Artifact.open(uri, "subset") for uri in subsets]
    if not opened:
        raise InputError("retrieval-study needs the URI of at least one subset")
    chosen = unique_names(names, _default_names(opened), subsets, "subsets")
    inputs = {f"subset-{number:03d}": artifact for number, artifact in enumerate(opened)}
    settings = {"names": chosen, "top": top, "sample": sample, "seed": seed}
    recipe = Recipe("study", "retrieval-study", VERSION, settings, inputs)

    def write(draft: Draft) -> None:
        from research.retrieval.study import write_study

        write_study(draft, opened, settings)

    return produce(recipe, root, write)


def _default_names(subsets: list[Artifact]) -> list[str]:
    """The arm if all subsets are of one task, else arm and task; with part of the key where that is not unique."""
    tasks = []
    for one in subsets:
        task, merged = follow(one, "hits", "task"), [part["name"] for part in one.details.get("tasks", [])]
        tasks.append(task.details["name"] if task else " + ".join(merged))
    arms = [str(one.details.get("arm", "subset")) for one in subsets]
    several = len(set(tasks)) > 1
    names = [f"{arm} for {task}" if several and task else arm for task, arm in zip(tasks, arms, strict=True)]
    if len(set(names)) == len(names):
        return names
    return [f"{name} {one.manifest.key[:6]}" for name, one in zip(names, subsets, strict=True)]
