"""What the retrieval study finds, as plain data: the templates and study.json show nothing else."""

from typing import Any

import numpy as np

from tlm.analysis.page import write_pages
from tlm.analysis.retrieval.asked import most_asked, ranks, shared_by
from tlm.analysis.retrieval.subsets import Subset, overlap, shared_corpus, sources
from tlm.analysis.retrieval.words import shift
from tlm.artifacts.artifact import Artifact
from tlm.artifacts.produce import Draft
from tlm.evaluation.pages.text import visible
from tlm.evaluation.report.lineage import Lineage
from tlm.evaluation.report.runs import ARMS

MOST_SOURCES = 14

Contents = dict[str, Any]


def write_study(draft: Draft, artifacts: list[Artifact], settings: dict[str, Any]) -> None:
    """Fill `draft` with study.json, study.html, study.md and the figures."""
    from tlm.analysis.retrieval import figures

    told = contents(artifacts, settings)
    drawn = {"ranks": figures.ranks(told["subsets"])} if any(one["ranks"] for one in told["subsets"]) else {}
    if any(one["shared_by"] for one in told["subsets"]):
        drawn["shared"] = figures.shared(told["subsets"])
    if len(told["sources"]) > 1:
        drawn["sources"] = figures.sources(told["sources"], told["subsets"])
    if told["overlap"]:
        drawn["overlap"] = figures.overlap(told["overlap"]["inside"], told["subsets"])
    shifts = {f"words-{number:02d}": one for number, one in enumerate(told["subsets"]) if _stands_out(one["words"])}
    largest = max((abs(word["z"]) for one in shifts.values() for word in _both(one["words"])), default=1.0)
    drawn |= {name: figures.words(one["words"], one["role"], largest) for name, one in shifts.items()}
    write_pages(draft.folder, "retrieval", told, drawn)
    draft.counts.update({one["name"]: one["passages"] for one in told["subsets"]})
    draft.details["shares"] = {one["name"]: one["share"] for one in told["subsets"]}


def contents(artifacts: list[Artifact], settings: dict[str, Any]) -> Contents:
    """Everything about these subsets.

    Raises:
        InputError: they are not known to be from one corpus.
    """
    lineage = Lineage()
    subsets = [
        Subset.read(artifact, name, role, lineage)
        for artifact, name, role in zip(artifacts, settings["names"], _roles(artifacts), strict=True)
    ]
    corpus = shared_corpus(subsets)
    size = int(corpus.details["passages"]) if corpus else None
    words = shift(subsets, corpus, settings["sample"], settings["top"], settings["seed"]) if corpus else []
    whole = sources(subsets, corpus) if corpus else []
    told: Contents = {
        "settings": settings,
        "corpus": {"passages": size, "sources": len(whole)},
        "subsets": [_told(one, size, settings["top"]) for one in subsets],
        "overlap": overlap(subsets) if len(subsets) > 1 else None,
        "sources": _folded(whole, len(subsets)),
    }
    for number, one in enumerate(told["subsets"]):
        one["words"] = _shown(words[number]) if words else None
    told["findings"] = findings(told, whole)
    told["gone"] = lineage.told()
    return told


def _told(one: Subset, size: int | None, top: int) -> dict[str, Any]:
    by_rank = one.arm != "random" and len(one.docs) > 0
    asked = one.asked[one.asked > 0]
    return {
        "name": visible(one.name, 60),
        "role": one.role,
        "arm": one.arm,
        "task": visible(one.task.details["name"], 60) if one.task else "",
        "passages": len(one.docs),
        "share": len(one.docs) / size if size else None,
        "median_rank": float(np.median(one.best_rank)) if by_rank else None,
        "ranks": ranks(one.best_rank) if by_rank else [],
        "asked": {
            "mean": float(asked.mean()) if len(asked) else None,
            "once": float((asked == 1).mean()) if len(asked) else None,
            "most": int(asked.max(initial=0)),
        },
        "shared_by": shared_by(one.asked),
        "most_asked": most_asked(one, top),
    }


def _both(words: dict[str, Any]) -> list[dict[str, Any]]:
    return [*words["over"], *words["under"]]


def _stands_out(words: dict[str, Any] | None) -> bool:
    return words is not None and bool(_both(words))


def _shown(words: dict[str, Any]) -> dict[str, Any]:
    for side in ("over", "under"):
        words[side] = [word | {"word": visible(word["word"], 30)} for word in words[side]]
    return words


def _folded(whole: list[dict[str, Any]], subsets: int) -> list[dict[str, Any]]:
    """The largest sources by name, the others as one row."""
    shown, rest = whole[:MOST_SOURCES], whole[MOST_SOURCES:]
    told = [row | {"source": visible(row["source"], 40)} for row in shown]
    if rest:
        told.append(
            {
                "source": f"{len(rest)} more",
                "passages": sum(row["passages"] for row in rest),
                "corpus": sum(row["corpus"] for row in rest),
                "subsets": [sum(row["subsets"][number] for row in rest) for number in range(subsets)],
            }
        )
    return told


def _roles(artifacts: list[Artifact]) -> list[str]:
    """Colours: an arm's own for its first subset, spare ones for others."""
    found: list[str] = []
    for artifact in artifacts:
        arm = artifact.details.get("arm")
        spare = sum(role.startswith("other-") for role in found) % 4
        found.append(arm if arm in ARMS and arm not in found else f"other-{spare}")
    return found


def findings(told: Contents, whole: list[dict[str, Any]]) -> list[str]:
    """What the numbers say, one sentence for each subset, then one on what they share."""
    sentences = []
    for number, one in enumerate(told["subsets"]):
        parts = [f"{one['name']}: {one['passages']:,} passages"]
        if one["share"] is not None:
            parts[0] += f", {one['share']:.1%} of the corpus"
        gained = max(whole, key=lambda row: row["subsets"][number] - row["corpus"], default=None)
        if gained and gained["subsets"][number] > 1.2 * gained["corpus"]:
            share, name = gained["subsets"][number], visible(gained["source"], 40)
            parts.append(f"most drawn from {name} ({share:.0%} of it, {gained['corpus']:.0%} of the corpus)")
        if one["asked"]["mean"] is not None:
            parts.append(f"a passage was asked for by {one['asked']['mean']:.1f} examples on average")
        sentences.append("; ".join(parts) + ".")
    if told["overlap"]:
        sentences.insert(0, _overlap_sentence(told))
    return sentences


def _overlap_sentence(told: Contents) -> str:
    names, jaccard = [one["name"] for one in told["subsets"]], told["overlap"]["jaccard"]
    pairs = [(jaccard[a][b], a, b) for a in range(len(names)) for b in range(a)]
    share, a, b = max(pairs)
    inside = told["overlap"]["inside"]
    which = "" if len(names) == 2 else " are the most alike: they"
    text = f"{names[b]} and {names[a]}{which} share {share:.0%} of what they hold together"
    return f"{text} ({inside[b][a]:.0%} of {names[b]}, {inside[a][b]:.0%} of {names[a]})."
