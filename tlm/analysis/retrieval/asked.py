"""Which labelled examples retrieved a subset's passages, and how well the passages rank."""

from collections import Counter
from collections.abc import Sequence
from itertools import chain, pairwise
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tlm.analysis.retrieval.subsets import PASSAGES, Subset, examples_by_query
from tlm.evaluation.pages.sampling import evenly, rows_at
from tlm.evaluation.pages.text import shared_words, visible, whole_text

SHOWN_EXAMPLES = 3
MOST_LABELS = 8
BINS = (1, 2, 4, 8, 16, 32)  # passages retrieved for 1, 2-3, 4-7, … examples


def most_asked(subset: Subset, top: int) -> list[dict[str, Any]]:
    """The `top` passages retrieved for the most examples, with the labels of the examples and some of their texts."""
    if subset.hits is None or not subset.asked.any():
        return []
    places = np.lexsort((subset.docs, -subset.asked))[:top].tolist()
    passages, behind = rows_at(subset.artifact, PASSAGES, places), examples_by_query(subset.hits)
    asking = [sorted({row for query in passages[place]["queries"] for row in behind[query]}) for place in places]
    chosen = [[rows[number] for number in evenly(len(rows), SHOWN_EXAMPLES)] for rows in asking]
    examples, labels = {}, []
    if subset.task:
        examples = rows_at(subset.task, "examples.parquet", chain.from_iterable(chosen))
        table = pq.read_table(subset.task.path("examples.parquet"), columns=["label"], partitioning=None)
        labels = table["label"].to_pylist()
    return [
        {
            "doc": passage["doc"],
            "text": visible(passage["text"]),
            "best_rank": passage["best_rank"],
            "asked": len(rows),
            "labels": _label_counts([labels[row] for row in rows if labels and labels[row] is not None]),
            "examples": [_example(examples[row], passage["text"]) for row in shown if row in examples],
        }
        for passage, rows, shown in zip((passages[place] for place in places), asking, chosen, strict=True)
    ]


def _label_counts(labels: Sequence[str]) -> list[dict[str, Any]]:
    """How often each label occurs, the most frequent first; the rarest of many are added up."""
    order = Counter(sorted(labels)).most_common()
    counts = [{"label": visible(label, 40), "count": count} for label, count in order[:MOST_LABELS]]
    others = sum(count for _, count in order[MOST_LABELS:])
    return counts + ([{"label": "others", "count": others}] if others else [])


def _example(row: dict[str, Any], passage: str) -> dict[str, Any]:
    """An example as the page shows it; words that `passage` also has are marked in ``pieces``."""
    text = visible(whole_text(row))
    label = row["label"] if row["label"] is not None else f"{row['target']:g}"
    return {
        "id": visible(row["id"], 60),
        "label": visible(str(label), 40),
        "text": text,
        "pieces": shared_words(text, passage, least=3),
    }


def shared_by(asked: NDArray[np.int32]) -> list[dict[str, Any]]:
    """How many passages were retrieved for 1, 2-3, 4-7 … examples."""
    if not asked.any():
        return []
    counts = np.histogram(asked[asked > 0], [*BINS, np.iinfo(np.int32).max])[0].tolist()
    names = [str(low) if high == low + 1 else f"{low}–{high - 1}" for low, high in pairwise(BINS)]
    return [{"examples": name, "passages": count} for name, count in zip([*names, f"{BINS[-1]}+"], counts, strict=True)]


def ranks(best_rank: NDArray[np.int32]) -> list[list[float]]:
    """A curve of at most 60 points: a rank, and the share of the passages with this best rank or a better one."""
    at = np.unique(np.round(np.geomspace(1, int(best_rank.max(initial=1)), 60)).astype(np.int64))
    shares = np.searchsorted(np.sort(best_rank), at, side="right") / max(1, len(best_rank))
    return [[rank, share] for rank, share in zip(at.tolist(), shares.tolist(), strict=True)]
