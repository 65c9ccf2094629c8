"""The command `provenance`: the raw material of an artifact, through its whole lineage; as data, and as blocks."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tlm.artifacts.artifact import Artifact
from tlm.artifacts.stores.local import here, write_whole
from tlm.data.passages import passages
from tlm.evaluation.pages.blocks import Block, Column, Heading, Line, Quote, Row, Span, Table, opening
from tlm.evaluation.pages.plain import terminal
from tlm.evaluation.pages.render import write_pages
from tlm.evaluation.pages.text import visible
from tlm.evaluation.predict.models import trained
from tlm.evaluation.report import lineage
from tlm.progress import Answer, say

LICENSE = "license"
Counts = Counter[tuple[str, str]]  # passages by source and licence


def provenance(artifact: str, *, to: str = "") -> Answer:
    """List what a model, subset or corpus was made from: sources with licences, files, and what was left out and why.

    With ``--to``, it writes provenance.html, provenance.md, provenance.json and, if cyclonedx-python-lib is installed,
    the bill of materials as bom.cdx.json (CycloneDX 1.6). Licences come from the field that ``--license-field`` names.

    Args:
        artifact: URI of a corpus, subset, checkpoint or model, of metrics, or of a report (the model it recommends).
        to: Folder to write to, created if necessary; empty: only print.
    """
    folder = here(to)
    subject = Artifact.open(artifact, "corpus", "subset", "checkpoint", "model", "metrics", "report")
    subject = trained(artifact) if subject.manifest.kind == "report" else subject
    every = lineage.everything([subject])
    found = contents(subject, every)
    page = list(blocks(found))
    if to:
        folder.mkdir(parents=True, exist_ok=True)
        write_pages(folder, "provenance", subject.folder_name, page, found)
        try:
            from tlm.evaluation.origins.bom import bill
        except ImportError:
            say("provenance: no bom.cdx.json: it needs `make install`, or in a checkout `pip install '.[bom]'`")
        else:
            write_whole(folder / "bom.cdx.json", bill(subject, every, found))
    return Answer(terminal(page), found)


def contents(subject: Artifact, found: list[Artifact]) -> dict[str, Any]:
    """Collect where everything that `subject` was made from came from.

    Args:
        subject: The artifact.
        found: The artifact and all that it was made from.
    """
    corpora, subsets = ([one for one in found if one.manifest.kind == kind] for kind in ("corpus", "subset"))
    return {
        "subject": subject.as_input().model_dump() | {"name": lineage.name_of(subject), "tlm": subject.manifest.tool},
        "corpora": [_corpus(one, subsets) for one in corpora],
        "files": [file for one in found for file in _files(one)],
        "dropped": [lineage.dropped(one, one.nearest("corpus")) for one in found if one.manifest.kind in lineage.STEPS],
        "lineage": lineage.lineage_rows(found),
        "gone": lineage.gone(found),
    }


def _corpus(corpus: Artifact, subsets: Sequence[Artifact]) -> dict[str, Any]:
    """The sources of a corpus, with the passages that each of its subsets has of them; what was taken most is first."""
    subsets = [one for one in subsets if corpus.folder_name in {part.folder_name for part in one.lineage()}]
    whole, *taken = count_sources(corpus, subsets)
    used = sum(taken, Counts())
    rows = [
        {"source": name, LICENSE: licence, "passages": count, "subsets": [own[name, licence] for own in taken]}
        for (name, licence), count in sorted(whole.items(), key=lambda item: (-used[item[0]], -item[1], item[0]))
    ]
    named = [
        {"key": one.manifest.key, "arm": one.details["arm"], "passages": one.details["passages"]} for one in subsets
    ]
    return {"key": corpus.manifest.key, "passages": whole.total(), "subsets": named, "sources": rows}


def count_sources(corpus: Artifact, subsets: Sequence[Artifact]) -> list[Counts]:
    """Count the passages of each source and licence ("" if it is unknown), of a corpus, then of subsets of it."""
    named = ["source", *([LICENSE] if "license_field" in corpus.manifest.settings else [])]
    docs = [np.concatenate([[], *(part["doc"].to_numpy() for part in passages(one, ["doc"]))]) for one in subsets]
    whole, start = [Counts() for _ in (corpus, *subsets)], 0
    for batch in passages(corpus, named):
        inside = [own[slice(*np.searchsorted(own, [start, start + len(batch)]))] - start for own in docs]
        parts = [batch, *(batch.take(pa.array(rows.astype(np.int64))) for rows in inside)]
        for counts, part in zip(whole, parts, strict=True):
            grouped = pa.Table.from_batches([part]).group_by(named).aggregate([([], "count_all")])
            counts.update({(row["source"], row.get(LICENSE, "")): row["count_all"] for row in grouped.to_pylist()})
        start += len(batch)
    return whole


def _files(artifact: Artifact) -> Iterator[dict[str, str]]:
    """The raw files that a step read, with the digest of each: a sha256, or address and commit of a Hub data set."""
    settings = artifact.manifest.settings
    files = settings.get("files", [])
    named = files.items() if isinstance(files, dict) else files
    for *split, name, digest in [*named, *settings.get("unlabelled", [])]:
        yield {"of": artifact.folder_name, "split": "".join(split), "name": name, "digest": digest}


MOST_ROWS = 100  # of a table
SHORTENED = "Digests are shortened, and at most {:,} rows are shown; provenance.json has everything."
UNKNOWN = "not stated"


def blocks(found: dict[str, Any]) -> Iterator[Block]:
    """The page, from `tlm.evaluation.origins.provenance.contents`."""
    subject, files = found["subject"], found["files"]
    title: Line = (f"What {subject['kind']} ", Span(subject["name"] or subject["key"][:12]), " was made from")
    facts: Line = (Span(f"{subject['kind']}/{subject['key']}", "code"), f", made by TLM {subject['tlm']}")
    sentences = [sentence for corpus in found["corpora"] for sentence in _sentences(corpus)]
    yield from opening("TLM provenance", title, facts, sentences or ["It was made without a corpus."], found["gone"])
    for corpus in found["corpora"]:
        yield Heading("Sources and licences")
        subsets = (Column((f"subset {one['arm']} ", Span(one["key"][:6], "code"))) for one in corpus["subsets"])
        rows = list(map(_source, corpus["sources"][:MOST_ROWS]))
        yield Table(["source", Column("licence", "left"), "passages", *subsets], rows)
    if files:
        yield Heading("Raw files")
        columns = [Column(name, "left") for name in ("of", "split", "file", "digest")]
        yield Table(columns, list(map(_file, files[:MOST_ROWS])), SHORTENED.format(MOST_ROWS))
    yield from lineage.dropped_section(found["dropped"])
    yield from lineage.section(found["lineage"])


def _sentences(corpus: dict[str, Any]) -> Iterator[str]:
    rows = corpus["sources"]
    names, licences = ({row[field] for row in rows} - {""} for field in ("source", "license"))
    unknown = sum(row["passages"] for row in rows if not row["license"])
    yield f"Passages in the corpus: {corpus['passages']:,}; sources: {len(names):,}; licences: {len(licences):,}."
    advice = ". load-corpus --license-field names the field that has it" if unknown else ""
    yield f"Passages without a licence: {unknown:,}{advice}."
    yield from (f"Passages in the subset {one['arm']}: {one['passages']:,}." for one in corpus["subsets"])


def _source(row: dict[str, Any]) -> Row:
    licence = Quote.of(visible(row["license"], 80)) if row["license"] else UNKNOWN
    counts = (f"{count:,}" for count in (row["passages"], *row["subsets"]))
    return Quote.of(visible(row["source"], 120)), licence, *counts


def _file(row: dict[str, str]) -> Row:
    digest = row["digest"] if "@" in row["digest"] else row["digest"][:16]
    return Span(row["of"][:-12], "code"), row["split"], Quote.of(visible(row["name"], 120)), Span(digest, "code")
