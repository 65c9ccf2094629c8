"""What each step left out and why: counts by reason, with samples."""

from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from tlm.artifacts.artifact import Artifact
from tlm.errors import InputError
from tlm.evaluation.pages.sampling import rows_at
from tlm.evaluation.pages.text import visible
from tlm.evaluation.report.lineage import flat

SAMPLES = 3
LONGEST_SAMPLE = 240


def dropped(artifact: Artifact, corpus: Artifact | None = None) -> dict[str, Any]:
    """What the step that made `artifact` (corpus, task, hits or subset) left out.

    With `corpus`, the samples of a subset's dropped passages have their text.

    Returns:
        kind, arm, counts (of the manifest, flat), reasons: [{reason, count, samples: [{where, detail, text}]}], and
        missing: what is wrong with the artifact's file; "" if nothing is.
    """
    kind = artifact.manifest.kind
    found = {"kind": kind, "arm": artifact.details.get("arm", ""), "counts": numbers(artifact.counts), "reasons": []}
    name = "rejected.parquet" if kind in ("corpus", "task") else "dropped.parquet"
    try:
        reasons = _reasons(pq.ParquetFile(artifact.path(name)).read(), corpus if kind == "subset" else None)
    except InputError as error:
        return {**found, "missing": without_root(error, artifact)}
    return {**found, "reasons": reasons, "missing": ""}


def without_root(error: InputError, artifact: Artifact) -> str:
    """An error's message without the address of the store, which has no place in a report."""
    return str(error).replace(f"{artifact.store.root}/", "")


def numbers(counts: dict[str, Any]) -> dict[str, int]:
    """The counts of a manifest, flat, without a task's counts by label: labels come from outside, and may be many."""
    return dict(flat({name: value for name, value in counts.items() if name != "labels"}, ", "))


def _reasons(table: Any, corpus: Artifact | None) -> list[dict[str, Any]]:
    if "reason" not in table.column_names or not table.num_rows:
        return []
    found = []
    for reason in pc.unique(table["reason"].drop_null()):
        alike = table.filter(pc.equal(table["reason"], reason))
        count = pc.sum(alike["lines"]).as_py() if "lines" in alike.column_names else len(alike)
        rows = alike.slice(0, SAMPLES).to_pylist()
        texts = rows_at(corpus, "passages-*.parquet", [row["doc"] for row in rows]) if corpus is not None else {}
        samples = [_sample(row, texts.get(row.get("doc"), {}).get("text", "")) for row in rows]
        found.append({"reason": visible(str(reason.as_py()), 80), "count": count, "samples": samples})
    return sorted(found, key=lambda reason: (-reason["count"], reason["reason"]))


def _sample(row: dict[str, Any], text: str) -> dict[str, Any]:
    places = [f"{name} {row[name]}" for name in row if name not in ("reason", "detail") and row[name] is not None]
    shown = {"where": ", ".join(places), "detail": str(row.get("detail") or ""), "text": text}
    return {name: visible(value, LONGEST_SAMPLE) for name, value in shown.items()}
