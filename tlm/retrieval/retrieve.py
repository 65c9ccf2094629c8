"""Retrieve: search with a task's training examples, or select passages without queries."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tlm.artifacts.artifact import Artifact
from tlm.artifacts.produce import Draft, Recipe, produce
from tlm.data.passages import texts
from tlm.data.ranges import Ints
from tlm.data.tasks.examples import examples
from tlm.data.tasks.labelled import UNLABELLED
from tlm.errors import InputError
from tlm.progress import say, track
from tlm.retrieval.search.index import open_engine
from tlm.retrieval.search.query import Docs, Dropped, Engine, Found, Query, Scores, choose, fit, make_queries
from tlm.settings.options import NOT_NEGATIVE, Range
from tlm.settings.sections import MOST_HITS
from tlm.settings.selectors import BY_VECTORS, SELECTORS, WITH_QUERIES

VERSION, FIRST = 2, 1  # plain BM25 and random draws are as the first version wrote them
EXAMPLES, CLASSES = "examples", "classes"  # what has the same share of the hits
DEEPER = 5  # times top_k: other arms search deeper, because export keeps as many passages as BM25's subset has

HITS_IN_GROUP = 1 << 18
HITS = pa.schema([("query", pa.int64()), ("doc", pa.int64()), ("rank", pa.int32()), ("score", pa.float32())])
QUERIES = pa.schema([("query", pa.int64()), ("text", pa.string()), ("examples", pa.list_(pa.int64()))])
DROPPED = pa.schema([("query", pa.int64()), ("reason", pa.string()), ("detail", pa.string())])


def retrieve(
    index: str,
    task: str,
    *,
    arm: Literal["bm25", "random", "dsir", "classifier", "dense", "hybrid"] = "bm25",
    query: Literal["full", "rake", "auto"] = "full",
    top_k: int = 50,
    share: Literal["examples", "classes"] = "examples",
    same_size_as: str = "",
    embedder: str = "",
    seed: int = 0,
    root: str | None = None,
) -> str:
    """Search an index with the training examples of a task, or select passages of its corpus without queries.

    Training examples, and texts of the task without labels, become queries; a pair of texts is one query. Hits are
    ordered by query, then by score descending, then by document ascending.

    Args:
        index: URI of the index.
        task: URI of the task.
        arm: "bm25"; "dense": the nearest by vectors; "hybrid": the rankings of both fused; "random": passages drawn
            regardless of the task; "dsir": drawn so that their words are distributed as the task's are; "classifier":
            passages that a linear model takes for texts of the task. All but "bm25" select some to spare,
            because export removes some.
        query: The whole text ("full"), its RAKE keywords ("rake"), or the one that suits the texts' length ("auto").
            Not used without queries.
        top_k: Passages per query (the paper's K); "dense" and "hybrid" search for five times as many. Not used
            without queries.
        share: "examples": each example retrieves K passages; "classes": each class has the same share of the hits, so
            that examples of rare classes retrieve more passages, up to five times K, and others fewer. Not used
            without queries.
        same_size_as: URI of the subset whose size the new subset is to have; not for arm "bm25".
        embedder: Folder of a published model whose embeddings "dense" and "hybrid" compare; by default, word vectors
            are learned from the corpus. `make install` has what it needs, or in a checkout `pip install
            '.[embeddings]'`.
        seed: Seed of the random choice; not for arm "bm25".
        root: Store to write to, which holds all inputs; by default TLM_ROOT, else the store of the inputs.

    Returns:
        The URI of the hits: ``hits.parquet`` (query, doc, rank, score), ``queries.parquet`` (query, text, examples)
        and ``dropped.parquet`` (query, reason, detail), where reason is "empty", "cut" or "no hit".

    Raises:
        InputError: a setting is wrong, or the index cannot be used.
        Interrupted: the search server went away; the command can be repeated.
    """
    source, labelled = Artifact.open(index, "index"), Artifact.open(task, "task")
    corpus = source.input("corpus")
    _check(arm, top_k, same_size_as, embedder)
    if share == CLASSES and labelled.details["problem"] == "regression":
        raise InputError(f"{task} is a regression, so no classes can share the hits; take share '{EXAMPLES}'")
    NOT_NEGATIVE.check("seed", seed)
    version = FIRST if arm == "random" or (arm, query) == ("bm25", "full") else VERSION
    settings: dict[str, Any] = {"arm": arm}
    if arm in WITH_QUERIES:
        settings |= {"query": query, "top_k": top_k}
        if share == CLASSES:
            settings["share"] = share
    inputs = {"index": source, "task": labelled}
    if arm != "bm25":
        inputs["like"] = Artifact.open(same_size_as, "subset")
        taken_from = inputs["like"].manifest.inputs.get("corpus")
        if taken_from is None or taken_from.content != corpus.content:
            raise InputError(f"{same_size_as} was not taken from the corpus of {index}; give a subset of that index")
        settings["seed"] = seed
    if embedder:
        from tlm.shallow.published import digests

        settings["embedder"] = digests(Path(embedder), "--embedder")
    recipe = Recipe("hits", "retrieve", version, settings, inputs)
    return produce(recipe, root, _write, recipe, embedder)


def _check(arm: str, top_k: int, like: str, embedder: str) -> None:
    Range(f"1 to {MOST_HITS} passages per query", 1, MOST_HITS).check("top_k", top_k)
    if (arm == "bm25") == bool(like):
        expected = "takes no --same-size-as" if like else "needs --same-size-as with the URI of the BM25 subset"
        raise InputError(f"arm '{arm}' {expected}")
    if embedder and arm not in BY_VECTORS:
        raise InputError(f"arm '{arm}' compares no vectors; leave --embedder out, or take {' or '.join(BY_VECTORS)}")


def _write(draft: Draft, recipe: Recipe, embedder: str) -> None:
    """Search or select: all arms but BM25 so deep that export's filters leave as many passages as `like` has."""
    settings, index = recipe.settings, recipe.inputs["index"]
    arm = settings["arm"]
    if arm == "bm25":
        _search(draft, recipe, open_engine(index), settings["top_k"])
    elif arm in WITH_QUERIES:
        from tlm.retrieval.selectors import SEARCHERS

        engine = SEARCHERS[arm](index, embedder, settings["seed"])
        _search(draft, recipe, engine, min(DEEPER * settings["top_k"], MOST_HITS))
    else:
        _select(draft, arm, index.input("corpus"), recipe.inputs["task"], recipe.inputs["like"], settings["seed"])


def _search(draft: Draft, recipe: Recipe, engine: Engine, top_k: int) -> None:
    """Search with the task's texts and write the hits, at most `top_k` for each example, or by classes."""
    settings, task, corpus = recipe.settings, recipe.inputs["task"], recipe.inputs["index"].input("corpus")
    asking, kind = training_texts(task), settings["query"]
    if kind == "auto":
        kind = choose([text for _, text in asking])
        say(f"query: {'RAKE keywords' if kind == 'rake' else 'whole texts'}, as suits the training texts' length")
    queries, dropped = fit(make_queries(asking, kind), lambda: texts(corpus))
    empty = {number for number, reason, _ in dropped if reason == "empty"}
    searched = [number for number in range(len(queries)) if number not in empty]
    most = _most_by_classes(queries, task, top_k) if "share" in settings else [top_k] * len(queries)
    found = engine.search([queries[number].text for number in searched], max(most))
    answers = track(found, "searching", len(searched), "queries")

    def hits() -> Iterator[Found]:
        for number, (docs, scores) in zip(searched, answers, strict=True):
            if not len(docs):
                dropped.append((number, "no hit", SELECTORS[settings["arm"]].nothing_found))
            yield number, docs[: most[number]], scores[: most[number]]

    rows = write_hits(draft.folder / "hits.parquet", hits())
    write_queries(draft.folder, enumerate(queries), dropped)
    draft.rows = {"hits.parquet": rows, "queries.parquet": len(queries), "dropped.parquet": len(dropped)}
    wanted = recipe.inputs["like"].details["passages"] if "like" in recipe.inputs else None
    draft.details = {"arm": settings["arm"], "query": kind, "top_k": top_k, "like": wanted}
    if "share" in settings:
        draft.details["share"] = CLASSES
    draft.counts = {"examples": len(asking), "queries": len(queries), "hits": rows}
    draft.counts |= Counter(reason for _, reason, _ in dropped)


def _most_by_classes(queries: Sequence[Query], task: Artifact, top_k: int) -> list[int]:
    """The most hits of each query, so that classes have the same share: the most of any example with this query."""
    labels = examples(task)["label"].to_pylist()
    most = shares({ordinal: labels[ordinal] for query in queries for ordinal in query.examples}, top_k)
    return [max(most[ordinal] for ordinal in query.examples) for query in queries]


def write_hits(path: Path, found: Iterable[Found]) -> int:
    """Write the hits of each query, best first, in row groups of one size. Returns the number of hits."""
    waiting: list[pa.RecordBatch] = []
    rows = written = 0
    with pq.ParquetWriter(path, HITS, compression="zstd") as writer:
        for query, docs, scores in found:
            ranks = np.arange(1, len(docs) + 1, dtype=np.int32)
            waiting.append(pa.record_batch([np.full(len(docs), query), docs, ranks, scores], HITS))
            rows += len(docs)
            whole = (rows - written) // HITS_IN_GROUP * HITS_IN_GROUP
            if whole:
                table = pa.Table.from_batches(waiting)
                writer.write_table(table.slice(0, whole), row_group_size=HITS_IN_GROUP)
                waiting = table.slice(whole).to_batches()
                written += whole
        writer.write_table(pa.Table.from_batches(waiting, HITS), row_group_size=HITS_IN_GROUP)
    return rows


def write_queries(folder: Path, queries: Iterable[tuple[int, Query]], dropped: list[Dropped]) -> None:
    """Write the queries by number, and what was dropped from them."""
    rows = [{"query": number, "text": query.text, "examples": query.examples} for number, query in queries]
    pq.write_table(pa.Table.from_pylist(rows, QUERIES), folder / "queries.parquet", compression="zstd")
    table = pa.Table.from_pylist([dict(zip(DROPPED.names, row, strict=True)) for row in sorted(dropped)], DROPPED)
    pq.write_table(table, folder / "dropped.parquet", compression="zstd")


def write_chosen(draft: Draft, arm: str, docs: Docs, scores: Scores, wanted: int) -> None:
    """Fill `draft` with hits that no query found, best first; `wanted` is the size that the subset is to have."""
    write_hits(draft.folder / "hits.parquet", [(-1, docs, scores)])
    write_queries(draft.folder, [(-1, Query("", []))], [])
    draft.rows = {"hits.parquet": len(docs)}
    draft.details = {"arm": arm, "query": None, "top_k": None, "like": wanted}
    draft.counts = {"hits": len(docs), "like": wanted}


def shares(labels: Mapping[int, str | Sequence[str] | None], top_k: int) -> dict[int, int]:
    """The most passages for each example, so that every class has as many hits: an equal part of `top_k` per example.

    At least 1, and at most `DEEPER` times `top_k`, because passages far down a ranking are off topic: the rarest
    classes stay below their part. An example without a label has `top_k`.

    Args:
        labels: The label of each example, by its number; or its labels, or None.
        top_k: Passages per example, if all classes were of one size.
    """
    labels_of = {row: [given] if isinstance(given, str) else given or () for row, given in labels.items()}
    sizes = Counter(chain.from_iterable(labels_of.values()))
    hits_of_class, limit = top_k * sizes.total() / max(1, len(sizes)), min(DEEPER * top_k, MOST_HITS)
    most = {label: min(limit, max(1, round(hits_of_class / size))) for label, size in sizes.items()}
    return {row: max((most[label] for label in its_labels), default=top_k) for row, its_labels in labels_of.items()}


def _select(draft: Draft, arm: str, corpus: Artifact, task: Artifact, like: Artifact, seed: int) -> None:
    """Draw passages in random order, or give every passage a score and keep the best."""
    wanted = like.details["passages"]
    enough = 2 * wanted + 1000
    if arm == "random":
        docs = np.random.default_rng(seed).permutation(corpus.details["passages"])[:enough]
        scores = np.zeros(len(docs), np.float32)
    else:
        from tlm.retrieval.selectors import SCORERS

        asking = [text for _, text in training_texts(task)]
        docs, scores = best(SCORERS[arm](corpus, asking, seed), enough)
    write_chosen(draft, arm, docs, scores, wanted)


def best(scores: NDArray[np.float64], count: int) -> tuple[Ints, NDArray[np.float32]]:
    """The `count` passages with the highest scores and these, highest first; of equal ones, the first passage."""
    docs = np.argsort(-scores, kind="stable")[:count]
    return docs, scores[docs].astype(np.float32)


def training_texts(task: Artifact) -> list[tuple[int, str]]:
    """Row ordinal and text of each training example, and of each text without a label; those of a pair are joined."""
    table = examples(task)
    splits, first, second = (table[name].to_pylist() for name in ("split", "text", "text_pair"))
    joined = [text if pair is None else f"{text} {pair}" for text, pair in zip(first, second, strict=True)]
    return [(ordinal, joined[ordinal]) for ordinal, split in enumerate(splits) if split in ("train", UNLABELLED)]
