"""Dev and test texts that a subset is free of: it is good for a task whose texts are all among them."""

from collections.abc import Iterator
from contextlib import suppress

from tlm.artifacts.artifact import Artifact
from tlm.data.tasks.examples import texts_in
from tlm.data.tasks.labelled import UNLABELLED, twin_key
from tlm.errors import InputError
from tlm.progress import say

UNCHECKED = "not checked against dev and test texts"
TRAINED = ("metrics", "model", "checkpoint", "tokens")  # the kinds through which a subset gets into metrics


def check_protected(subset: Artifact, *tasks: Artifact) -> None:
    """Refuse a subset that was made for another split: it may hold dev and test texts of a task.

    Texts count, not tasks: one with fewer labels has no others. A subset without a task is only warned of.

    Raises:
        InputError: some of a task's dev and test texts were not looked for, or what the subset was made from is gone.
    """
    if unchecked(subset):
        say(f"warning: {subset.uri} was imported without a task, so it was {UNCHECKED}")
        return
    for task in tasks:
        if count := unprotected(subset, task):
            raise InputError(f"{subset.uri} {_made_for_another(count, task)}; retrieve and export one for this task")


def doubts(made: Artifact, task: Artifact) -> Iterator[str]:
    """Yield a sentence for each subset made for another split that metrics, a model or a checkpoint come from.

    Artifacts that are gone cannot be judged. A merged subset counts as one: the dev and test texts of all its tasks
    were looked for in all of it.
    """
    for subset in (one for one in made.lineage(*TRAINED) if one.manifest.kind == "subset"):
        count = 0
        with suppress(InputError):
            count = unprotected(subset, task)
        if count:
            yield f"{made.uri} was trained on {subset.uri}, which {_made_for_another(count, task)}"


def warn_of(made: Artifact, task: Artifact) -> None:
    """Warn of each doubt about a checkpoint that a training starts from, which may be meant for another task."""
    for doubt in doubts(made, task):
        say(f"warning: {doubt}")


def check_trained(task: Artifact, *made: Artifact) -> None:
    """Raise InputError where metrics, a model or a checkpoint come from a subset that was made for another split."""
    for one in made:
        for doubt in doubts(one, task):
            raise InputError(f"{doubt}; train again on a subset for this task")


def unchecked(subset: Artifact) -> bool:
    """Return whether no dev and test texts were ever looked for: the subset was imported without a task."""
    return not _made_for(subset)[1]


def unprotected(subset: Artifact, task: Artifact) -> int:
    """Count the dev and test texts of a task that were not looked for in a subset; 0 for one without a task.

    Without the overlap filter none were. Then those count that the subset may have been retrieved with: the training
    texts of the task that it was made for.

    Raises:
        InputError: a task that the subset was made for is needed, but gone.
    """
    source, names = _made_for(subset)
    if not names or any(source.manifest.inputs[name].content == task.content for name in names):
        return 0
    others = [source.input(name) for name in names]
    missing = _texts(task, "dev", "test").difference(*(_texts(other, "dev", "test") for other in others))
    if subset.manifest.settings.get("overlap_share", 1) is None:
        missing &= set().union(*(_texts(other, "train", UNLABELLED) for other in others))
    return len(missing)


def _made_for(subset: Artifact) -> tuple[Artifact, list[str]]:
    """The tasks that a subset was made for, as inputs by name: its own, or that of the hits."""
    own = [name for name in subset.manifest.inputs if name.partition("-")[0] == "task"]
    if own or "hits" not in subset.manifest.inputs:
        return subset, own
    return subset.input("hits"), ["task"]


def _made_for_another(count: int, task: Artifact) -> str:
    return f"was made for another split: {count:,} dev and test texts of {task.uri} were not looked for in its passages"


def _texts(task: Artifact, *splits: str) -> set[str]:
    """The keys of the texts in some splits, of both texts of a pair."""
    return set(map(twin_key, texts_in(task, *splits)))
