"""What each step left out and why: counts by reason, with samples."""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from tlm.artifacts.artifact import Artifact
from tlm.errors import InputError
from tlm.evaluation.pages.blocks import Block, Column, Details, Heading, Items, Line, Quote, Row, Table
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


STEPS = {"corpus": "Corpus", "task": "Task", "hits": "Retrieval", "subset": "Export"}


def section(steps: Sequence[dict[str, Any]]) -> Iterator[Block]:
    """What was left out, step by step: what each counted, the reasons, and samples."""
    if not steps:
        return
    yield Heading("What was left out, and why")
    counts = [(_step(step), ", ".join(f"{name} {n:,}" for name, n in step["counts"].items() if n)) for step in steps]
    yield Items(tuple(f"{step}: {told}." for step, told in counts if told), "samples")
    rows = [row for step in steps for row in _told(step)]
    yield Table(["Step", Column("reason", "words"), "rows"], rows, merged=True)
    samples = tuple(
        _line(f"{_step(step)}, {reason['reason']}: ", sample)
        for step in steps
        for reason in step["reasons"]
        for sample in reason["samples"]
    )
    if samples:
        yield Details("Samples of what was left out", (Items(samples, "samples"),))


def _step(step: dict[str, Any]) -> str:
    return ", ".join(filter(None, (STEPS[step["kind"]], step["arm"])))


def _told(step: dict[str, Any]) -> list[Row]:
    reasons = [(_step(step), Quote.of(one["reason"]), f"{one['count']:,}") for one in step["reasons"]]
    return [*reasons] or [(_step(step), Quote.of(step["missing"]) if step["missing"] else "nothing", "0")]


def _line(about: str, sample: dict[str, str]) -> Line:
    texts = [piece for text in (sample["detail"], sample["text"]) if text for piece in (" · ", Quote.of(text))]
    return (about, Quote.of(sample["where"]), *texts)
