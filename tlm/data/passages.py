"""Passages: cut from documents, kept in parquet shards, read from a corpus or a subset."""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import regex

from tlm.artifacts.artifact import Artifact, FileEntry
from tlm.data.text import UNSPACED
from tlm.progress import Meter

LONGEST_WORD = 50  # characters; longer runs without spaces count as one word per 50 characters
_SEAM = " \0"  # a possible word boundary without a space in the text; never in normalised text
# The Unicode blocks of these scripts and others: ten times as fast to search as the exact characters
_PERHAPS_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u19ff\u2e80-\uffff\U00010000-\U0010ffff]")
_UNSPACED = regex.compile(rf"[{UNSPACED}--\p{{M}}]", regex.V1)
_BETWEEN = regex.compile(
    rf"(?<=\S)(?=[{UNSPACED}--\p{{M}}])|(?<=[{UNSPACED}--\p{{M}}]\p{{M}}*)(?=[^\s\p{{M}}])", regex.V1
)
_LONG = regex.compile(rf"[^\s\0]{{{LONGEST_WORD}}}(?=[^\s\0])")


def split(text: str, words: int, overlap: int = 0) -> list[str]:
    """Cut a normalised text into passages of `words` words, whose last `overlap` also begin the next passage.

    Words are separated by spaces. In scripts without spaces (Han, kana, Thai, Lao, Khmer, Burmese) each character
    counts as a word, and in runs of more than 50 characters every 50 do. A last passage with fewer than words/10 words
    of its own is joined to the previous one. With overlap=0 each word is in exactly one passage.
    """
    tail = max(1, words // 10)
    if _surely_below(text, words + tail):
        return [text]
    pieces, stride = _pieces(text), words - overlap
    last = max(0, len(pieces) - words - tail + 1)  # from here on, the remainder is too short for another passage
    starts = range(0, last + stride, stride)
    ends = [*(start + words for start in starts[:-1]), len(pieces)]
    joined = (" ".join(pieces[start:end]) for start, end in zip(starts, ends, strict=True))
    # a cut at a seam takes the space from it, and leaves the next passage with the other character
    return [passage.replace(_SEAM, "").removeprefix(_SEAM[1:]) for passage in joined]


def count(text: str) -> int:
    """Count the words of a normalised text as `split` does."""
    return len(_pieces(text))


def _surely_below(text: str, words: int) -> bool:
    """Recognise most texts of fewer than `words` words quickly, by an upper limit of their words."""
    at_most = text.count(" ") + 1 + len(text) // LONGEST_WORD
    return at_most < words and (len(text) < words or not _has_unspaced(text))


def _has_unspaced(text: str) -> bool:
    return not text.isascii() and bool(_PERHAPS_UNSPACED.search(text)) and bool(_UNSPACED.search(text))


def _pieces(text: str) -> list[str]:
    if _has_unspaced(text):
        text = _BETWEEN.sub(_SEAM, text)
    pieces = text.split(" ")
    if max(map(len, pieces)) > LONGEST_WORD:
        pieces = _LONG.sub(rf"\g<0>{_SEAM}", text).split(" ")
    return pieces


GROUP_ROWS = 10_000
GROUPS = 10
# A dictionary pays off where values repeat, statistics where rows are looked up by value
_WRITTEN = {"use_dictionary": ["source"], "write_statistics": ["doc"], "data_page_size": 1 << 20}


def numbered(tables: Iterable[pa.Table], first: int = 0) -> Iterator[pa.Table]:
    """Yield tables with the numbers of their rows, from `first` on, as first column `doc`."""
    for table in tables:
        yield table.add_column(0, "doc", pa.array(np.arange(first, first + len(table))))
        first += len(table)


def write_shards(
    folder: Path, name: str, tables: Iterable[pa.Table], *, first: int = 0, compression: str = "zstd"
) -> dict[str, int]:
    """Write ``<name>-00000.parquet``… into `folder`, each with `GROUPS` row groups of `GROUP_ROWS` rows.

    With `first`, it begins with the shard of that number, because earlier ones are written elsewhere.

    Returns the number of rows by file name.
    """
    rows: dict[str, int] = {}
    groups = _in_groups(tables)
    for begin in groups:
        file = f"{name}-{first + len(rows):05d}.parquet"
        rows[file] = 0
        with pq.ParquetWriter(folder / file, begin.schema, compression=compression, **_WRITTEN) as writer:
            for group in chain([begin], islice(groups, GROUPS - 1)):
                writer.write_table(group.combine_chunks(), row_group_size=group.num_rows)
                rows[file] += group.num_rows
                pa.default_memory_pool().release_unused()  # or the allocator keeps several times as much as is in use
    return rows


def _in_groups(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield the same rows, `GROUP_ROWS` at a time."""
    held: list[pa.Table] = []  # fewer rows than a group
    for table in tables:
        rest = pa.concat_tables([*held, table])
        while rest.num_rows >= GROUP_ROWS:
            yield rest.slice(0, GROUP_ROWS)
            rest = rest.slice(GROUP_ROWS)
        held = [rest]
    yield from (rest for rest in held if rest.num_rows)


SEVERAL = 8  # shards that justify several processes
MOST_SHARDS = 20  # that a sample is drawn from, at even distances if there are more; 20 have two million passages


def shards(corpus: Artifact) -> list[FileEntry]:
    """List the files with the passages of a corpus or subset, in order of `doc`."""
    return corpus.entries("passages-*.parquet")


def passages(
    corpus: Artifact, columns: list[str] | None = None, chosen: Sequence[FileEntry] | None = None
) -> Iterator[pa.RecordBatch]:
    """Stream the passages of a corpus or subset in order of `doc`, one verified shard at a time.

    Yields batches with the columns ``doc`` (int64), ``text`` (string) and those specific to the kind of artifact;
    `columns` selects some of them, and `chosen` some of the shards.
    """
    for entry in shards(corpus) if chosen is None else chosen:
        with _reader(corpus, entry) as shard:
            yield from shard.iter_batches(GROUP_ROWS, columns=columns)


def _reader(artifact: Artifact, entry: FileEntry) -> pq.ParquetFile:
    """Open a shard. If another process, done with it, has just removed the local copy, download it again."""
    while True:
        with suppress(FileNotFoundError):
            return pq.ParquetFile(artifact.verified(entry))


def texts(corpus: Artifact, meter: Meter | None = None) -> Iterator[str]:
    """Yield the texts of the passages of a corpus or subset in order of `doc`."""
    for batch in passages(corpus, ["text"]):
        yield from batch.column("text").to_pylist()
        if meter is not None:
            meter.advance(len(batch))


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
    """Draw a uniform sample of the texts of at most `MOST_SHARDS` shards of a corpus or subset, in their order."""
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


def evenly(total: int, wanted: int) -> list[int]:
    """At most `wanted` ordinals below `total`, evenly spaced."""
    count = min(total, wanted)
    return [(2 * index + 1) * total // (2 * count) for index in range(count)]


def rows_at(artifact: Artifact, pattern: str, ordinals: Iterable[int]) -> dict[int, dict[str, Any]]:
    """Read rows of a sharded table (files that match `pattern`, in order) by ordinal; others are left out."""
    wanted, start = sorted(set(ordinals)), 0
    found: dict[int, dict[str, Any]] = {}
    for entry in artifact.entries(pattern):
        stop = start + (entry.rows if entry.rows is not None else pq.read_metadata(artifact.verified(entry)).num_rows)
        if inside := [ordinal for ordinal in wanted if start <= ordinal < stop]:
            found.update(_from_file(_reader(artifact, entry), start, inside))
        start = stop
    return found


def _from_file(file: pq.ParquetFile, start: int, wanted: list[int]) -> Iterator[tuple[int, dict[str, Any]]]:
    for group in range(file.num_row_groups):
        stop = start + file.metadata.row_group(group).num_rows
        if inside := [ordinal for ordinal in wanted if start <= ordinal < stop]:
            rows = file.read_row_group(group).take([ordinal - start for ordinal in inside]).to_pylist()
            yield from zip(inside, rows, strict=True)
        start = stop
