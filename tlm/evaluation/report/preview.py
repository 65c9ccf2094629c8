"""The command `preview`: a few examples of each label with the passages retrieved for them."""

import sys
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tlm.artifacts.artifact import Artifact
from tlm.data.passages import evenly, rows_at
from tlm.data.passages import passages as read_passages
from tlm.data.tasks.examples import examples as read_examples
from tlm.data.tasks.examples import values_of
from tlm.errors import InputError, nearest
from tlm.evaluation.pages.blocks import Block, Heading, Items, Quote, Span, Text
from tlm.evaluation.pages.plain import markdown, terminal
from tlm.evaluation.pages.text import shared_words, visible, whole_text
from tlm.retrieval.select.retrieve import WITHOUT_QUERIES

PASSAGES = "passages-*.parquet"
RANGES = 5  # of the values of a regression task
Hits = list[dict[str, Any]]
Ints = NDArray[np.int64]


def examples_by_query(hits: Artifact) -> dict[int, list[int]]:
    """The examples behind each query, as rows of the task; examples with the same text share a query."""
    table = pq.read_table(hits.path("queries.parquet"), columns=["query", "examples"], partitioning=None)
    return dict(zip(table["query"].to_pylist(), table["examples"].to_pylist(), strict=True))


def sampled(source: Artifact, examples: int, passages: int, label: str, width: int) -> dict[str, Any]:
    """The contents of the preview, as plain data.

    Raises:
        InputError: The task has no such label, or an artifact that `source` was made from is gone.
    """
    hits = source if source.manifest.kind == "hits" else source.input("hits")
    task = hits.input("task")
    kept = (
        None if source is hits else np.concatenate([part["doc"].to_numpy() for part in read_passages(source, ["doc"])])
    )
    if hits.details["arm"] in WITHOUT_QUERIES:
        groups = [{"label": "", "examples": [_drawn(source, kept, passages, width)]}]
    else:
        chosen, groups = _chosen(task, examples, label), []
        rows = rows_at(task, "examples.parquet", chain.from_iterable(chosen.values()))
        queries = {row: query for query, behind in examples_by_query(hits).items() for row in behind if row in rows}
        best = _best(hits, kept, list(queries.values()), passages)
        texts = _texts(source, kept, [hit["doc"] for found in best.values() for hit in found])
        for name, numbers in chosen.items():
            shown = [_example(rows[row], best.get(queries.get(row, -1)), texts, width) for row in numbers]
            groups.append({"label": visible(name, 40), "examples": shown})
    title = f"{task.details['name']}: what {hits.details['arm']} retrieved"
    return {"title": title, "facts": _facts(source, hits), "groups": groups}


def _facts(source: Artifact, hits: Artifact) -> str:
    if source is hits:
        return f"{hits.counts['hits']:,} hits, not filtered yet."
    reasons = ("near-duplicate", "too short", "overlaps dev", "overlaps test")
    dropped = sum(int(source.counts.get(reason, 0)) for reason in reasons)
    return f"{source.details['passages']:,} passages; the filters removed {dropped:,}, which are not shown."


def _example(row: dict[str, Any], found: Hits | None, texts: dict[int, str], width: int) -> dict[str, Any]:
    """An example with its hits; None if it was no query."""
    text = whole_text(row)
    missing = "was not searched for" if found is None else "" if found else "no passage: no hit, or all were removed"
    shown = _passages(found or [], texts, text, width)
    return {"id": visible(row["id"], 60), "text": visible(text, width), "passages": shown, "missing": missing}


def _passages(found: Hits, texts: dict[int, str], question: str, width: int) -> list[dict[str, Any]]:
    shown = ((hit, visible(texts[hit["doc"]], width)) for hit in found)
    return [{**hit, "text": text, "pieces": shared_words(text, question)} for hit, text in shown]


def _drawn(source: Artifact, kept: Ints | None, passages: int, width: int) -> dict[str, Any]:
    """Evenly spaced random passages."""
    total, pattern = (source.counts["hits"], "hits.parquet") if kept is None else (len(kept), PASSAGES)
    docs = [row["doc"] for row in rows_at(source, pattern, evenly(total, passages)).values()]
    shown = _passages([{"doc": doc, "rank": None} for doc in docs], _texts(source, kept, docs), "", width)
    return {"id": "", "text": "", "passages": shown, "missing": ""}


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


Form = Literal["auto", "terminal", "markdown"]


def preview(
    source: str, *, examples: int = 1, passages: int = 3, label: str = "", form: Form = "auto", width: int = 300
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
    if form not in get_args(Form):
        raise InputError(f"form '{form}' is unknown{nearest(form, get_args(Form))}")
    shown = _blocks(sampled(Artifact.open(source, "hits", "subset"), examples, passages, label, width))
    on_terminal = form == "terminal" or (form == "auto" and sys.stdout.isatty())
    return (terminal(shown, styled=True) if on_terminal else markdown(shown)).rstrip("\n")


def _blocks(contents: dict[str, Any]) -> Iterator[Block]:
    yield Heading(contents["title"], 1)
    yield Text(contents["facts"])
    for group in contents["groups"]:
        if group["label"]:
            yield Heading(Span(group["label"]))
        for example in group["examples"]:
            if example["text"]:
                yield Text((Span("Example", "bold"), " ", Span(example["id"]), ": ", Quote.of(example["text"])))
            passages = [(_place(passage), Quote(tuple(passage["pieces"]))) for passage in example["passages"]]
            yield Items((*passages, *filter(None, [example["missing"]])))


def _place(passage: dict[str, Any]) -> str:
    ranked = f"rank {passage['rank']}, score {passage['score']:.1f}, passage " if passage["rank"] else ""
    return f"{ranked}{passage['doc']}: "
