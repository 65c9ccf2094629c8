"""The artifacts that metrics were made from, and what each step left out, with samples."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from tlm.artifacts.artifact import Artifact, Reference, follow
from tlm.data.passages import rows_at
from tlm.errors import InputError
from tlm.evaluation.pages.blocks import Block, Column, Details, Heading, Items, Line, Quote, Row, Span, Table, Text
from tlm.evaluation.pages.text import visible
from tlm.evaluation.score.mix import ReportRow

ORDER = ("corpus", "task", "index", "hits", "subset", "tokenizer", "tokens", "checkpoint", "model", "metrics")
MOST_NAMED = 4


def everything(starts: Iterable[Artifact]) -> list[Artifact]:
    """`starts` and all that they were made from, each once, in the order of the pipeline."""
    found = {one.folder_name: one for start in starts for one in start.lineage()}
    return sorted(found.values(), key=lambda one: _pipeline_order(one.manifest))


def gone(artifacts: Iterable[Artifact]) -> str:
    """A sentence about the inputs of these artifacts that could not be opened; "" if all could."""
    inputs = {ref.folder_name: (one, name) for one in artifacts for name, ref in one.manifest.inputs.items()}
    lost = [one.manifest.inputs[name] for one, name in inputs.values() if follow(one, name) is None]
    if not lost:
        return ""
    names = [f"{ref.kind} {ref.key[:12]}" for ref in sorted(lost, key=_pipeline_order)]
    more = f" and {len(lost) - MOST_NAMED} more" if len(lost) > MOST_NAMED else ""
    return f"Deleted or changed: {', '.join(names[:MOST_NAMED])}{more}. What only they record is missing here."


def compared(report: Artifact) -> list[Artifact]:
    """The metrics that a report compares. Raises InputError if one is gone."""
    return [report.input(name) for name in report.manifest.inputs if name.startswith("metrics-")]


def lineage_rows(artifacts: list[Artifact]) -> list[dict[str, Any]]:
    """Kind, key, content, step and settings of each artifact.

    Of the settings of a step's later artifacts, only what differs from its first one.
    """
    rows: list[dict[str, Any]] = []
    firsts: dict[tuple[str, str], dict[str, Any]] = {}
    for artifact in artifacts:
        manifest = artifact.manifest
        settings = dict(flat(manifest.settings))
        first = firsts.setdefault((manifest.kind, manifest.step), settings)
        like_first = first is not settings
        shown = {name: plain(value) for name, value in settings.items() if not like_first or first.get(name) != value}
        row: dict[str, Any] = {"kind": manifest.kind, "key": manifest.key, "content": manifest.content}
        row |= {"step": f"{manifest.step} v{manifest.version}", "like_first": like_first, "settings": shown}
        rows.append(row | {"inputs": [f"{ref.kind}/{ref.key[:12]}" for ref in manifest.inputs.values()]})
    return rows


def name_of(artifact: Artifact) -> str:
    """The name of a task or published model, or the arm as reports call it; "" if there is none."""
    details = artifact.details
    arm = str(details.get("arm") or "")
    if arm and artifact.manifest.kind in ("model", "metrics"):
        arm = ReportRow.of(arm, details.get("stage", "")).name
    return str(details.get("name") or arm)


def flat(values: dict[str, Any], separator: str = ".", prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Flatten nested settings or counts: ``rejected: {"empty": 3}`` becomes ``rejected.empty``."""
    for name, value in sorted(values.items()):
        if isinstance(value, dict):
            yield from flat(value, separator, f"{prefix}{name}{separator}")
        else:
            yield f"{prefix}{name}", value


def plain(value: Any) -> str:
    """A setting's value as short text."""
    return visible(", ".join(map(str, value)) if isinstance(value, list) else str(value), 80)


def _pipeline_order(made: Reference) -> tuple[int, str]:
    return ORDER.index(made.kind) if made.kind in ORDER else len(ORDER), made.key


def section(rows: Sequence[dict[str, Any]]) -> Iterator[Block]:
    """The artifacts behind the report."""
    columns = [Column(name, "left") for name in ("Artifact", "content", "step")]
    table = Table([*columns, Column("settings", "words")], [_cells(row) for row in rows])
    yield Heading("Lineage")
    yield Details(f"The {len(rows)} artifacts behind this page", (table,))
    yield Text("Artifacts with equal content have equal files. Texts on this page are shortened.", "small")


def _cells(row: dict[str, Any]) -> Row:
    named = ", ".join(f"{name}={value}" for name, value in row["settings"].items())
    settings: Line = "same as the first" if row["like_first"] else ""
    if named:
        settings = (f"{settings}, except " if settings else "", Quote.of(named))
    key, content = (Span(text, "code") for text in (f"{row['kind']}/{row['key'][:12]}", row["content"][:12]))
    return key, content, row["step"], settings


SAMPLES = 3
LONGEST_SAMPLE = 240


def dropped(artifact: Artifact, corpus: Artifact | None = None) -> dict[str, Any]:
    """Count the rows that the step behind `artifact` (corpus, task, hits or subset) left out.

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
    for reason in pc.unique(table["reason"].drop_null()).to_pylist():
        alike = table.filter(pc.equal(table["reason"], reason))
        count = pc.sum(alike["lines"]).as_py() if "lines" in alike.column_names else len(alike)
        rows = alike.slice(0, SAMPLES).to_pylist()
        texts = rows_at(corpus, "passages-*.parquet", [row["doc"] for row in rows]) if corpus is not None else {}
        samples = [_sample(row, texts.get(row.get("doc"), {}).get("text", "")) for row in rows]
        found.append({"reason": visible(str(reason), 80), "count": count, "samples": samples})
    return sorted(found, key=lambda reason: (-reason["count"], reason["reason"]))


def _sample(row: dict[str, Any], text: str) -> dict[str, Any]:
    places = [f"{name} {row[name]}" for name in row if name not in ("reason", "detail") and row[name] is not None]
    shown = {"where": ", ".join(places), "detail": str(row.get("detail") or ""), "text": text}
    return {name: visible(value, LONGEST_SAMPLE) for name, value in shown.items()}


LEFT_OUT = ("duplicates", "surplus")  # counted without samples: exact duplicates, and passages more than wanted
CALLED = {"like": "wanted", "leaks": "dev and test texts also in train", "candidates": "read"}
STEPS = {"corpus": "Corpus", "task": "Task", "hits": "Retrieval", "subset": "Export"}


def dropped_section(steps: Sequence[dict[str, Any]]) -> Iterator[Block]:
    """The rows that were left out, step by step: counts, reasons and samples."""
    if not steps:
        return
    yield Heading("What was left out, and why")
    yield Items(tuple(f"{_step(step)}: {said}." for step in steps if (said := _kept(step))), "samples")
    if rows := [row for step in steps for row in _reason_rows(step)]:
        yield Table(["Left out by", Column("reason", "words"), "rows"], rows)
    reasons = [(_step(step), reason) for step in steps for reason in step["reasons"]]
    if samples := tuple(_line(step, reason, sample) for step, reason in reasons for sample in reason["samples"]):
        yield Details("Samples of what was left out", (Items(samples, "samples"),))


def _step(step: dict[str, Any]) -> str:
    return ", ".join(filter(None, (STEPS[step["kind"]], step["arm"])))


def _reason_rows(step: dict[str, Any]) -> list[Row]:
    rows: list[Row] = [(_step(step), Quote.of(one["reason"]), f"{one['count']:,}") for one in step["reasons"]]
    rows += [(_step(step), name, f"{step['counts'][name]:,}") for name in LEFT_OUT if step["counts"].get(name)]
    return rows or ([(_step(step), Quote.of(step["missing"]), "–")] if step["missing"] else [])


def _kept(step: dict[str, Any]) -> str:
    """The counts of a step that no reason explains."""
    told = {*LEFT_OUT, *(one["reason"] for one in step["reasons"])}
    kept = {CALLED.get(name, name): n for name, n in step["counts"].items() if n and name not in told}
    return ", ".join(f"{name} {n:,}" for name, n in kept.items())


def _line(step: str, reason: dict[str, Any], sample: dict[str, str]) -> Line:
    texts = [piece for text in (sample["detail"], sample["text"]) if text for piece in (" · ", Quote.of(text))]
    return (f"{step}, ", Quote.of(reason["reason"]), ": ", Quote.of(sample["where"]), *texts)
