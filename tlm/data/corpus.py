"""The corpus: documents from anywhere, cleaned, cut into passages, each text once."""

import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from tlm.artifacts.artifact import Artifact
from tlm.artifacts.produce import Draft, Recipe, produce
from tlm.data.passages import split
from tlm.data.reading.files import RawFile, check_room, raw_files
from tlm.data.reading.readers import check, read
from tlm.data.reading.records import BadRow, Reject, Rejects, Row, name_of, text_of
from tlm.data.registry import compare_corpus, corpus_addresses
from tlm.data.shards import GROUP_ROWS
from tlm.data.stage import Stage
from tlm.errors import InputError
from tlm.progress import Meter

VERSION = 1
SHOWN_EVERY = 1000  # rows


@dataclass(frozen=True)
class Layout:
    """Where a row has what, and how documents are cut."""

    text_field: str
    id_field: str
    source_field: str
    words: int
    overlap: int

    @property
    def fields(self) -> list[str]:
        """The fields wanted of each row, the text's first."""
        return [name for name in (self.text_field, self.id_field, self.source_field) if name]


def load_corpus(
    paths: list[str],
    *,
    text_field: str = "text",
    id_field: str = "",
    source_field: str = "",
    words: int = 100,
    overlap: int = 0,
    max_rejected: int = 10,
    root: str | None = None,
) -> str:
    """Load a corpus: documents are cleaned, cut into passages, and each text is kept once.

    Memory does not grow with the corpus. Two passages are the same text if they are equal in Unicode NFC without
    regard to case and white space; the first is kept. Ids may repeat: they name rows of the raw files.

    Args:
        paths: Files, folders, globs, s3:// or hf:// addresses; jsonl, csv, tsv, parquet or txt, also .gz and .zst;
            paper:bert or paper:roberta for data sets of the Hub that come near the corpora of the paper.
        text_field: Field or column with the text (of no meaning for txt, where paragraphs are documents).
        id_field: Field with a document's id; none makes it <file name>:<line>. The nth passage's id ends in #n.
        source_field: Field that says where a document is from; none takes the file's name.
        words: Words of a passage; a rest of less than a tenth of that is joined to the passage before it.
        overlap: Words that a passage shares with the next one of the same document.
        max_rejected: Rows that may be unusable (set aside with a reason) before the step stops; 0.1 % may always.
        root: Store to write to; by default TLM_ROOT, else ./artifacts.

    Returns:
        URI of the corpus: passages (doc, id, text, source) in parquet shards, and the rejected rows.

    Raises:
        InputError: a setting out of range, a file that cannot be read, a field that is not there, too many bad rows.
    """
    layout = Layout(text_field, id_field, source_field, words, overlap)
    _check(layout)
    rejects = Rejects(max_rejected)
    with raw_files(corpus_addresses(paths)) as files:
        for file in files:
            check(file, layout.fields)
        settings = {**vars(layout), "files": [[file.name, file.digest()] for file in files]}
        recipe = Recipe("corpus", "load-corpus", VERSION, settings)
        return produce(recipe, root, lambda draft: _write(draft, files, layout, rejects))


def passages(corpus: Artifact, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
    """Stream the passages of a corpus or subset in order of `doc`, one verified shard at a time.

    Yields batches with the columns ``doc`` (int64), ``text`` (string) and the others of the artifact's kind;
    `columns` names those wanted.
    """
    for entry in corpus.entries("passages-*.parquet"):
        with pq.ParquetFile(corpus.verified(entry)) as shard:
            yield from shard.iter_batches(GROUP_ROWS, columns=columns)


def _check(layout: Layout) -> None:
    if not layout.text_field:
        raise InputError("text_field is empty; give the name of the field that has the text")
    if layout.words < 1:
        raise InputError(f"words is {layout.words}; expected 1 or more words a passage")
    if not 0 <= layout.overlap < layout.words:
        raise InputError(f"overlap is {layout.overlap}; expected 0 to {layout.words - 1}, fewer than words")


def _write(draft: Draft, files: list[RawFile], layout: Layout, rejects: Rejects) -> None:
    check_room(files, draft.folder)
    staging = draft.folder / "staging"
    staging.mkdir()
    stage = Stage(staging)
    draft.counts |= _stage(stage, files, layout, rejects)
    draft.rows = stage.publish(draft.folder)
    draft.rows["rejected.parquet"] = rejects.write(draft.folder / "rejected.parquet")
    shutil.rmtree(staging)
    total = sum(rows for name, rows in draft.rows.items() if name.startswith("passages"))
    draft.counts |= {"passages": total, "duplicates": stage.total - total, "rejected": rejects.by_reason()}
    draft.details["passages"] = total


def _stage(stage: Stage, files: list[RawFile], layout: Layout, rejects: Rejects) -> dict[str, int]:
    """First pass: all passages of all files onto the stage; how many rows were read and how many could be used."""
    rows, documents, of = 0, 0, Counter[str]()
    for name, row in _rows(files, layout.fields):
        rows += 1
        of[name] += 1
        try:
            _add(stage, name, row, layout)
            documents += 1
        except BadRow as bad:
            rejects.add(name, row.line, bad.reason, bad.detail)
            rejects.check_hopeless(rows)
    rejects.check(rows)
    compare_corpus({file.where: of[file.name] for file in files})
    return {"read": rows, "documents": documents}


def _rows(files: list[RawFile], fields: list[str]) -> Iterator[tuple[str, Row | Reject]]:
    """All rows of all files with the file's name, showing how many bytes of the raw files are behind us."""
    with closing(Meter("reading", sum(file.size for file in files) / 1e6 or None, "MB")) as meter:
        rows = 0
        for file in files:
            shown = 0
            for row in read(file, fields):
                yield file.name, row
                rows += 1
                if rows % SHOWN_EVERY == 0:
                    meter.advance((file.tally.bytes - shown) / 1e6, f"{rows:,} rows")
                    shown = file.tally.bytes
            meter.advance((file.tally.bytes - shown) / 1e6, f"{rows:,} rows")
            file.check_unchanged()


def _add(stage: Stage, name: str, row: Row | Reject, layout: Layout) -> None:
    """Put the passages of one row on the stage, or raise BadRow."""
    if isinstance(row, Reject):
        raise BadRow(row.reason, row.detail)
    line, values = row
    text = text_of(values, layout.text_field)
    document = name_of(values, layout.id_field) if layout.id_field else f"{name}:{line}"
    source = name_of(values, layout.source_field) if layout.source_field else name
    parts = split(text, layout.words, layout.overlap)
    if len(parts) == 1:
        stage.add(document, text, source)
    else:
        for number, part in enumerate(parts, start=1):
            stage.add(f"{document}#{number}", part, source)
