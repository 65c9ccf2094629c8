"""Pieces of large files: lines of JSON, or row groups of parquet, that are read without the rest of the file."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import pyarrow.parquet as pq

from tlm.artifacts.stores.store import Ranges, chunks, file_sha256
from tlm.data.reading.files import Piece, RawFile
from tlm.data.reading.streams import LONGEST_LINE
from tlm.errors import InputError


def can_be_cut(file: RawFile) -> bool:
    """Whether reading can begin anywhere in the file: not where it is compressed, or has values of several lines."""
    return file.format == "parquet" or (file.format == "jsonl" and not file.compression)


def cut(file: RawFile, size: int) -> list[Piece]:
    """Cut a file into pieces of about `size` bytes: of lines, or of row groups.

    Raises InputError: a line is too long.
    """
    return list(_groups(file, size) if file.format == "parquet" else _lines(file, size))


def pieces_of(file: RawFile, pieces: Sequence[Piece]) -> list[RawFile]:
    """The pieces as files of their own, or the file if it is not cut. Of a remote file, only a piece is downloaded."""
    return [
        replace(
            file,
            piece=piece,
            size=sum(stop - start for start, stop in piece.ranges),
            locate=file.locate if file.fetch is None else partial(file.fetch, piece.ranges),
        )
        for piece in pieces
    ] or [file]


def _lines(file: RawFile, size: int) -> Iterator[Piece]:
    path, start, row = file.path, 0, 0
    with path.open("rb") as text:
        while start < file.size:
            text.seek(start + size - 1)
            longest = len(text.readline(LONGEST_LINE)) == LONGEST_LINE
            stop = min(text.tell(), file.size)
            ranges = ((start, stop),)
            digest, lines = hashlib.sha256(), 0
            for chunk in chunks(path, ranges):
                digest.update(chunk)
                lines += chunk.count(b"\n")
            if longest:
                most = f"{LONGEST_LINE >> 20} MiB"
                raise InputError(
                    f"{file.where}:{row + lines + 1}: the line is longer than {most}; expected one record per line"
                )
            yield Piece(start, stop, row, ranges, digest.hexdigest())
            start, row = stop, row + lines


def _groups(file: RawFile, size: int) -> Iterator[Piece]:
    path = file.path
    with pq.ParquetFile(path) as table:
        found = table.metadata
    spans = [_span(found.row_group(number)) for number in range(found.num_row_groups)]
    rows = [found.row_group(number).num_rows for number in range(found.num_row_groups)]
    footer = (max((stop for _, stop in spans), default=0), path.stat().st_size)
    first = 0
    while first < len(spans):
        last = first + 1
        while last < len(spans) and sum(stop - start for start, stop in spans[first : last + 1]) <= size:
            last += 1
        ranges: Ranges = (*spans[first:last], footer)
        yield Piece(first, last, sum(rows[:first]), ranges, file_sha256(path, ranges))
        first = last


def _span(group: pq.RowGroupMetaData) -> tuple[int, int]:
    """The bytes of a row group, whose columns stand one after the other."""
    columns = [group.column(number) for number in range(group.num_columns)]
    starts = [column.dictionary_page_offset or column.data_page_offset for column in columns]
    ends = [start + column.total_compressed_size for start, column in zip(starts, columns, strict=True)]
    return min(starts), max(ends)
