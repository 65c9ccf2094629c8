"""Merge: make one subset of those of several tasks, each passage once and free of every task's dev and test texts."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tlm.artifacts.artifact import Artifact
from tlm.artifacts.produce import Draft, Recipe, produce
from tlm.data.passages import passages
from tlm.data.ranges import Ints
from tlm.errors import InputError
from tlm.progress import say
from tlm.retrieval.retrieve import retrieve
from tlm.retrieval.subset.export import SUBSET, by_document, export, grouped, write_subset
from tlm.retrieval.subset.judge import SURPLUS, Candidates, judge
from tlm.settings.options import Filters


def task_subsets(
    index: str,
    tasks: Sequence[str],
    filters: Filters,
    *,
    query: Literal["full", "rake", "auto"],
    top_k: int,
    root: str | None = None,
) -> list[str]:
    """Retrieve and export a subset for each task. Returns the URI of their union, then theirs."""
    found = [retrieve(index, task, query=query, top_k=top_k, root=root) for task in tasks]
    own = [export(hits, filters=filters, root=root) for hits in found]
    return [merge_subsets(own, filters=replace(filters, min_words=0), root=root), *own]  # short ones are gone already


VERSION = 4
MERGED = SUBSET.append(pa.field("tasks", pa.list_(pa.string())))


@dataclass(frozen=True)
class Part:
    """The subset of one task.

    Attributes:
        name: The task's name.
        subset: What was exported for it.
        task: The task.
        first: The number of its first query in the merged subset, where queries are numbered through all tasks.
    """

    name: str
    subset: Artifact
    task: Artifact
    first: int


def merge_subsets(
    subsets: list[str],
    *,
    filters: Filters = Filters(min_words=0),
    root: str | None = None,
) -> str:
    """Merge what several tasks retrieved from one corpus into a subset for all of them.

    A passage retrieved for one task may hold a test text of another one, or nearly repeat a passage retrieved for it.
    Such passages are removed as in `export`.

    Args:
        subsets: URIs of the tasks' exported subsets.
        filters: What is left out; short passages stay by default.
        overlap: Remove passages that overlap dev or test texts of any of the tasks.
        root: Store to write to, which holds all inputs; by default TLM_ROOT, else the store of the inputs.

    Returns:
        The URI of the subset: as `export` writes it, with a column ``tasks``, the names of the tasks that retrieved the
        passage. ``queries`` are numbered through all tasks; ``details.tasks`` has each task's name, the number of its
        first query, and its number of passages.

    Raises:
        InputError: a setting is out of range, the subsets are of different corpora or arms, or of tasks with one name.
    """
    parts = _parts([Artifact.open(uri, "subset") for uri in subsets])
    corpus = parts[0].subset.input("corpus")
    inputs = {"corpus": corpus}
    for number, part in enumerate(parts):
        inputs |= {f"subset-{number}": part.subset, f"task-{number}": part.task}
    recipe = Recipe("subset", "merge-subsets", VERSION, settings=filters.settings(), inputs=inputs)
    return produce(recipe, root, _write, parts, corpus, filters)


def _parts(subsets: Sequence[Artifact]) -> list[Part]:
    if not subsets:
        raise InputError("no subset is given; expected those of two or more tasks")
    parts: list[Part] = []
    first = 0
    for subset in subsets:
        if "hits" not in subset.manifest.inputs:
            raise InputError(f"{subset.uri} was not made by export, so its queries are unknown; give exported subsets")
        hits = subset.input("hits")
        task = hits.input("task")
        parts.append(Part(str(task.details["name"]), subset, task, first))
        first += int(hits.counts.get("queries", 0))
    _check_together(parts)
    return parts


def _check_together(parts: Sequence[Part]) -> None:
    one, names = parts[0].subset, [part.name for part in parts]
    for part in parts:
        other = part.subset
        if other.manifest.inputs["corpus"].content != one.manifest.inputs["corpus"].content:
            raise InputError(f"{one.uri} and {other.uri} are of different corpora; retrieve all tasks from one index")
        if other.details["arm"] != one.details["arm"]:
            arms = f"of the arms {one.details['arm']} and {other.details['arm']}"
            raise InputError(f"{one.uri} and {other.uri} are {arms}; merge subsets of one arm")
        if names.count(part.name) > 1:
            raise InputError(f"two of the subsets are of a task called '{part.name}'; give each task once, by a name")


def _write(draft: Draft, parts: Sequence[Part], corpus: Artifact, filters: Filters) -> None:
    columns = [_columns(part.subset, "doc", "best_rank", "best_score") for part in parts]
    hits = [tuple(column.to_numpy() for column in own) for own in columns]
    candidates = Candidates(f"{len(parts)} subsets", lambda: passages(corpus, ["doc", "text"]), *by_document(hits))
    verdicts = judge(candidates, filters, {part.name: part.task for part in parts})
    docs = candidates.docs[verdicts.rows()]
    lists = _provenance(parts, docs)
    shared = int(np.count_nonzero(lists["tasks"].value_lengths().to_numpy() > 1))
    found = Counter(lists["tasks"].flatten().to_pylist())
    tasks = [{"name": part.name, "first_query": part.first, "passages": found[part.name]} for part in parts]
    draft.counts = {"retrieved": sum(len(docs) for docs, *_ in hits)}
    draft.details = {"arm": parts[0].subset.details["arm"], "tasks": tasks}
    write_subset(draft, verdicts, range(SURPLUS), lists, MERGED)
    draft.counts["by several"] = shared
    say(f"merge: {len(docs):,} passages of {len(parts)} tasks, {shared:,} of them found by several")


def _provenance(parts: Sequence[Part], docs: Ints) -> dict[str, pa.Array]:
    """The queries that found each of `docs` (ascending), numbered through all tasks, and the tasks that did."""
    query_rows, queries, task_rows, tasks = [], [], [], []
    for part in parts:
        doc, asked = _columns(part.subset, "doc", "queries")
        kept = pc.is_in(doc, value_set=pa.array(docs))
        rows, asked = np.searchsorted(docs, doc.filter(kept).to_numpy()), asked.filter(kept)
        numbers = asked.flatten().to_numpy()
        query_rows.append(rows[pc.list_parent_indices(asked).to_numpy()])
        queries.append(np.where(numbers < 0, numbers, numbers + part.first))  # -1: a random passage, without a query
        task_rows.append(rows)
        tasks.append(np.full(len(rows), part.name, object))
    return {
        "queries": grouped(np.concatenate(query_rows), np.concatenate(queries), len(docs)),
        "tasks": grouped(np.concatenate(task_rows), np.concatenate(tasks), len(docs)),
    }


def _columns(subset: Artifact, *names: str) -> list[pa.Array]:
    """Read columns of all passages of a subset."""
    table = pa.Table.from_batches(list(passages(subset, list(names))))
    return [column.combine_chunks() for column in table.columns]
