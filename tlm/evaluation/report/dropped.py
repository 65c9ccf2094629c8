"""What each step left out and why: counts by reason, with samples."""

from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from tlm.artifacts.artifact import Artifact
from tlm.errors import InputError
from tlm.evaluation.pages.sampling import rows_at
from tlm.evaluation.pages.text import visible

SAMPLES = 3
LONGEST_SAMPLE = 240
FILES = {
    "corpus": "rejected.parquet",
    "task": "rejected.parquet",
    "hits": "dropped.parquet",
    "subset": "dropped.parquet",
}


def dropped(artifact: Artifact, corpus: Artifact | None = None) -> dict[str, Any]:
    """What the step that made `artifact` (corpus, task, hits or subset) left out.

    With `corpus`, the samples of a subset's dropped passages have their text.

    Returns:
        kind, arm, counts (of the manifest, flat), reasons: [{reason, count, samples: [{where, detail, text}]}], and
        missing: what is wrong with the artifact's file; "" if nothing is.
    """
    kind = artifact.manifest.kind
    found = {"kind": kind, "arm": artifact.details.get("arm", ""), "counts": numbers(artifact.counts), "reasons": []}
    try:
        reasons = _reasons(pq.ParquetFile(artifact.path(FILES[kind])).read(), corpus if kind == "subset" else None)
    except InputError as error:
        return {**found, "missing": without_root(error, artifact)}
    return {**found, "reasons": reasons, "missing": ""}


def without_root(error: InputError, artifact: Artifact) -> str:
    """An error's message without the address of the store, which has no place in a report."""
    return str(error).replace(f"{artifact.store.root}/", "")


def numbers(counts: dict[str, Any], prefix: str = "") -> dict[str, int]:
    """Flatten the counts of a manifest: ``rejected: {"empty": 3}`` becomes ``rejected, empty``.

    A task's counts by label are left out: labels come from outside, and there may be many.
    """
    found: dict[str, int] = {}
    for name, value in counts.items():
        if name == "labels":
            continue
        if isinstance(value, dict):
            found.update(numbers(value, f"{prefix}{name}, "))
        elif isinstance(value, int) and not isinstance(value, bool):
            found[f"{prefix}{name}"] = value
    return found


def _reasons(table: Any, corpus: Artifact | None) -> list[dict[str, Any]]:
    if "reason" not in table.column_names or not table.num_rows:
        return []
    found = []
    for count in pc.value_counts(table["reason"]).to_pylist():
        rows = table.filter(pc.equal(table["reason"], count["values"])).slice(0, SAMPLES).to_pylist()
        texts = rows_at(corpus, "passages-*.parquet", [row["doc"] for row in rows]) if corpus is not None else {}
        samples = [_sample(row, texts.get(row.get("doc"), {}).get("text", "")) for row in rows]
        found.append({"reason": visible(str(count["values"]), 80), "count": count["counts"], "samples": samples})
    return sorted(found, key=lambda reason: (-reason["count"], reason["reason"]))


def _sample(row: dict[str, Any], text: str) -> dict[str, Any]:
    places = [f"{name} {row[name]}" for name in row if name not in ("reason", "detail") and row[name] is not None]
    detail = visible(str(row.get("detail") or ""), LONGEST_SAMPLE)
    return {
        "where": visible(", ".join(places), LONGEST_SAMPLE),
        "detail": detail,
        "text": visible(text, LONGEST_SAMPLE),
    }
