"""Rows of raw files: JSON lines, CSV, TSV, parquet, plain text and Hub data sets, one at a time.

A row that cannot be read comes as a `Reject`; a file that cannot, as an InputError.

- JSON lines (.jsonl, .ndjson, .json): one object a line; empty lines are no rows.
- CSV: a header, then rows by RFC 4180 (quotes may hold newlines).
- TSV: a header, then one row a line, no quoting across tabs; a value wholly in quotes, with the quotes inside it
  doubled, is unquoted (what spreadsheets write), any other quote is text.
- Plain text (.txt): paragraphs, separated by empty lines, are the documents; one above a million characters is
  given in parts, cut at a line end. A paragraph's text stands under whichever name the first wanted field has.
- Parquet: the wanted columns only.

No reader holds more than a line, a row or a small part of a row group at once; one of more than 64 MiB is refused.
"""

import csv
import gzip
import itertools
import json
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import zstandard

from tlm.data.reading import hub, parquet
from tlm.data.reading.files import RawFile
from tlm.data.reading.records import Reject, Row, check_columns, not_utf8, unknown_field
from tlm.data.reading.streams import LONGEST_LINE, lines, opened
from tlm.errors import InputError

PEEK_ROWS = 20
LONGEST_PARAGRAPH = 1_000_000  # characters
_QUOTED = re.compile(r'"((?:[^"]++|"")*+)"')  # possessive: otherwise it remembers every character
_DAMAGED = (EOFError, OSError, gzip.BadGzipFile, zlib.error, zstandard.ZstdError, pa.ArrowException, UnicodeDecodeError)


def read(file: RawFile, fields: Sequence[str]) -> Iterator[Row | Reject]:
    """All rows of `file` in order; `fields` are those wanted (columns of CSV, TSV and parquet must be there).

    Raises:
        InputError: the file is damaged or cut off, of another kind than its name says, has no such column, or a
            line, row or value above 64 MiB, or grows as only a decompression bomb does.
    """
    file.tally.bytes = 0
    try:
        yield from _READERS[file.format](file, fields)
    except _DAMAGED as error:
        reason = getattr(error, "strerror", None) or str(error).partition("\n")[0] or type(error).__name__
        raise InputError(f"{file.where} cannot be read: {reason}; see that it is whole and may be read") from None


def check(file: RawFile, fields: Sequence[str]) -> None:
    """Look at the first rows. Raises InputError: no rows, none of them readable, a field that none of them has."""
    rejects, names, rows = list[Reject](), dict[str, None](), 0
    for row in itertools.islice(read(file, fields), PEEK_ROWS):
        rows += 1
        if isinstance(row, Reject):
            rejects.append(row)
        else:
            names |= dict.fromkeys(row.values)
    if not rows:
        raise InputError(f"{file.where} is empty; expected rows with the fields {', '.join(fields)}")
    if len(rejects) == rows:
        line, reason, detail = rejects[0]
        raise InputError(
            f"{file.where}:{line}: {reason}, {detail}; not one of the first rows is readable {file.format}"
        )
    for field in fields:
        if field not in names:
            raise unknown_field(file.where, field, names)


def _jsonl(file: RawFile, fields: Sequence[str]) -> Iterator[Row | Reject]:
    with opened(file.path, file.compression, file.tally) as stream:
        rows = ((number, line) for number, line in lines(stream, file.where, file.tally) if not line.isspace())
        for index, (number, line) in enumerate(rows):
            if index == 0 and line.lstrip().startswith(b"["):
                raise InputError(f"{file.where} begins with a JSON array; expected one object a line (jq -c '.[]')")
            try:
                values = _JSON.decode(line.decode())
            except UnicodeDecodeError as error:
                yield not_utf8(number, error)
            except _TwiceNamed as error:
                yield Reject(number, "duplicate key", f"an object has two values for {str(error)!r}")
            except (ValueError, RecursionError) as error:
                yield Reject(number, "invalid JSON", str(error))
            else:
                if isinstance(values, dict):
                    yield Row(number, values)
                else:
                    yield Reject(number, "not an object", f"a JSON {type(values).__name__}: {line[:40]!r}")


class _TwiceNamed(Exception):
    """A JSON object with a key twice: one of the two values would be lost."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise _TwiceNamed(next(name for index, (name, _) in enumerate(pairs) if name in dict(pairs[:index])))
    return values


_JSON = json.JSONDecoder(object_pairs_hook=_object)


def _csv(file: RawFile, fields: Sequence[str]) -> Iterator[Row | Reject]:
    csv.field_size_limit(LONGEST_LINE)
    with opened(file.path, file.compression, file.tally) as stream:
        yield from _table(file, fields, _csv_rows(file, _Decoded(lines(stream, file.where, file.tally), file.where)))


def _csv_rows(file: RawFile, source: "_Decoded") -> Iterator[tuple[int, list[str]] | Reject]:
    rows = csv.reader(source, strict=True)
    while True:
        start = rows.line_num + 1
        source.begin_row(start)
        try:
            row = next(rows, None)
        except csv.Error as error:
            if source.ended:
                raise InputError(f"{file.where}:{start}: a quote opened here is never closed; close it") from None
            span = f"up to line {rows.line_num}: " if rows.line_num > start else ""
            yield Reject(start, "malformed csv", f"{span}{error}")
            continue
        if row is None:
            return
        if source.invalid is not None:
            yield not_utf8(start, source.invalid)
        elif row:
            yield start, row


def _tsv(file: RawFile, fields: Sequence[str]) -> Iterator[Row | Reject]:
    with opened(file.path, file.compression, file.tally) as stream:
        yield from _table(file, fields, _tsv_rows(lines(stream, file.where, file.tally)))


def _tsv_rows(numbered: Iterator[tuple[int, bytes]]) -> Iterator[tuple[int, list[str]] | Reject]:
    for number, line in numbered:
        if line.isspace() and b"\t" not in line:
            continue
        try:
            yield number, [_unquoted(value) for value in line.decode().rstrip("\r\n").split("\t")]
        except UnicodeDecodeError as error:
            yield not_utf8(number, error)


def _table(
    file: RawFile, fields: Sequence[str], rows: Iterator[tuple[int, list[str]] | Reject]
) -> Iterator[Row | Reject]:
    """Rows with the names that the first one gives to their values."""
    header: list[str] | None = None
    for row in rows:
        if header is None:
            if isinstance(row, Reject):
                raise InputError(
                    f"{file.where}:{row.line}: {row.reason}, {row.detail}; expected the names of the columns"
                )
            given = len(file.header) == len(row[1]) and not set(fields) <= set(row[1])
            header = list(file.header) if given else row[1]
            check_columns(file.where, header, fields)
            if not given:
                continue
        if isinstance(row, Reject):
            yield row
        elif len(row[1]) != len(header):
            yield Reject(row[0], "ragged row", f"{len(row[1])} values, the header has {len(header)}")
        else:
            yield Row(row[0], dict(zip(header, row[1], strict=True)))


def _txt(file: RawFile, fields: Sequence[str]) -> Iterator[Row | Reject]:
    start, length, paragraph = 0, 0, list[bytes]()
    with opened(file.path, file.compression, file.tally) as stream:
        for number, line in itertools.chain(lines(stream, file.where, file.tally), [(0, b"\n")]):
            blank = line.isspace()
            if number == 1 and line.startswith(b'{"') and line.rstrip().endswith(b"}"):
                raise InputError(f"{file.where} looks like JSON lines, not plain text; give it the extension .jsonl")
            if paragraph and (blank or length > LONGEST_PARAGRAPH):
                try:
                    yield Row(start, {fields[0]: b"".join(paragraph).decode()})
                except UnicodeDecodeError as error:
                    yield not_utf8(start, error)
                length, paragraph = 0, []
            if not blank:
                start = start if paragraph else number
                length += len(line)
                paragraph.append(line)


def _hub(file: RawFile, fields: Sequence[str]) -> Iterator[Row | Reject]:
    for number, values in enumerate(hub.rows(file.where), start=1):
        yield Row(number, values)


_READERS: dict[str, Callable[[RawFile, Sequence[str]], Iterator[Row | Reject]]] = {
    "jsonl": _jsonl, "csv": _csv, "tsv": _tsv, "txt": _txt, "parquet": parquet.rows, "hub": _hub,
}  # fmt: skip


class _Decoded:
    """Lines as text; remembers whether one was not UTF-8 (it is given all the same: csv must see its quotes)."""

    def __init__(self, numbered: Iterator[tuple[int, bytes]], where: str) -> None:
        self._lines, self._where = numbered, where
        self.ended = False
        self.begin_row(1)

    def begin_row(self, line: int) -> None:
        """From here on it is the row that starts in `line`."""
        self.invalid: UnicodeDecodeError | None = None
        self._start, self._size = line, 0

    def __iter__(self) -> "_Decoded":
        return self

    def __next__(self) -> str:
        try:
            _, line = next(self._lines)
        except StopIteration:
            self.ended = True
            raise
        self._size += len(line)
        if self._size > LONGEST_LINE:
            raise InputError(
                f"{self._where}:{self._start}: the row that begins here is longer than {LONGEST_LINE >> 20} MiB; "
                "is one of its quotes never closed?"
            )
        try:
            return line.decode()
        except UnicodeDecodeError as error:
            self.invalid = error
            return line.decode(errors="replace")


def _unquoted(value: str) -> str:
    quoted = _QUOTED.fullmatch(value) if value.startswith('"') else None
    return quoted[1].replace('""', '"') if quoted else value
