"""What was spent: once for all tasks, once for this task, and by each arm for its text and its training."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tlm.artifacts.artifact import Artifact
from tlm.evaluation.mixture.kinds import PARTS
from tlm.evaluation.pages.text import visible
from tlm.evaluation.report.bill.amounts import NOTHING_KNOWN, amounts, mean, spent_on, summed
from tlm.evaluation.report.cost import Cost, total
from tlm.evaluation.report.lineage import Lineage
from tlm.evaluation.report.runs import Group, Run
from tlm.evaluation.score.imported import IMPORTED
from tlm.options import Prices

ALL_TASKS, THIS_TASK, ARM = "all tasks", "this task", "arm"  # who shares a row
RETRIEVED = "bm25"  # the text that all arms of a task are measured by
Row = dict[str, Any]


def spent(groups: Sequence[Group], lineage: Lineage, prices: Prices) -> list[Row]:
    """The rows of the bill: who shares it, part, passages, arm, and its amounts. What is gone has no row."""
    runs = [run for group in groups for run in group.runs]
    subsets = _distinct(run.subset for run in runs)
    rows = [*_for_all(subsets, lineage), *_for_this(subsets, lineage), *_tokens(runs, lineage)]
    rows += [*_selected(groups, lineage), *_trained(groups)]
    return [row | amounts(cost, prices) for row, cost in rows]


def _row(shared: str, part: str, cost: Cost, passages: int | None = None, arm: str = "") -> tuple[Row, Cost]:
    return {"shared": shared, "part": part, "arm": arm, "passages": passages}, cost


def _for_all(subsets: Iterable[Artifact], lineage: Lineage) -> Iterator[tuple[Row, Cost]]:
    """What serves any task on this corpus."""
    exported = [part for subset in subsets for part in _parts(subset, lineage)]
    hits = [lineage.follow(part, "hits") for part in exported]
    indexes = _distinct(lineage.follow(one, "index") for one in hits)
    for corpus in _distinct(lineage.follow(one, "corpus") for one in (*indexes, *exported)):
        yield _row(ALL_TASKS, "corpus", spent_on(corpus, lineage), corpus.details.get("passages"))
    for index in indexes:
        yield _row(ALL_TASKS, "index", spent_on(index, lineage))


def _for_this(subsets: Iterable[Artifact], lineage: Lineage) -> Iterator[tuple[Row, Cost]]:
    """Retrieval and export for the task, whose passages the other arms are measured by, too."""
    for subset in subsets:
        if subset.details["arm"] == RETRIEVED:
            if hits := [lineage.follow(part, "hits") for part in _parts(subset, lineage) if "hits" in _inputs(part)]:
                cost = summed(spent_on(one, lineage) for one in hits)
                yield _row(THIS_TASK, "retrieval", cost)
            cost = summed(spent_on(one, lineage) for one in _exports(subset, lineage))
            yield _row(THIS_TASK, "export", cost, subset.details["passages"])


def _tokens(runs: Iterable[Run], lineage: Lineage) -> Iterator[tuple[Row, Cost]]:
    """The tokenizer, and the tokens of the task and of all arms' texts."""
    trained = [one for run in runs for one in (run.checkpoint, run.model) if one is not None]
    found = _distinct(lineage.follow(one, name) for one in trained for name in _inputs(one) if "tokens" in name)
    made = [*_distinct(lineage.follow(one, "tokenizer") for one in found), *found]
    if made:
        cost = summed(spent_on(one, lineage) for one in made)
        yield _row(THIS_TASK, "tokens", cost)


def _selected(groups: Iterable[Group], lineage: Lineage) -> Iterator[tuple[Row, Cost]]:
    """How the other arms chose their text: search or scores, and export; mean over the draws."""
    found = {one[0].manifest.key: one for group in groups if (one := _distinct(run.subset for run in group.runs))}
    for draws in found.values():
        arm = draws[0].details["arm"]
        if arm != RETRIEVED:
            cost = mean([_selection(subset, lineage) for subset in draws])
            yield _row(ARM, "selection", cost, draws[0].details["passages"], visible(arm, 40))


def _selection(subset: Artifact, lineage: Lineage) -> Cost:
    costs = [spent_on(one, lineage) for one in _exports(subset, lineage)]
    for part in _parts(subset, lineage):
        costs += _chosen(lineage.follow(part, "hits"), lineage)
    return summed(costs)


def _chosen(hits: Artifact | None, lineage: Lineage) -> list[Cost]:
    """A search; or a model that chose: its training, the passages that it chose from, and the choice."""
    if hits is None or "checkpoint" not in _inputs(hits):
        return [spent_on(hits, lineage)]
    model = lineage.follow(hits, "checkpoint")
    if model is None:
        return [NOTHING_KNOWN]
    tokens = lineage.follow(hits, "subset_tokens")
    many = lineage.follow(tokens, "data")
    before = [lineage.follow(many, "hits"), many, tokens]
    training = spent_on(model, lineage, model.details["cost"])
    return [training, spent_on(hits, lineage, hits.counts), *(spent_on(one, lineage) for one in before)]


def _trained(groups: Iterable[Group]) -> Iterator[tuple[Row, Cost]]:
    """Training, mean over seeds; a mixture costs what its parts cost."""
    for group in groups:
        if PARTS not in group.row.kind and group.row.kind != IMPORTED:
            costs = [total(run.costs().values()) for run in group.runs]
            yield _row(ARM, "training", mean(costs), arm=group.name)


def _parts(subset: Artifact, lineage: Lineage) -> list[Artifact]:
    """The subset; of a merged one, those of its tasks."""
    names = [name for name in _inputs(subset) if name.startswith("subset-")]
    return [found for name in names if (found := lineage.follow(subset, name))] if names else [subset]


def _exports(subset: Artifact, lineage: Lineage) -> list[Artifact]:
    return _distinct([subset, *_parts(subset, lineage)])


def _inputs(artifact: Artifact) -> list[str]:
    return list(artifact.manifest.inputs)


def _distinct(found: Iterable[Artifact | None]) -> list[Artifact]:
    """Each artifact once, without those that are gone."""
    return list({one.manifest.key: one for one in found if one is not None}.values())
