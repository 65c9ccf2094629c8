"""Results of the retrieval study as plain data: the pages and study.json show nothing else."""

from collections import Counter
from collections.abc import Sequence
from itertools import chain, pairwise
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from research.retrieval import figures, page
from research.retrieval.subsets import Subset, overlap, reductions, shared_corpus, sources
from research.retrieval.words import shift
from research.studies import write_study_pages
from tlm.artifacts.artifact import Artifact
from tlm.artifacts.produce import Draft
from tlm.data.passages import evenly, rows_at
from tlm.evaluation.pages.blocks import roles
from tlm.evaluation.pages.text import shared_words, visible, whole_text
from tlm.evaluation.report.lineage import everything, gone
from tlm.evaluation.report.preview import PASSAGES, examples_by_query
from tlm.settings.selectors import WITHOUT_QUERIES

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
            "labels": _label_counts([label for row in rows if labels for label in _listed(labels[row])]),
            "examples": [_example(examples[row], passage["text"]) for row in shown if row in examples],
        }
        for passage, rows, shown in zip((passages[place] for place in places), asking, chosen, strict=True)
    ]


def _listed(label: str | list[str] | None) -> list[str]:
    """The labels of an example that has one, several or none."""
    return label if isinstance(label, list) else [] if label is None else [label]


def _label_counts(labels: Sequence[str]) -> list[dict[str, Any]]:
    """The count of each label, the most frequent first; the rarest of many are added up."""
    order = Counter(sorted(labels)).most_common()
    counts = [{"label": visible(label, 40), "count": count} for label, count in order[:MOST_LABELS]]
    others = sum(count for _, count in order[MOST_LABELS:])
    return counts + ([{"label": "others", "count": others}] if others else [])


def _example(row: dict[str, Any], passage: str) -> dict[str, Any]:
    """An example as the page shows it; words that `passage` also has are marked in ``pieces``."""
    text = visible(whole_text(row))
    if row["target"] is not None:
        label = f"{row['target']:g}"
    else:
        label = "no label" if row["label"] is None else ", ".join(_listed(row["label"]))
    return {
        "id": visible(row["id"], 60),
        "label": visible(label, 40),
        "text": text,
        "pieces": shared_words(text, passage, least=3),
    }


def shared_by(asked: NDArray[np.int32]) -> list[dict[str, Any]]:
    """The numbers of passages that were retrieved for 1, 2-3, 4-7 … examples."""
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


MOST_SOURCES = 14

Contents = dict[str, Any]


def write_study(draft: Draft, artifacts: list[Artifact], settings: dict[str, Any]) -> None:
    """Fill `draft` with study.json, study.html, study.md and the figures.

    Raises:
        InputError: The subsets are not known to be from one corpus.
    """
    role = roles(artifact.details.get("arm", "") for artifact in artifacts)
    named = zip(artifacts, settings["names"], role, strict=True)
    subsets = [Subset.read(artifact, name, role) for artifact, name, role in named]
    corpus = shared_corpus(subsets)
    size = int(corpus.details["passages"]) if corpus else None
    whole = sources(subsets, corpus) if corpus else []
    words = shift(subsets, corpus, settings["sample"], settings["top"], settings["seed"]) if corpus else []
    shown = [_subset(one, size, settings["top"]) for one in subsets]
    closer = reductions(subsets, corpus, settings["sample"], settings["seed"]) if corpus else []
    for number, one in enumerate(shown):
        one["words"] = words[number] if words else None
        one["kl_reduction"] = closer[number] if closer else None
    contents: Contents = {
        "settings": settings,
        "corpus": {"passages": size, "sources": len(whole)},
        "subsets": shown,
        "overlap": overlap(subsets) if len(subsets) > 1 else None,
        "sources": _folded(whole),
        "gone": gone(everything(artifacts)),
    }
    contents["findings"] = _findings(contents, whole)
    drawn = _figures(contents)
    write_study_pages(draft.folder, "Retrieved subsets", list(page.blocks(contents, drawn)), contents, drawn)
    draft.counts.update({one["name"]: one["passages"] for one in shown})
    draft.details["shares"] = {one["name"]: one["share"] for one in shown}


def _subset(one: Subset, size: int | None, top: int) -> dict[str, Any]:
    arm = one.artifact.details.get("arm", "")
    ranked = arm not in WITHOUT_QUERIES and len(one.docs) > 0
    asked = one.asked[one.asked > 0]
    return {
        "name": visible(one.name, 60),
        "role": one.role,
        "arm": arm,
        "task": visible(one.task.details["name"], 60) if one.task else "",
        "passages": len(one.docs),
        "share": len(one.docs) / size if size else None,
        "median_rank": float(np.median(one.best_rank)) if ranked else None,
        "ranks": ranks(one.best_rank) if ranked else [],
        "asked": {
            "mean": float(asked.mean()) if len(asked) else None,
            "once": float((asked == 1).mean()) if len(asked) else None,
            "most": int(asked.max(initial=0)),
        },
        "shared_by": shared_by(one.asked),
        "most_asked": most_asked(one, top),
    }


def _folded(whole: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The largest sources by name, and the others as one row."""
    rows = [row | {"source": visible(row["source"], 40)} for row in whole[:MOST_SOURCES]]
    if rest := whole[MOST_SOURCES:]:
        sums = {name: sum(row[name] for row in rest) for name in ("passages", "corpus")}
        shares = [sum(column) for column in zip(*(row["subsets"] for row in rest), strict=True)]
        rows.append({"source": f"{len(rest)} more", **sums, "subsets": shares})
    return rows


def _figures(contents: Contents) -> dict[str, str]:
    subsets, drawn = contents["subsets"], {}
    if any(one["ranks"] for one in subsets):
        drawn["ranks"] = figures.ranks(subsets)
    if any(one["shared_by"] for one in subsets):
        drawn["shared"] = figures.shared(subsets)
    if len(contents["sources"]) > 1:
        drawn["sources"] = figures.sources(contents["sources"], subsets)
    if contents["overlap"]:
        drawn["overlap"] = figures.overlap(contents["overlap"]["inside"], subsets)
    words = [[*one["words"]["over"], *one["words"]["under"]] if one["words"] else [] for one in subsets]
    largest = max((abs(word["z"]) for found in words for word in found), default=1.0)
    for number, one in enumerate(subsets):
        if words[number]:
            drawn[f"words-{number:02d}"] = figures.words(one["words"], one["role"], largest)
    return drawn


def _findings(contents: Contents, whole: list[dict[str, Any]]) -> list[str]:
    """The results in words: what the subsets share, if there are several, then a sentence for each subset."""
    sentences = [_overlap_sentence(contents)] if contents["overlap"] else []
    for number, one in enumerate(contents["subsets"]):
        parts = [f"{one['name']}: {one['passages']:,} passages"]
        if one["share"] is not None:
            parts[0] += f", {one['share']:.1%} of the corpus"
        gained = max(whole, key=lambda row: row["subsets"][number] - row["corpus"], default=None)
        if gained and gained["subsets"][number] > 1.2 * gained["corpus"]:
            name, share, usual = visible(gained["source"], 40), gained["subsets"][number], gained["corpus"]
            parts.append(f"{name} is the most over-represented source ({share:.0%}, in the corpus {usual:.0%})")
        if one["asked"]["mean"] is not None:
            parts.append(f"a passage was retrieved for {one['asked']['mean']:.1f} examples on average")
        sentences.append("; ".join(parts) + ".")
    return sentences


def _overlap_sentence(contents: Contents) -> str:
    names, jaccard = [one["name"] for one in contents["subsets"]], contents["overlap"]["jaccard"]
    share, a, b = max((jaccard[a][b], a, b) for a in range(len(names)) for b in range(a))
    inside = contents["overlap"]["inside"]
    which = "" if len(names) == 2 else " are the most alike: they"
    text = f"{names[b]} and {names[a]}{which} have {share:.0%} of their combined passages in common"
    return f"{text} ({inside[b][a]:.0%} of {names[b]}, {inside[a][b]:.0%} of {names[a]})."
