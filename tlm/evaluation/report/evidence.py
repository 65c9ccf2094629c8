"""Retrieved passages beside the training examples that asked for them, so that a person can judge the retrieval."""

from typing import Any

import pyarrow.parquet as pq

from tlm.artifacts.artifact import Artifact
from tlm.errors import InputError
from tlm.evaluation.pages.sampling import evenly, rows_at
from tlm.evaluation.pages.text import shared_words, visible
from tlm.evaluation.report.lineage import Lineage
from tlm.evaluation.report.runs import Group

PASSAGES = {"random": 3}
PASSAGES_OTHERWISE = 10


def evidence(groups: list[Group], lineage: Lineage) -> list[dict[str, Any]]:
    """For each arm that has a subset: its size, and passages evenly spaced through it.

    A passage comes with its best rank and score, how many examples asked for it, and the text and label of the one
    whose query ranked it best. Where an artifact is gone or damaged, ``missing`` says so.
    """
    found = {}
    for group in groups:
        for run in group.runs:
            if run.subset is not None and group.arm not in found:
                found[group.arm] = _arm(group.arm, run.subset, lineage)
    return sorted(found.values(), key=lambda arm: arm["arm"] == "random")


def _arm(arm: str, subset: Artifact, lineage: Lineage) -> dict[str, Any]:
    total = subset.details["passages"]
    told: dict[str, Any] = {"arm": arm, "total": total, "passages": [], "missing": ""}
    try:
        rows = rows_at(subset, "passages-*.parquet", evenly(total, PASSAGES.get(arm, PASSAGES_OTHERWISE)))
        asked = {} if arm == "random" else _askers([row["doc"] for row in rows.values()], subset, lineage)
    except InputError as error:
        return {**told, "missing": _without_address(error, subset)}
    told["passages"] = [_passage(row, asked.get(row["doc"])) for row in rows.values()]
    return told


def _passage(row: dict[str, Any], asker: dict[str, Any] | None) -> dict[str, Any]:
    text = visible(row["text"])
    return {
        "doc": row["doc"],
        "text": text,
        "pieces": shared_words(text, asker["text"] if asker else ""),
        "rank": row["best_rank"] if asker else None,
        "score": row["best_score"] if asker else None,
        "queries": len(row["queries"]) if asker else 0,
        "asker": asker,
    }


def _askers(docs: list[int], subset: Artifact, lineage: Lineage) -> dict[int, dict[str, Any]]:
    """By doc: text and label of the first example behind the query that ranked it best, in a merged subset of any."""
    hits = lineage.follow(subset, "hits")
    task = lineage.follow(hits, "task")
    if subset.has_input("subset-0"):
        return _askers_of_any(docs, subset, lineage)
    if hits is None or task is None:
        return {}
    columns = ["query", "doc", "rank"]
    table = _select(hits, "hits.parquet", columns=columns, filters=[("doc", "in", docs)])
    best: dict[int, int] = {}
    for row in sorted(table, key=lambda row: (row["rank"], row["query"])):
        best.setdefault(row["doc"], row["query"])
    asking = _select(hits, "queries.parquet", filters=[("query", "in", list(best.values()))])
    queries = {row["query"]: row["examples"] for row in asking}
    first = {doc: queries[query][0] for doc, query in best.items() if queries.get(query)}
    examples = rows_at(task, "examples.parquet", first.values())
    return {doc: _example(examples[row]) for doc, row in first.items()}


def _askers_of_any(docs: list[int], merged: Artifact, lineage: Lineage) -> dict[int, dict[str, Any]]:
    """As `_askers`, of the first task that asked; its name stands with the example's label."""
    found: dict[int, dict[str, Any]] = {}
    for number, task in enumerate(merged.details["tasks"]):
        part = lineage.follow(merged, f"subset-{number}")
        for doc, asker in (_askers(docs, part, lineage) if part is not None else {}).items():
            found.setdefault(doc, {**asker, "label": f"{visible(task['name'], 40)}: {asker['label']}"})
    return found


def _select(artifact: Artifact, name: str, **choice: Any) -> list[dict[str, Any]]:
    """Rows of a file; ``partitioning=None`` keeps pyarrow from reading columns out of the store's folder names."""
    return pq.read_table(artifact.path(name), partitioning=None, **choice).to_pylist()  # type: ignore[no-any-return]


def _example(row: dict[str, Any]) -> dict[str, Any]:
    text = " ⁄ ".join(part for part in (row["text"], row["text_pair"]) if part)
    return {
        "id": visible(row["id"], 60),
        "text": visible(text),
        "label": visible(str(row["label"] or row["target"]), 60),
    }


def _without_address(error: InputError, artifact: Artifact) -> str:
    return str(error).replace(f"{artifact.store.root}/", "")
