"""Passages beside the examples whose queries found them, for a person to judge the retrieval.

The command `preview` begins with a few examples of each label, the evidence of a report with passages of each arm.
"""

import sys
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tlm.artifacts.artifact import Artifact, follow
from tlm.data.passages import evenly, rows_at
from tlm.data.passages import passages as read_passages
from tlm.data.ranges import Ints
from tlm.data.tasks.examples import examples as read_examples
from tlm.data.tasks.examples import values_of
from tlm.errors import InputError, nearest
from tlm.evaluation.pages.blocks import Block, Card, Details, Heading, Items, Line, Quote, Span, Text
from tlm.evaluation.pages.plain import markdown, terminal
from tlm.evaluation.pages.text import label_text, shared_words, visible, whole_text
from tlm.evaluation.report.lineage import without_root
from tlm.evaluation.report.runs import Group
from tlm.settings.selectors import WITHOUT_QUERIES

PASSAGES = "passages-*.parquet"
OPEN = 3  # passages of an arm that a page shows at once
RANGES = 5  # of the values of a regression task
Hits = list[dict[str, Any]]


def examples_by_query(hits: Artifact) -> dict[int, list[int]]:
    """The examples behind each query, as rows of the task; examples with the same text share a query."""
    # without partitioning, because pyarrow would read columns out of the store's folder names
    table = pq.read_table(hits.path("queries.parquet"), columns=["query", "examples"], partitioning=None)
    return dict(zip(table["query"].to_pylist(), table["examples"].to_pylist(), strict=True))


def blocks(source: Artifact, examples: int, passages: int, label: str, width: int) -> Iterator[Block]:
    """The preview as blocks.

    Raises:
        InputError: The task has no such label, or an artifact that `source` was made from is gone.
    """
    if source.manifest.kind != "hits" and "hits" not in source.manifest.inputs:
        raise InputError(f"{source.uri} was imported, so no query found its passages; give one that tlm export made")
    hits = source if source.manifest.kind == "hits" else source.input("hits")
    task, arm = hits.input("task"), hits.details["arm"]
    kept = None if source is hits else np.concatenate([one["doc"].to_numpy() for one in read_passages(source, ["doc"])])
    yield Heading(f"{task.details['name']}: what {arm} retrieved", 1)
    yield Text(_facts(source, hits))
    if arm in WITHOUT_QUERIES:
        yield _drawn(source, kept, passages, width)
        return
    chosen = _chosen(task, examples, label)
    rows = rows_at(task, "examples.parquet", chain.from_iterable(chosen.values()))
    queries = {row: query for query, behind in examples_by_query(hits).items() for row in behind if row in rows}
    best = _best(hits, kept, list(queries.values()), passages)
    texts = _texts(source, kept, [hit["doc"] for found in best.values() for hit in found])
    for name, numbers in chosen.items():
        yield Heading(Span(visible(name, 40)))
        for number in numbers:
            yield from _example(rows[number], best.get(queries.get(number, -1)), texts, width)


def _example(row: dict[str, Any], hits: Hits | None, texts: dict[int, str], width: int) -> Iterator[Block]:
    """An example with its best hits; None if it was not searched for."""
    question = whole_text(row)
    about = Span("Example", "bold"), " ", Span(visible(row["id"], 60)), ": "
    yield Text((*about, Quote.of(visible(question, width))))
    missing = "was not searched for" if hits is None else "no passage: no hit, or all were removed"
    yield Items(tuple(_passage_line(hit, texts, question, width) for hit in hits) if hits else (missing,))


def _facts(source: Artifact, hits: Artifact) -> str:
    if source is hits:
        return f"{hits.counts['hits']:,} hits, not filtered yet."
    reasons = ("near-duplicate", "too short", "overlaps dev", "overlaps test")
    dropped = sum(int(source.counts.get(reason, 0)) for reason in reasons)
    return f"{source.details['passages']:,} passages; the filters removed {dropped:,}, which are not shown."


def _passage_line(hit: dict[str, Any], texts: dict[int, str], question: str, width: int) -> Line:
    ranked = f"rank {hit['rank']}, score {hit['score']:.1f}, passage " if "rank" in hit else ""
    pieces = shared_words(visible(texts[hit["doc"]], width), question)
    return f"{ranked}{hit['doc']}: ", Quote(tuple(pieces))


def _drawn(source: Artifact, kept: Ints | None, passages: int, width: int) -> Items:
    """Evenly spaced random passages."""
    total, pattern = (source.counts["hits"], "hits.parquet") if kept is None else (len(kept), PASSAGES)
    docs = [row["doc"] for row in rows_at(source, pattern, evenly(total, passages)).values()]
    texts = _texts(source, kept, docs)
    return Items(tuple(_passage_line({"doc": doc}, texts, "", width) for doc in docs))


def _chosen(task: Artifact, wanted: int, label: str) -> dict[str, list[int]]:
    """Rows of the training examples to show, evenly spaced, by their label or range of values."""
    table = read_examples(task)
    train = np.flatnonzero(pc.equal(table["split"], "train"))
    if task.details["problem"] == "regression":
        if label:
            raise InputError(f"{task.uri} has numbers, no labels; leave out --label")
        values = table["target"].to_numpy()
        parts = np.array_split(train[np.argsort(values[train], kind="stable")], RANGES)
        groups = {f"{values[part[0]]:g} to {values[part[-1]]:g}": part for part in parts if len(part)}
    else:
        if label and label not in task.details["labels"]:
            raise InputError(f"{task.uri} has no label '{label}'{nearest(label, task.details['labels'])}")
        known = task.details["labels"]
        gold = values_of(table["label"].take(train), known)
        has = gold == 1 if gold.ndim == 2 else gold[:, np.newaxis] == np.arange(len(known))
        groups = {name: train[has[:, place]] for place, name in enumerate(known) if label in ("", name)}
    return {name: rows[evenly(len(rows), wanted)].tolist() for name, rows in groups.items()}


def _best(hits: Artifact, kept: Ints | None, queries: Sequence[int], most: int) -> dict[int, Hits]:
    """The `most` best hits of each query that the filters kept; hits.parquet is ordered by query."""
    table = pq.read_table(hits.path("hits.parquet"), filters=[("query", "in", queries)], partitioning=None)
    if kept is not None:
        table = table.filter(pc.is_in(table["doc"], pa.array(kept)))
    best: dict[int, Hits] = {query: [] for query in queries}
    for hit in table.sort_by("rank").to_pylist():
        if len(best[hit["query"]]) < most:
            best[hit["query"]].append(hit)
    return best


def _texts(source: Artifact, kept: Ints | None, docs: Sequence[int]) -> dict[int, str]:
    """The texts of passages by number, from the subset or from the corpus, where the number is the row."""
    artifact = source.input("index").input("corpus") if kept is None else source
    rows = docs if kept is None else np.searchsorted(kept, docs).tolist()
    return {row["doc"]: row["text"] for row in rows_at(artifact, PASSAGES, rows).values()}


def preview(
    source: str,
    *,
    examples: int = 1,
    passages: int = 3,
    label: str = "",
    form: Literal["auto", "terminal", "markdown"] = "auto",
    width: int = 300,
) -> str:
    """Print a few training examples of each label, each with its best passages.

    Words that a passage shares with its example are marked. Random passages belong to no example: some are shown,
    evenly spaced.

    Args:
        source: URI of hits or of a subset; a subset shows only passages that its filters kept.
        examples: Number of examples of each label (for regression, of five ranges of values), evenly spaced.
        passages: Number of passages for each example.
        label: Show only this label.
        form: terminal, markdown or auto, which is terminal if standard output is one.
        width: Number of characters shown of each text.
    """
    if min(examples, passages) < 1 or width < 40:
        raise InputError(f"examples is {examples}, passages {passages}, width {width}; expected at least 1, 1 and 40")
    page = blocks(Artifact.open(source, "hits", "subset"), examples, passages, label, width)
    on_terminal = form == "terminal" or (form == "auto" and sys.stdout.isatty())
    return terminal(page, styled=True) if on_terminal else markdown(page).rstrip("\n")


RANDOM_PASSAGES, RETRIEVED_PASSAGES = 3, 10


def evidence(groups: list[Group]) -> list[dict[str, Any]]:
    """The size of each arm's subset, and passages evenly spaced through it.

    A passage comes with its best rank and score, the number of examples whose queries found it, and the text and label
    of the example whose query ranked it best. ``missing`` says if an artifact is gone or damaged.
    """
    subsets: dict[str, Artifact] = {}
    for subset in (run.subset for group in groups for run in group.runs if run.subset is not None):
        subsets.setdefault(subset.details["arm"], subset)
    return [shown(subsets[arm]) for arm in sorted(subsets, key=lambda arm: arm in WITHOUT_QUERIES)]


def shown(subset: Artifact) -> dict[str, Any]:
    """What `section` shows of a subset."""
    arm, total = subset.details["arm"], subset.details["passages"]
    random = arm in WITHOUT_QUERIES
    found: dict[str, Any] = {"arm": arm, "total": total, "passages": [], "missing": ""}
    try:
        rows = rows_at(subset, PASSAGES, evenly(total, RANDOM_PASSAGES if random else RETRIEVED_PASSAGES)).values()
        askers = {} if random else _askers([row["doc"] for row in rows], subset)
    except InputError as error:
        return {**found, "missing": without_root(error, subset)}
    return {**found, "passages": [_passage(row, askers.get(row["doc"])) for row in rows]}


def _passage(row: dict[str, Any], asker: dict[str, Any] | None) -> dict[str, Any]:
    text = visible(row["text"])
    found = {"doc": row["doc"], "text": text, "asker": asker}
    if not asker:
        return {**found, "pieces": shared_words(text, ""), "rank": None, "score": None, "queries": 0}
    ranked = {"rank": row["best_rank"], "score": row["best_score"], "queries": len(row["queries"])}
    return {**found, "pieces": shared_words(text, asker["text"]), **ranked}


def _askers(docs: list[int], subset: Artifact | None) -> dict[int, dict[str, Any]]:
    """Id, text and label, by doc, of the first example behind the query that ranked it best.

    In a merged subset, those of the first task that found the doc; its name is put before the label.
    """
    if subset is not None and "subset-0" in subset.manifest.inputs:
        found: dict[int, dict[str, Any]] = {}
        for number, task in enumerate(subset.details["tasks"]):
            for doc, asker in _askers(docs, follow(subset, f"subset-{number}")).items():
                found.setdefault(doc, {**asker, "label": f"{visible(task['name'], 40)}: {asker['label']}"})
        return found
    hits, task = follow(subset, "hits"), follow(subset, "hits", "task")
    if hits is None or task is None:
        return {}
    table = pq.read_table(hits.path("hits.parquet"), filters=[("doc", "in", docs)], partitioning=None)
    best: dict[int, int] = {}
    for row in table.sort_by([("rank", "ascending"), ("query", "ascending")]).to_pylist():
        best.setdefault(row["doc"], row["query"])
    queries = examples_by_query(hits)
    first = {doc: queries[query][0] for doc, query in best.items() if queries.get(query)}
    examples = rows_at(task, "examples.parquet", first.values())
    return {doc: _asker(examples[row]) for doc, row in first.items()}


def _asker(row: dict[str, Any]) -> dict[str, Any]:
    label = label_text(row["target"] if row["label"] is None else row["label"])
    return {"id": visible(row["id"], 60), "text": visible(whole_text(row)), "label": visible(label, 60)}


def section(found: Sequence[dict[str, Any]]) -> Iterator[Block]:
    """Passages of each arm, for a person to judge the retrieval."""
    for arm in found:
        random = arm["arm"] == "random"
        yield Heading("For comparison: passages drawn at random" if random else f"What {arm['arm']} retrieved")
        if arm["missing"] or not arm["total"]:
            yield Text(Quote.of(arm["missing"]) if arm["missing"] else "No passage was retrieved.", "note")
            continue
        asked = any(one["asker"] for one in arm["passages"])
        marks = " Above each is an example whose query found it. Longer, less common words of both are marked."
        some = f"{len(arm['passages'])} of {arm['total']:,} passages"
        yield Text(f"{some}, evenly spaced through the subset, not hand-picked.{marks if asked else ''}", "small")
        cards = [*map(_card, arm["passages"])]
        yield from cards[:OPEN]
        if len(cards) > OPEN:
            yield Details(f"{len(cards) - OPEN} more", tuple(cards[OPEN:]))


def _card(passage: dict[str, Any]) -> Card:
    ranked = f" · best rank {passage['rank']} · score {passage['score']:.1f}" if passage["rank"] else ""
    found = f"passage {passage['doc']}{ranked}: ", Quote(tuple(passage["pieces"]))
    if not (asker := passage["asker"]):
        return Card((found,))
    more = f" and {passage['queries'] - 1:,} more" if passage["queries"] > 1 else ""
    about = Span(asker["label"] or "no label", "label"), " · query of example ", Span(asker["id"]), f"{more}: "
    return Card(((*about, Quote.of(asker["text"])), found))
