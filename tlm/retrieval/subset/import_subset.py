"""Import: a subset that others selected, such as the authors' published ones, made ready for training as our own.

Two passes with little memory: the texts go to the disk and are judged portion by portion; then each is written once,
or named among the dropped ones. Only near-duplicates need the words of all passages at once, as `export` does.
"""

import shutil
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from tlm.artifacts.artifact import Artifact
from tlm.artifacts.home import home
from tlm.artifacts.produce import Draft, Recipe, produce
from tlm.data.dedup import Seen, digest
from tlm.data.reading.files import RawFile, check_room, raw_files
from tlm.data.reading.readers import check, read_all
from tlm.data.reading.records import BadRow, Rejects, Row, text_of
from tlm.data.registry import subset_address
from tlm.data.shards import Shards
from tlm.errors import InputError
from tlm.progress import say, track
from tlm.retrieval.subset.export import SUBSET, write_dropped
from tlm.retrieval.subset.judge import (
    KEPT,
    NEAR_DUPLICATE,
    REASONS,
    SURPLUS,
    TOO_SHORT,
    Filters,
    Protected,
    Verdicts,
    remove_near_duplicates,
    remove_overlaps,
)
from tlm.retrieval.subset.ngrams import TokenLists, Vocabulary, offsets_of
from tlm.retrieval.subset.union import Union

VERSION = 2
STAGED = pa.schema([("doc", pa.int64()), ("text", pa.string()), ("rank", pa.int32())])
NO_RANK = np.iinfo(np.int32).max
AT_ONCE = 100_000  # passages judged together; for each portion the protected texts are hashed anew


def import_subset(
    path: str,
    *,
    task: str = "",
    text_field: str = "text",
    near_duplicates: bool = False,
    overlap: bool = True,
    jaccard: float = 0.8,
    overlap_share: float = 0.3,
    passage_share: float = 0.5,
    ngram: int = 8,
    min_words: int = 5,
    max_rejected: int = 10,
    root: str | None = None,
) -> str:
    """Import passages that others selected for a task, as a subset ready for training.

    Texts are normalised (Unicode NFC) and equal ones kept once. With a task, passages that overlap its dev or test
    texts are removed and reported as `export` does. The arm is "bm25", its provenance "imported".

    Args:
        path: File with a row for each passage (csv, jsonl, parquet …), folder, glob, s3:// or hf:// address; or
            paper:scierc/small and the like, for what the authors of the paper published.
        task: URI of the task whose dev and test texts are protected.
        text_field: Field or column with the text. A column "rank", counted from 0, becomes the best rank.
        near_duplicates: Remove passages that nearly repeat a better one; takes memory for the words of all passages.
        overlap: Remove passages that overlap dev or test texts of the task.
        jaccard: Near-duplicates have at least this Jaccard similarity of their sets of word 5-grams.
        overlap_share: A passage overlaps a text if it has at least this share of the text's n-grams.
        passage_share: It also does if at least this share of its own n-grams is in the text, as in a long text's part.
        ngram: Words in such an n-gram; a text or passage with fewer (but 3 or more) must occur whole.
        min_words: Remove passages with fewer words.
        max_rejected: Rows that may be unusable (set aside with a reason) before the step stops; 0.1 % may always.
        root: Store to write to, which holds the task; by default TLM_ROOT, else that of the task, else ./artifacts.

    Returns:
        The URI of the subset: as `export` writes it, but `doc` is the row of the file, from 0, no query asked for a
        passage, and ranks that the file does not have are null; and ``rejected.parquet``.

    Raises:
        InputError: a setting is out of range, a file or field cannot be read, too many bad rows, or nothing is left.
    """
    filters = Filters.of(
        near_duplicates=near_duplicates,
        overlap=bool(task) and overlap,
        jaccard=jaccard,
        overlap_share=overlap_share,
        passage_share=passage_share,
        ngram=ngram,
        min_words=min_words,
    )
    protects = Artifact.open(task, "task") if task and overlap else None
    inputs = {"task": protects} if protects is not None else {}
    root = home(root, inputs.values()).root
    if protects is None:
        say("import: dev and test texts in these passages, if there are any, stay: they are not looked for")
    rejects = Rejects(max_rejected)
    with raw_files([subset_address(path)]) as files:
        for file in files:
            check(file, [text_field])
        named = [[file.name, file.digest()] for file in files]
        settings = {**asdict(filters), "text_field": text_field, "files": named}
        recipe = Recipe("subset", "import-subset", VERSION, settings, inputs)
        return produce(recipe, root, lambda draft: _write(draft, files, text_field, protects, filters, rejects))


def _write(
    draft: Draft, files: list[RawFile], field: str, task: Artifact | None, filters: Filters, rejects: Rejects
) -> None:
    check_room(files, draft.folder)
    staging = draft.folder / "staging"
    staging.mkdir()
    staged, first, rows = _stage(staging, files, field, rejects)
    union, verdicts = _judge(staged, first, task, filters)
    _count(draft, files, verdicts, rows, rejects)
    _write_kept(draft, staged, verdicts)
    write_dropped(draft, union, verdicts)
    draft.rows["rejected.parquet"] = rejects.write(draft.folder / "rejected.parquet")
    shutil.rmtree(staging)


def _stage(
    folder: Path, files: list[RawFile], field: str, rejects: Rejects
) -> tuple[list[Path], npt.NDArray[np.bool_], int]:
    """Bring the passages to the disk: the shards, for each passage whether no earlier one is the same, rows read."""
    shards, seen = Shards(folder, "staged", group_rows=AT_ONCE, compression="lz4"), Seen(folder)
    waiting: list[tuple[int, str, int | None]] = []
    for passage in read_all(files, [field], rejects, lambda _, row: (rejects.read - 1, *_passage(row, field))):
        waiting.append(passage)
        if len(waiting) == AT_ONCE:
            _flush(shards, seen, waiting)
    _flush(shards, seen, waiting)
    return [folder / name for name in shards.close()], seen.firsts(), rejects.read


def _flush(shards: Shards, seen: Seen, waiting: list[tuple[int, str, int | None]]) -> None:
    if waiting:
        docs, texts, ranks = zip(*waiting, strict=True)
        shards.add(pa.table([pa.array(column) for column in (docs, texts, pa.array(ranks, pa.int32()))], STAGED))
        seen.add([digest(text) for text in texts])
    waiting.clear()


def _passage(row: Row, field: str) -> tuple[str, int | None]:
    """Text and rank (from 1; None where there is none) of a row, or BadRow."""
    rank = str(row.values.get("rank", ""))
    if rank.isdecimal() and len(rank) > 9:
        raise BadRow("rank too large", f"field 'rank' is {rank[:20]}")
    return text_of(row.values, field), int(rank) + 1 if rank.isdecimal() else None


def _judge(
    staged: list[Path], first: npt.NDArray[np.bool_], task: Artifact | None, filters: Filters
) -> tuple[Union, Verdicts]:
    """Documents and ranks of all passages, and the verdict on each."""
    size, vocabulary = len(first), Vocabulary()
    verdicts = Verdicts.keep_all(size)
    protected = Protected.of(task, vocabulary) if task is not None else None
    if filters.jaccard is None:
        vocabulary.close()
    union = Union(np.zeros(size, np.int64), np.zeros(size, np.int32), np.zeros(size, np.float32))
    kept_words, start = list[TokenLists](), 0
    for table in _tables(staged, "judging"):
        part = slice(start, start := start + table.num_rows)
        union.docs[part] = table["doc"].to_numpy()
        union.best_rank[part] = table["rank"].fill_null(NO_RANK).to_numpy()
        words = vocabulary.encode(table["text"].to_pylist())
        here = verdicts.part(part)
        here.mark(np.flatnonzero(~first[part]), NEAR_DUPLICATE, -1, 1.0)
        short = np.flatnonzero((words.lengths < filters.min_words) & first[part])
        here.mark(short, TOO_SHORT, words.lengths[short])
        if protected is not None:
            remove_overlaps(here, words, protected, filters)
        if filters.jaccard is not None:
            kept_words.append(words)
    if filters.jaccard is not None:
        remove_near_duplicates(verdicts, _joined(kept_words), union.best_first(), filters.jaccard)
    return union, verdicts


def _joined(parts: list[TokenLists]) -> TokenLists:
    return TokenLists(
        np.concatenate([part.ids for part in parts]), offsets_of(np.concatenate([part.lengths for part in parts]))
    )


def _count(draft: Draft, files: list[RawFile], verdicts: Verdicts, rows: int, rejects: Rejects) -> None:
    counts = {reason: len(verdicts.rows(number)) for number, reason in enumerate(REASONS) if number != SURPLUS}
    kept = counts[REASONS[KEPT]]
    if not kept:
        removed = ", ".join(f"{reason} {count:,}" for reason, count in counts.items() if count)
        raise InputError(f"the filters leave none of the {rows:,} passages of {files[0].where} ({removed})")
    draft.counts = {"candidates": rows, **counts, "rejected": rejects.by_reason()}
    draft.details = {"arm": "bm25", "passages": kept, "provenance": "imported"}


def _write_kept(draft: Draft, staged: list[Path], verdicts: Verdicts) -> None:
    shards, start = Shards(draft.folder, "passages"), 0
    for table in _tables(staged, "writing"):
        keep = pa.array(verdicts.reason[start : start + table.num_rows] == KEPT)
        start += table.num_rows
        kept = table.filter(keep)
        nobody = pa.array([[]] * len(kept), pa.list_(pa.int64()))
        columns = [kept["doc"], kept["text"], kept["rank"], pa.nulls(len(kept), pa.float32()), nobody]
        shards.add(pa.table(columns, schema=SUBSET))
    draft.rows |= shards.close()


def _tables(staged: list[Path], label: str) -> Iterator[pa.Table]:
    """The staged passages in order, in portions."""
    for path in track(staged, label, len(staged), "shards"):
        with pq.ParquetFile(path) as shard:
            for group in range(shard.num_row_groups):
                yield shard.read_row_group(group)
