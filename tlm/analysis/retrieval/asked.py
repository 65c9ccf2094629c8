"""Who asked for a subset's passages: labelled examples, through their queries (hits) to their labels (task)."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tlm.analysis.retrieval.subsets import Subset
from tlm.artifacts.artifact import Artifact
from tlm.evaluation.pages.sampling import evenly, rows_at
from tlm.evaluation.pages.text import shared_words, visible

SHOWN_EXAMPLES = 3
MOST_LABELS = 8
BINS = (1, 2, 4, 8, 16, 32)  # passages asked for by 1, 2-3, 4-7, … examples


def most_asked(subset: Subset, top: int) -> list[dict[str, Any]]:
    """The `top` passages that the most examples asked for, each with the examples' labels and some of their texts."""
    if subset.hits is None or not subset.asked.any():
        return []
    places = np.lexsort((subset.docs, -subset.asked))[:top]
    rows = rows_at(subset.artifact, "passages-*.parquet", places.tolist())
    queries = {int(place): rows[place]["queries"] for place in places.tolist()}
    behind = examples_behind(subset.hits, {query for found in queries.values() for query in found})
    examples = {
        place: sorted({row for query in found for row in behind.get(query, [])}) for place, found in queries.items()
    }
    labels = labels_of(subset.task)
    chosen = {place: [found[i] for i in evenly(len(found), SHOWN_EXAMPLES)] for place, found in examples.items()}
    texts = example_texts(subset.task, (row for found in chosen.values() for row in found))
    return [
        {
            "doc": rows[place]["doc"],
            "text": visible(rows[place]["text"]),
            "best_rank": rows[place]["best_rank"],
            "asked": len(examples[place]),
            "labels": counted(examples[place], labels),
            "examples": [told_example(texts[row], rows[place]["text"]) for row in chosen[place] if row in texts],
        }
        for place in examples
    ]


def examples_behind(hits: Artifact, queries: Iterable[int]) -> dict[int, list[int]]:
    """The examples (rows of the task) behind some queries."""
    table = pq.read_table(
        hits.path("queries.parquet"), columns=["query", "examples"], filters=[("query", "in", sorted(set(queries)))],
        partitioning=None,
    )  # fmt: skip
    return {row["query"]: row["examples"] for row in table.to_pylist()}


def labels_of(task: Artifact | None) -> list[str]:
    """The label of every example, by its row; [] for regression, or where the task is gone."""
    if task is None or task.details["problem"] != "classification":
        return []
    table = pq.read_table(task.path("examples.parquet"), columns=["label"], partitioning=None)
    return [str(label) for label in table["label"].to_pylist()]


def counted(examples: Sequence[int], labels: Sequence[str]) -> list[dict[str, Any]]:
    """How often each label occurs among `examples`, the most frequent first; rare ones of many are put together."""
    found = Counter(labels[row] for row in examples if row < len(labels))
    order = sorted(found.items(), key=lambda pair: (-pair[1], pair[0]))
    told = [{"label": visible(label, 40), "count": count} for label, count in order[:MOST_LABELS]]
    others = sum(count for _, count in order[MOST_LABELS:])
    return told + ([{"label": "others", "count": others}] if others else [])


def example_texts(task: Artifact | None, rows: Iterable[int]) -> dict[int, dict[str, Any]]:
    """Rows of the task by their numbers; {} where it is gone."""
    return rows_at(task, "examples.parquet", rows) if task is not None else {}


def told_example(row: Mapping[str, Any], passage: str) -> dict[str, Any]:
    """An example for people; words that `passage` has too are marked in ``pieces``."""
    text = visible(" ⁄ ".join(part for part in (row["text"], row["text_pair"]) if part))
    label = row["label"] if row["label"] is not None else f"{row['target']:g}"
    return {
        "id": visible(row["id"], 60),
        "label": visible(str(label), 40),
        "text": text,
        "pieces": shared_words(text, passage, least=3),
    }


def shared_by(asked: NDArray[np.int32]) -> list[dict[str, Any]]:
    """How many passages were asked for by 1, 2-3, 4-7 … examples."""
    if not asked.any():
        return []
    counts = np.histogram(asked[asked > 0], np.array([*BINS, np.iinfo(np.int32).max]))[0].tolist()
    names = [str(low) if high == low + 1 else f"{low}–{high - 1}" for low, high in pairwise(BINS)]
    return [{"examples": name, "passages": count} for name, count in zip([*names, f"{BINS[-1]}+"], counts, strict=True)]


def ranks(best_rank: NDArray[np.int32]) -> list[list[float]]:
    """Points (rank, share of the passages whose best rank is that or better) for a curve, at most some 60."""
    worst = int(best_rank.max(initial=1))
    at = np.unique(np.round(np.geomspace(1, worst, 60)).astype(np.int64))
    ordered = np.sort(best_rank)
    shares = np.searchsorted(ordered, at, side="right") / max(1, len(ordered))
    return [[int(rank), float(share)] for rank, share in zip(at, shares, strict=True)]
