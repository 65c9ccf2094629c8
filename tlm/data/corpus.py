"""The corpus: documents from any source, normalised, cut into passages, each distinct text once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tlm.artifacts.artifact import Artifact
from tlm.artifacts.manifest import FileEntry
from tlm.artifacts.produce import Draft, Recipe, produce
from tlm.data.passages import split
from tlm.data.reading.files import RawFile, check_room, raw_files
from tlm.data.reading.readers import check, read_all
from tlm.data.reading.records import Rejects, Row, name_of, text_of
from tlm.data.registry import compare_corpus, corpus_addresses
from tlm.data.shards import GROUP_ROWS, Shards
from tlm.data.stage import Stage
from tlm.errors import InputError
from tlm.progress import track

VERSION = 1
STAGED = pa.schema([("id", "string"), ("text", "string"), ("source", "string")])


@dataclass(frozen=True)
class Layout:
    """The fields of a row, and how documents are cut."""

    text_field: str
    id_field: str  # "": file name and line
    source_field: str  # "": file name
    words: int  # per passage
    overlap: int  # words shared by consecutive passages

    @property
    def fields(self) -> list[str]:
        """The fields needed of each row, the text's first."""
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
    """Load a corpus: normalise documents, cut them into passages and keep each text once.

    Memory does not grow with the corpus. Two passages are the same text if they are equal in Unicode NFC, ignoring
    case and white space; the first is kept. Ids need not be unique: they name rows of the raw files.

    Args:
        paths: Files, folders, globs, s3:// or hf:// addresses; jsonl, csv, tsv, parquet or txt, also .gz and .zst;
            paper:bert or paper:roberta for Hub data sets that resemble the corpora of the paper.
        text_field: Field or column with the text (ignored for txt, where paragraphs are documents).
        id_field: Field with the document id; default <file name>:<line>. The nth passage's id ends in #n.
        source_field: Field that names the source of a document; default the file name.
        words: Words per passage; a remainder of less than a tenth of that is joined to the previous passage.
        overlap: Words that a passage shares with the next one of the same document.
        max_rejected: Unusable rows to set aside before the step stops; 0.1 % of all rows are always allowed.
        root: Store to write to; by default TLM_ROOT, else ./artifacts.

    Returns:
        URI of the corpus: passages (doc, id, text, source) in parquet shards, and the rejected rows.

    Raises:
        InputError: a setting out of range, an unreadable file, a missing field, too many bad rows.
    """
    layout = Layout(text_field, id_field, source_field, words, overlap)
    if not text_field:
        raise InputError("text_field is empty; give the name of the field with the text")
    if words < 1:
        raise InputError(f"words is {words}; expected 1 or more words per passage")
    if not 0 <= overlap < words:
        raise InputError(f"overlap is {overlap}; expected 0 to {words - 1}, less than words")
    rejects = Rejects(max_rejected)
    with raw_files(corpus_addresses(paths)) as files:
        for file in files:
            check(file, layout.fields)
        settings = {**vars(layout), "files": [[file.name, file.digest()] for file in files]}
        recipe = Recipe("corpus", "load-corpus", VERSION, settings)
        return produce(recipe, root, lambda draft: _write(draft, files, layout, rejects))


def shards(corpus: Artifact) -> list[FileEntry]:
    """The files with the passages of a corpus or subset, in order of `doc`."""
    return corpus.entries("passages-*.parquet")


def passages(
    corpus: Artifact, columns: list[str] | None = None, chosen: Sequence[FileEntry] | None = None
) -> Iterator[pa.RecordBatch]:
    """Stream the passages of a corpus or subset in order of `doc`, one verified shard at a time.

    Yields batches with the columns ``doc`` (int64), ``text`` (string) and those specific to the kind of artifact;
    `columns` selects some of them, and `chosen` some of the shards.
    """
    for entry in shards(corpus) if chosen is None else chosen:
        with pq.ParquetFile(corpus.verified(entry)) as shard:
            yield from shard.iter_batches(GROUP_ROWS, columns=columns)


def publish(stage: Stage, target: Path) -> dict[str, int]:
    """Write ``passages-00000.parquet``… without repeated texts and with `doc` as first column; return rows by file.

    The staged tables are removed.
    """
    first, seen = stage.firsts(), 0
    shards = Shards(target, "passages")
    for path in track(stage.paths, "writing", len(stage.paths), "tables"):
        table = pq.ParquetFile(path).read()
        mask = first[seen : seen + len(table)]
        seen += len(table)
        docs = pa.array(np.arange(shards.total, shards.total + mask.sum()))
        shards.add(table.filter(pa.array(mask)).add_column(0, "doc", docs))
        path.unlink()
    return shards.close()


def _write(draft: Draft, files: list[RawFile], layout: Layout, rejects: Rejects) -> None:
    check_room(files, draft.folder)
    with TemporaryDirectory(prefix="staging-", dir=draft.folder) as staging:
        stage = Stage(Path(staging))
        found = read_all(files, layout.fields, rejects, lambda file, row: _passages(file, row, layout))
        stage.fill(chain.from_iterable(found), STAGED)
        compare_corpus(rejects.read_by_file)
        draft.rows = publish(stage, draft.folder)
    total = sum(draft.rows.values())
    draft.counts |= {"read": rejects.read, "documents": rejects.read - len(rejects), "passages": total}
    draft.counts["duplicates"] = stage.count - total
    rejects.write(draft)
    draft.details["passages"] = total


def _passages(file: RawFile, row: Row, layout: Layout) -> list[tuple[str, str, str]]:
    """Return id, text and source of each passage of a row. Raises BadRow."""
    text = text_of(row.values, layout.text_field)
    document = name_of(row.values, layout.id_field, f"{file.name}:{row.line}")
    source = name_of(row.values, layout.source_field, file.name)
    parts = split(text, layout.words, layout.overlap)
    if len(parts) == 1:
        return [(document, text, source)]
    return [(f"{document}#{number}", part, source) for number, part in enumerate(parts, start=1)]
