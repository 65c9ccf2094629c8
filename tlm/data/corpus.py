"""The corpus: documents from any source, normalised, cut into passages, each distinct text once."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tlm.artifacts.artifact import Artifact
from tlm.artifacts.manifest import FileEntry
from tlm.artifacts.produce import Draft, finished, produce
from tlm.data.layout import Layout
from tlm.data.parts.dedup import dedup_buckets
from tlm.data.parts.plan import Plan, make_plan, part_size
from tlm.data.parts.publish import finish, publish
from tlm.data.parts.shards import write_shards
from tlm.data.parts.stage import stage_parts, staged
from tlm.data.reading.files import RawFile, check_room, raw_files
from tlm.data.reading.records import Rejects
from tlm.data.registry import compare_corpus, corpus_addresses
from tlm.data.shards import GROUP_ROWS, Shards, numbered
from tlm.data.stage import distinct
from tlm.errors import InputError
from tlm.progress import track

SMALLEST = 64 << 20  # bytes of text in a part; less is not worth a process
SEVERAL = 8  # shards that are worth several processes
MOST_SHARDS = 20  # that a sample is drawn from, at even distances if there are more; 20 have two million passages


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

    Several large files are loaded in parts on all cores, and a repetition finds the parts that were finished. Memory
    does not grow with the corpus. Two passages are the same text if they are equal in Unicode NFC, ignoring
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
    rejects = Rejects(max_rejected)
    addresses = corpus_addresses(paths)
    with raw_files(addresses, together=False) as files:
        plan = make_plan(addresses, root, layout, files, part_size(files, SMALLEST))
        if len(plan.parts) == 1:
            return produce(plan.corpus, root, lambda draft: _write(draft, files, layout, rejects))
    if finished(plan.corpus, root) is not None:  # what was on the way may be there still, after a kill
        return publish(plan, max_rejected)
    try:
        return _in_parts(plan, max_rejected)
    except (InputError, OSError):
        made = finished(plan.corpus, root)  # by an equal command beside this one, which then removed the parts
        if made is None:
            raise
        return made


def _in_parts(plan: Plan, max_rejected: int) -> str:
    numbers = range(len(plan.parts))
    stage_parts(plan, max_rejected, numbers)
    dedup_buckets(plan, range(plan.buckets))
    write_shards(plan, numbers)
    return publish(plan, max_rejected)


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


def shard_passages(uri: str, number: int, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """Stream the passages of a corpus's shard `number`, for a process that works on one shard after another.

    Of a large corpus that is not on this machine, the copy of the shard is removed afterwards.
    """
    corpus, entries = _opened(uri)
    entry = entries[number]
    yield from passages(corpus, columns, [entry])
    if len(entries) >= SEVERAL:
        corpus.store.forget(f"{corpus.folder_name}/{entry.name}")


@lru_cache(maxsize=1)  # the manifest of a large corpus is long
def _opened(uri: str) -> tuple[Artifact, list[FileEntry]]:
    corpus = Artifact.open(uri, "corpus")
    return corpus, shards(corpus)


def sample(corpus: Artifact, count: int, seed: int = 0) -> Iterator[str]:
    """A uniform sample of the texts of at most `MOST_SHARDS` shards of a corpus or subset, in their order."""
    chosen, total = shards(corpus), int(corpus.details["passages"])
    if len(chosen) > MOST_SHARDS:
        chosen = [chosen[place * len(chosen) // MOST_SHARDS] for place in range(MOST_SHARDS)]
        total = sum(entry.rows or 0 for entry in chosen)
    taken = np.zeros(total, dtype=bool)
    taken[np.random.default_rng(seed).choice(total, min(count, total), replace=False)] = True
    start = 0
    for batch in passages(corpus, ["text"], chosen):
        rows = np.flatnonzero(taken[start : start + batch.num_rows])
        start += batch.num_rows
        yield from batch.column(0).take(rows).to_pylist()


def _write(draft: Draft, files: Sequence[RawFile], layout: Layout, rejects: Rejects) -> None:
    """Load files that are one part only, without anything on the way that others could go on with."""
    check_room(files, draft.folder)
    with TemporaryDirectory(prefix="staging-", dir=draft.folder) as staging:
        stage = staged(Path(staging), files, layout, rejects)
        rejects.check()
        compare_corpus(rejects.read_by_file)
        shards = Shards(draft.folder, "passages")
        for table in track(distinct(stage.tables, stage.path, stage.repeated()), "writing", None, "tables"):
            shards.add(numbered(table, shards.total))
        draft.rows = shards.close()
    finish(draft, rejects, stage.count, sum(draft.rows.values()))
