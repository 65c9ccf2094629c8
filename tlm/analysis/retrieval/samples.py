"""Examples with their best passages, for `preview`: only the rows that are shown are read."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from tlm.analysis.retrieval.subsets import PASSAGES, rows
from tlm.artifacts.artifact import Artifact
from tlm.errors import InputError, nearest
from tlm.evaluation.pages.sampling import evenly, rows_at
from tlm.evaluation.pages.text import shared_words, visible

RANGES = 5  # of the values of a regression task

Chosen = dict[str, list[int]]  # rows of the task by what stands over them


def sampled(source: Artifact, examples: int, passages: int, label: str, width: int) -> dict[str, Any]:
    """All that the preview says, as plain data.

    Raises:
        InputError: the task has no such label, or what the source was made from is gone.
    """
    hits = source if source.manifest.kind == "hits" else source.input("hits")
    task = hits.input("task")
    told = {"title": f"{task.details['name']}: what {hits.details['arm']} retrieved", "facts": _facts(source, hits)}
    if hits.details["arm"] == "random":
        return {**told, "groups": [{"label": "", "examples": [_drawn(source, hits, passages, width)]}]}
    chosen = _chosen(task, examples, label)
    asked = [row for found in chosen.values() for row in found]
    queries = _queries_of(hits, asked)
    ranked = _ranked(hits, queries.values())
    texts = _Texts(source, hits)
    best = {row: texts.first(ranked.get(queries.get(row, -1), []), passages) for row in asked}
    texts.read(one["doc"] for found in best.values() for one in found)
    examples_read = rows_at(task, "examples.parquet", asked)
    return {
        **told,
        "groups": [
            {
                "label": visible(name, 40),
                "examples": [_example(examples_read[row], best[row], texts, width, row in queries) for row in found],
            }
            for name, found in chosen.items()
        ],
    }


def _facts(source: Artifact, hits: Artifact) -> str:
    if source is hits:
        return f"{hits.counts['hits']:,} hits; nothing is filtered yet."
    dropped = sum(int(value) for name, value in source.counts.items()
                  if name in ("near-duplicate", "too short", "overlaps dev", "overlaps test"))  # fmt: skip
    return f"{source.details['passages']:,} passages; {dropped:,} were removed by the filters and are not shown."


def _example(
    row: dict[str, Any], found: list[dict[str, Any]], texts: "_Texts", width: int, searched: bool
) -> dict[str, Any]:
    whole = " ⁄ ".join(part for part in (row["text"], row["text_pair"]) if part)
    return {
        "id": visible(row["id"], 60),
        "text": visible(whole, width),
        "passages": [_passage(one, texts.found[one["doc"]], whole, width) for one in found],
        "missing": "" if found else ("no passage: no hit, or all were removed" if searched else "was not searched for"),
    }


def _passage(hit: dict[str, Any], text: str, question: str, width: int) -> dict[str, Any]:
    shown = visible(text, width)
    return {**hit, "text": shown, "pieces": shared_words(shown, question)}


def _drawn(source: Artifact, hits: Artifact, passages: int, width: int) -> dict[str, Any]:
    """Random passages, evenly spaced."""
    total = int(source.details["passages"] if source is not hits else hits.counts["hits"])
    if source is not hits:
        found = [row | {"rank": None} for row in rows_at(source, PASSAGES, evenly(total, passages)).values()]
        texts = {row["doc"]: row["text"] for row in found}
    else:
        found = [row | {"rank": None} for row in rows_at(hits, "hits.parquet", evenly(total, passages)).values()]
        reader = _Texts(source, hits)
        reader.read(row["doc"] for row in found)
        texts = reader.found
    shown = [_passage({"doc": row["doc"], "rank": None}, texts[row["doc"]], "", width) for row in found]
    return {"id": "", "text": "", "passages": shown, "missing": ""}


def _chosen(task: Artifact, wanted: int, label: str) -> Chosen:
    table = pq.read_table(task.path("examples.parquet"), columns=["label", "target", "split"], partitioning=None)
    train = np.flatnonzero(np.array(table["split"].to_pylist()) == "train")
    if task.details["problem"] == "regression":
        if label:
            raise InputError(f"{task.uri} has numbers, no labels; leave out --label")
        ordered = train[np.argsort(table["target"].to_numpy()[train], kind="stable")]
        values = table["target"].to_pylist()
        parts = [part for part in np.array_split(ordered, RANGES) if len(part)]
        return {f"{values[part[0]]:g} to {values[part[-1]]:g}": _evenly(part, wanted) for part in parts}
    if label and label not in task.details["labels"]:
        raise InputError(f"{task.uri} has no label '{label}'{nearest(label, task.details['labels'])}")
    labels = np.array(table["label"].to_pylist(), dtype=object)
    names = [label] if label else task.details["labels"]
    return {name: _evenly(train[labels[train] == name], wanted) for name in names}


def _evenly(rows: Any, wanted: int) -> list[int]:
    return [int(rows[place]) for place in evenly(len(rows), wanted)]


def _queries_of(hits: Artifact, examples: Iterable[int]) -> dict[int, int]:
    """The query of each example, as far as it has one."""
    table = pq.read_table(hits.path("queries.parquet"), columns=["query", "examples"], partitioning=None)
    owners = {row: query for query, rows in zip(*(table[name].to_pylist() for name in table.column_names), strict=True)
              for row in rows}  # fmt: skip
    return {row: owners[row] for row in examples if row in owners}


def _ranked(hits: Artifact, queries: Iterable[int]) -> dict[int, list[dict[str, Any]]]:
    """The hits of some queries, the best first; the file is ordered by query, so most of it is skipped."""
    wanted = sorted(set(queries))
    table = pq.read_table(hits.path("hits.parquet"), filters=[("query", "in", wanted)], partitioning=None)
    found: dict[int, list[dict[str, Any]]] = {query: [] for query in wanted}
    for row in table.to_pylist():
        found[row.pop("query")].append(row)
    return {query: sorted(rows, key=lambda row: row["rank"]) for query, rows in found.items()}


class _Texts:
    """The texts of passages: out of the subset, else out of the corpus, where a passage's number is its place."""

    def __init__(self, source: Artifact, hits: Artifact) -> None:
        self.found: dict[int, str] = {}
        self._docs = None
        if source is hits:
            self._artifact = hits.input("index").input("corpus")
        else:
            self._artifact = source
            self._docs = np.concatenate([batch.column("doc").to_numpy() for batch in rows(source, ["doc"])])

    def first(self, ranked: list[dict[str, Any]], wanted: int) -> list[dict[str, Any]]:
        """The first `wanted` of the hits that are here."""
        return [hit for hit in ranked if self._place(hit["doc"]) is not None][:wanted]

    def read(self, docs: Iterable[int]) -> None:
        """Fill `found`."""
        places = [place for doc in set(docs) if (place := self._place(doc)) is not None]
        self.found = {row["doc"]: row["text"] for row in rows_at(self._artifact, PASSAGES, places).values()}

    def _place(self, doc: int) -> int | None:
        if self._docs is None:
            return doc
        place = int(np.searchsorted(self._docs, doc))
        return place if place < len(self._docs) and self._docs[place] == doc else None
