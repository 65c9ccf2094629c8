"""Retrieved passages beside the training examples whose queries found them, for a person to judge the retrieval."""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow.parquet as pq

from tlm.artifacts.artifact import Artifact
from tlm.data.passages import evenly, rows_at
from tlm.errors import InputError
from tlm.evaluation.pages.blocks import Block, Card, Heading, Part, Quote, Span, Text
from tlm.evaluation.pages.text import shared_words, visible, whole_text
from tlm.evaluation.report.lineage import Lineage, without_root
from tlm.evaluation.report.runs import Group
from tlm.retrieval.select.retrieve import WITHOUT_QUERIES

RANDOM_PASSAGES, RETRIEVED_PASSAGES = 3, 10


def evidence(groups: list[Group], lineage: Lineage) -> list[dict[str, Any]]:
    """The size of each arm's subset, and passages evenly spaced through it.

    A passage comes with its best rank and score, the number of examples whose queries found it, and the text and label
    of the example whose query ranked it best. ``missing`` says if an artifact is gone or damaged.
    """
    subsets: dict[str, Artifact] = {}
    for subset in (run.subset for group in groups for run in group.runs if run.subset is not None):
        subsets.setdefault(subset.details["arm"], subset)
    return [_arm(arm, subsets[arm], lineage) for arm in sorted(subsets, key=lambda arm: arm in WITHOUT_QUERIES)]


def _arm(arm: str, subset: Artifact, lineage: Lineage) -> dict[str, Any]:
    total, random = subset.details["passages"], arm in WITHOUT_QUERIES
    found: dict[str, Any] = {"arm": arm, "total": total, "passages": [], "missing": ""}
    try:
        wanted = evenly(total, RANDOM_PASSAGES if random else RETRIEVED_PASSAGES)
        rows = rows_at(subset, "passages-*.parquet", wanted).values()
        askers = {} if random else _askers([row["doc"] for row in rows], subset, lineage)
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


def _askers(docs: list[int], subset: Artifact, lineage: Lineage) -> dict[int, dict[str, Any]]:
    """Id, text and label, by doc, of the first example behind the query that ranked it best.

    In a merged subset, those of the first task that found the doc; its name is put before the label.
    """
    if "subset-0" in subset.manifest.inputs:
        found: dict[int, dict[str, Any]] = {}
        for number, task in enumerate(subset.details["tasks"]):
            part = lineage.follow(subset, f"subset-{number}")
            for doc, asker in (_askers(docs, part, lineage) if part is not None else {}).items():
                found.setdefault(doc, {**asker, "label": f"{visible(task['name'], 40)}: {asker['label']}"})
        return found
    hits, task = lineage.follow(subset, "hits"), lineage.follow(subset, "hits", "task")
    if hits is None or task is None:
        return {}
    table = _select(hits, "hits.parquet", columns=["query", "doc", "rank"], filters=[("doc", "in", docs)])
    best: dict[int, int] = {}
    for row in sorted(table, key=lambda row: (row["rank"], row["query"])):
        best.setdefault(row["doc"], row["query"])
    asking = _select(hits, "queries.parquet", filters=[("query", "in", [*best.values()])])
    queries = {row["query"]: row["examples"] for row in asking}
    first = {doc: queries[query][0] for doc, query in best.items() if queries.get(query)}
    examples = rows_at(task, "examples.parquet", first.values())
    return {doc: _example(examples[row]) for doc, row in first.items()}


def _select(artifact: Artifact, name: str, **choice: Any) -> list[dict[str, Any]]:
    """Rows of a file; ``partitioning=None`` keeps pyarrow from reading columns out of the store's folder names."""
    return pq.read_table(artifact.path(name), partitioning=None, **choice).to_pylist()  # type: ignore[no-any-return]


def _example(row: dict[str, Any]) -> dict[str, Any]:
    label = str(row["label"] or row["target"])
    return {"id": visible(row["id"], 60), "text": visible(whole_text(row)), "label": visible(label, 60)}


def section(found: Sequence[dict[str, Any]]) -> Iterator[Block]:
    """Passages of each arm, for a person to judge the retrieval."""
    for arm in found:
        random = arm["arm"] == "random"
        yield Heading("For comparison: passages drawn at random" if random else f"What {arm['arm']} retrieved")
        if arm["missing"] or not arm["total"]:
            yield Text(Quote.of(arm["missing"]) if arm["missing"] else "No passage was retrieved.", "note")
            continue
        above = "" if random else " Above each, a training example whose query found it; words in both are marked."
        shown = f"{len(arm['passages'])} of {arm['total']:,} passages"
        yield Text(f"{shown}, evenly spaced through the subset, not hand-picked.{above}", "small")
        yield from map(_card, arm["passages"])


def _card(passage: dict[str, Any]) -> Card:
    ranked = f" · best rank {passage['rank']} · score {passage['score']:.1f}" if passage["rank"] else ""
    found = Part(f"passage {passage['doc']}{ranked}", Quote(tuple(passage["pieces"])))
    if not (asker := passage["asker"]):
        return Card((found,))
    more = f" and {passage['queries'] - 1:,} more" if passage["queries"] > 1 else ""
    about = ("query of example ", Span(asker["id"]), f"{more} · ", Span(asker["label"], "label"))
    return Card((Part(about, Quote.of(asker["text"]), raised=True), found))
