"""The page on where an artifact comes from."""

from collections.abc import Iterator
from typing import Any

from tlm.evaluation.pages.blocks import Block, Column, Heading, Line, Quote, Row, Span, Table, opening
from tlm.evaluation.pages.text import visible
from tlm.evaluation.report.lineage import dropped_section, section

MOST_ROWS = 100  # of a table
SHORTENED = "Digests are shortened, and at most {:,} rows are shown; provenance.json has everything."
UNKNOWN = "not stated"


def blocks(found: dict[str, Any]) -> Iterator[Block]:
    """The page, from `tlm.evaluation.provenance.sources.contents`."""
    subject, files = found["subject"], found["files"]
    title: Line = (f"What {subject['kind']} ", Span(subject["name"] or subject["key"][:12]), " was made from")
    facts: Line = (Span(f"{subject['kind']}/{subject['key']}", "code"), f", made by TLM {subject['tlm']}")
    sentences = [sentence for corpus in found["corpora"] for sentence in _sentences(corpus)]
    yield from opening("TLM provenance", title, facts, sentences or ["No corpus is behind it."], found["gone"])
    for corpus in found["corpora"]:
        yield Heading("Sources and licences")
        subsets = (Column((f"subset {one['arm']} ", Span(one["key"][:6], "code"))) for one in corpus["subsets"])
        yield Table(
            ["source", Column("licence", "left"), "passages", *subsets],
            list(map(_source, corpus["sources"][:MOST_ROWS])),
        )
    if files:
        yield Heading("Raw files")
        columns = [Column(name, "left") for name in ("of", "split", "file", "digest")]
        yield Table(columns, list(map(_file, files[:MOST_ROWS])), SHORTENED.format(MOST_ROWS))
    yield from dropped_section(found["dropped"])
    yield from section(found["lineage"])


def _sentences(corpus: dict[str, Any]) -> Iterator[str]:
    rows = corpus["sources"]
    names, licences = ({row[field] for row in rows} - {""} for field in ("source", "license"))
    unknown = sum(row["passages"] for row in rows if not row["license"])
    yield f"Passages in the corpus: {corpus['passages']:,}; sources: {len(names):,}; licences: {len(licences):,}."
    yield f"Passages without a licence: {unknown:,}. `load-corpus --license-field` names the field that has it."
    yield from (f"Passages in the subset {one['arm']}: {one['passages']:,}." for one in corpus["subsets"])


def _source(row: dict[str, Any]) -> Row:
    licence = Quote.of(visible(row["license"], 80)) if row["license"] else UNKNOWN
    return (
        Quote.of(visible(row["source"], 120)),
        licence,
        *(f"{count:,}" for count in (row["passages"], *row["subsets"])),
    )


def _file(row: dict[str, str]) -> Row:
    digest = row["digest"] if "@" in row["digest"] else row["digest"][:16]
    return Span(row["of"][:-12], "code"), row["split"], Quote.of(visible(row["name"], 120)), Span(digest, "code")
