"""Merge: the subsets of several tasks as one, each passage once, with who asked for it, and clean for all of them."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from tlm.artifacts.artifact import Artifact
from tlm.artifacts.produce import Draft, Recipe, produce
from tlm.data.corpus import passages
from tlm.data.shards import Shards
from tlm.errors import InputError
from tlm.progress import say
from tlm.retrieval.subset.export import DROPPED, SUBSET, read_passages
from tlm.retrieval.subset.judge import (
    KEPT,
    NEAR_DUPLICATE,
    OVERLAPS_DEV,
    OVERLAPS_TEST,
    REASONS,
    Filters,
    Protected,
    Verdicts,
    remove_near_duplicates,
    remove_overlaps,
)
from tlm.retrieval.subset.ngrams import Ints, TokenLists, Vocabulary, offsets_of
from tlm.retrieval.subset.union import Union

VERSION = 2
MERGED = SUBSET.append(pa.field("tasks", pa.list_(pa.string())))


@dataclass(frozen=True)
class Part:
    """The subset of one task, its queries numbered on from those of the parts before it: `first` is added."""

    name: str
    subset: Artifact
    task: Artifact
    first: int


def merge_subsets(
    subsets: list[str],
    *,
    near_duplicates: bool = True,
    overlap: bool = True,
    jaccard: float = 0.8,
    overlap_share: float = 0.3,
    passage_share: float = 0.5,
    ngram: int = 8,
    root: str | None = None,
) -> str:
    """Merge what several tasks retrieved from one corpus into a subset for all of them.

    A passage that one task retrieved may hold another one's test text, or nearly repeat what another one retrieved:
    such passages are removed as `export` does it.

    Args:
        subsets: URIs of the tasks' exported subsets.
        near_duplicates: Remove passages that nearly repeat a better one (by best rank, then score, then document).
        overlap: Remove passages that overlap dev or test texts of any of the tasks.
        jaccard: Near-duplicates have at least this Jaccard similarity of their sets of word 5-grams.
        overlap_share: A passage overlaps a text if it has at least this share of the text's n-grams.
        passage_share: It also does if at least this share of its own n-grams is in the text, as in a long text's part.
        ngram: Words in such an n-gram; a text or passage with fewer (but 3 or more) must occur whole.
        root: Store to write to, which holds all inputs; by default TLM_ROOT, else the store of the inputs.

    Returns:
        The URI of the subset: as `export` writes it, and ``tasks``: the names of those that asked for a passage.
        ``queries`` are numbered through all tasks; ``details.tasks`` has each one's name, first number and passages.

    Raises:
        InputError: a setting is out of range, the subsets are of different corpora or arms, or of tasks with one name.
    """
    filters = Filters.of(
        near_duplicates=near_duplicates,
        overlap=overlap,
        jaccard=jaccard,
        overlap_share=overlap_share,
        passage_share=passage_share,
        ngram=ngram,
    )
    parts = _parts([Artifact.open(uri, "subset") for uri in subsets])
    corpus = parts[0].subset.input("corpus")
    inputs = {"corpus": corpus}
    for number, part in enumerate(parts):
        inputs |= {f"subset-{number}": part.subset, f"task-{number}": part.task}
    recipe = Recipe("subset", "merge-subsets", VERSION, settings=asdict(filters), inputs=inputs)
    return produce(recipe, root, lambda draft: _write(draft, parts, corpus, filters))


def _parts(subsets: Sequence[Artifact]) -> list[Part]:
    if not subsets:
        raise InputError("no subset is given; expected those of two or more tasks")
    parts: list[Part] = []
    first = 0
    for subset in subsets:
        if not subset.has_input("hits"):
            raise InputError(f"{subset.uri} was not made by export, so nobody knows who asked; give exported subsets")
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
    union, found = _union(parts)
    texts = (text for table in read_passages(corpus, union.docs) for text in table["text"].to_pylist())
    verdicts, whose = _judge(texts, union, parts, filters)
    kept = verdicts.rows()
    counts = {REASONS[reason]: len(verdicts.rows(reason)) for reason in (KEPT, *_REMOVED)}
    if not len(kept):
        raise InputError(f"the filters leave none of the {len(union):,} passages of {len(parts)} subsets ({counts})")
    of = [np.isin(rows, kept, assume_unique=True) for rows in found]
    shared = np.bincount(np.concatenate(found), minlength=len(union))[kept] > 1
    retrieved = sum(len(rows) for rows in found)
    draft.counts = {"retrieved": retrieved, "candidates": len(union), **counts, "by several": int(shared.sum())}
    tasks = [
        {"name": part.name, "first_query": part.first, "passages": int(there.sum())}
        for part, there in zip(parts, of, strict=True)
    ]
    draft.details = {"arm": parts[0].subset.details["arm"], "passages": len(kept), "tasks": tasks}
    _write_kept(draft, parts, corpus, union, kept)
    _write_dropped(draft, parts, union, verdicts, whose)
    say(f"merge: {len(kept):,} passages of {len(parts)} tasks, {int(shared.sum()):,} of them asked for by several")


_REMOVED = (OVERLAPS_TEST, OVERLAPS_DEV, NEAR_DUPLICATE)


def _union(parts: Sequence[Part]) -> tuple[Union, list[Ints]]:
    """All documents, and for each part the rows that its own documents have there, ascending."""
    read = [_columns(part.subset, "doc", "best_rank", "best_score") for part in parts]
    docs = np.unique(np.concatenate([table["doc"].to_numpy() for table in read]))
    union = Union(docs, np.full(len(docs), np.iinfo(np.int32).max, np.int32), np.full(len(docs), -np.inf, np.float32))
    found = []
    for table in read:
        rows = np.searchsorted(docs, table["doc"].to_numpy())
        union.best_rank[rows] = np.minimum(union.best_rank[rows], table["best_rank"].to_numpy())
        union.best_score[rows] = np.maximum(union.best_score[rows], table["best_score"].to_numpy())
        found.append(rows)
    return union, found


def _judge(texts: Iterable[str], union: Union, parts: Sequence[Part], filters: Filters) -> tuple[Verdicts, Ints]:
    """The verdict on each passage of the union; and for those that overlap, whose dev or test text."""
    vocabulary = Vocabulary()
    words: TokenLists = vocabulary.encode(texts)
    verdicts = Verdicts.keep_all(len(union))
    whose = np.full(len(union), -1, np.int64)
    for number, part in enumerate(parts if filters.ngram is not None else ()):
        clean = verdicts.rows()
        remove_overlaps(verdicts, words, Protected.of(part.task, vocabulary), filters)
        whose[clean[verdicts.reason[clean] != KEPT]] = number
    if filters.jaccard is not None:
        remove_near_duplicates(verdicts, words, union.best_first(), filters.jaccard)
    return verdicts, whose


def _write_kept(draft: Draft, parts: Sequence[Part], corpus: Artifact, union: Union, rows: Ints) -> None:
    docs = union.docs[rows]
    queries, tasks = _provenance(parts, docs)
    shards = Shards(draft.folder, "passages")
    for table in read_passages(corpus, docs):
        part = slice(shards.total, shards.total + table.num_rows)
        best = union.best_rank[rows[part]], union.best_score[rows[part]]
        shards.add(pa.table([docs[part], table["text"], *best, queries.part(part), tasks.part(part)], schema=MERGED))
    draft.rows |= shards.close()


@dataclass(frozen=True)
class _Lists:
    """A list for each document, back to back."""

    values: pa.Array
    offsets: Ints

    @classmethod
    def of(cls, rows: Ints, values: npt.NDArray[np.int64], size: int, names: Sequence[str] | None = None) -> "_Lists":
        """Values by the row that each belongs to, in their order; with `names` the values are places in them."""
        sorted_values = pa.array(values[np.argsort(rows, kind="stable")])
        named = sorted_values if names is None else pa.array(names).take(sorted_values)
        return cls(named, offsets_of(np.bincount(rows, minlength=size)))

    def part(self, rows: slice) -> pa.Array:
        """The lists of some rows."""
        ends = self.offsets[rows.start : rows.stop + 1]
        return pa.ListArray.from_arrays(pa.array(ends - ends[0], pa.int32()), self.values[ends[0] : ends[-1]])


def _provenance(parts: Sequence[Part], docs: Ints) -> tuple[_Lists, _Lists]:
    """Who asked for each of `docs` (ascending): the queries, numbered through all tasks, and the tasks."""
    asked: list[tuple[Ints, Ints]] = []
    asking: list[tuple[Ints, Ints]] = []
    for number, part in enumerate(parts):
        table = _columns(part.subset, "doc", "queries")
        queries, of = table["queries"].combine_chunks(), table["doc"].to_numpy()
        rows = np.searchsorted(docs, of)
        wanted = np.isin(of, docs, assume_unique=True)
        lengths = queries.value_lengths().to_numpy()
        flat = queries.flatten().to_numpy()
        numbered = np.where(flat < 0, flat, flat + part.first)  # random passages were asked for by nobody: -1
        inside = np.repeat(wanted, lengths)
        asked.append((np.repeat(rows, lengths)[inside], numbered[inside]))
        asking.append((rows[wanted], np.full(int(wanted.sum()), number)))
    names, size = [part.name for part in parts], len(docs)
    return _Lists.of(*_joined(asked), size), _Lists.of(*_joined(asking), size, names)


def _joined(pairs: Sequence[tuple[Ints, Ints]]) -> tuple[Ints, Ints]:
    rows, values = zip(*pairs, strict=True)
    return np.concatenate(rows), np.concatenate(values)


def _write_dropped(draft: Draft, parts: Sequence[Part], union: Union, verdicts: Verdicts, whose: Ints) -> None:
    rows = np.flatnonzero(verdicts.reason != KEPT)
    details = [
        f"{verdicts.overlap(row)} of {parts[whose[row]].name}"
        if whose[row] >= 0
        else f"Jaccard {verdicts.degree[row]:.2f} with doc {union.docs[verdicts.about[row]]}"
        for row in rows.tolist()
    ]
    reasons = [REASONS[reason] for reason in verdicts.reason[rows]]
    table = pa.table([union.docs[rows], reasons, details], schema=DROPPED)
    pq.write_table(table, draft.folder / "dropped.parquet", compression="zstd", row_group_size=100_000)
    draft.rows["dropped.parquet"] = len(rows)


def _columns(subset: Artifact, *names: str) -> pa.Table:
    """Columns of all passages of a subset."""
    return pa.Table.from_batches(list(passages(subset, list(names))))
