"""Rows of raw files: JSON lines, CSV, TSV, parquet, plain text and Hub data sets, one at a time.

A row that cannot be read comes as a `Reject`; a file that cannot, as an InputError.

- JSON lines (.jsonl, .ndjson, .json): one object a line; empty lines are no rows.
- CSV: a header, then rows by RFC 4180 (quotes may hold newlines).
- TSV: a header, then one row a line, no quoting across tabs; a value wholly in quotes, with the quotes inside it
  doubled, is unquoted (what spreadsheets write), any other quote is text.
- Plain text (.txt): paragraphs, separated by empty lines, are the documents; one above a million characters is
  given in parts, cut at a line end. A paragraph's text stands under whichever name the first wanted field has.
- Parquet: the wanted columns only.
"""

import csv
import gzip
import itertools
import json
import re
import zlib
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from tlm.data import hub
from tlm.data.files import RawFile
from tlm.data.records import Reject, Row, unknown_field
from tlm.data.streams import LONGEST_LINE, lines, opened
from tlm.errors import InputError

PEEK_ROWS = 20
LONGEST_PARAGRAPH = 1_000_000  # characters
_BATCH_ROWS = 1000
_QUOTED = re.compile(r'"((?:[^"]|"")*)"')
_DAMAGED = (EOFError, OSError, gzip.BadGzipFile, zlib.error, zstandard.ZstdError, pa.ArrowException)


def read(file: RawFile, fields: Sequence[str]) -> Iterator[Row | Reject]:
    """All rows of `file` in order; `fields` are those wanted (columns of CSV, TSV and parquet must be there).

    Raises:
        InputError: the file is damaged or cut off, has no such column, or a line above 64 MiB.
    """
    file.tally.bytes = 0
    try:
        yield from _READERS[file.format](file, fields)
    except _DAMAGED as error:
        reason = getattr(error, "strerror", None) or str(error).partition("\n")[0] or type(error).__name__
        raise InputError(f"{file.where} cannot be read: {reason}; see that it is whole and may be read") from None


def check(file: RawFile, fields: Sequence[str]) -> None:
    """Look at the first rows. Raises InputError: no rows, none of them readable, a field that none of them has."""
    first = list(itertools.islice(read(file, fields), PEEK_ROWS))
    rows = [row for row in first if isinstance(row, Row)]
    if not first:
        raise InputError(f"{file.where} is empty; expected rows with the fields {', '.join(fields)}")
    if isinstance(first[0], Reject) and not rows:
        line, reason, detail = first[0]
        raise InputError(
            f"{file.where}:{line}: {reason}, {detail}; not one of the first rows is readable {file.format}"
        )
    for field in fields:
        if not any(field in row.values for row in rows):
            raise unknown_field(file.where, field, dict.fromkeys(name for row in rows for name in row.values))


def _jsonl(file: RawFile, fields: Sequence[str]) -> Iterator[Row | Reject]:
    with opened(file.path, file.compression, file.tally) as stream:
        for number, line in lines(stream, file.where):
            if line.isspace():
                continue
            try:
                values = json.loads(line.decode())
            except UnicodeDecodeError as error:
                yield _not_utf8(number, error)
            except (ValueError, RecursionError) as error:
                yield Reject(number, "invalid JSON", str(error))
            else:
                if isinstance(values, dict):
                    yield Row(number, values)
                else:
                    yield Reject(number, "not an object", f"a JSON {type(values).__name__}: {line[:40]!r}")


def _csv(file: RawFile, fields: Sequence[str]) -> Iterator[Row | Reject]:
    csv.field_size_limit(LONGEST_LINE)
    with opened(file.path, file.compression, file.tally) as stream:
        yield from _table(file, fields, _csv_rows(file, _Decoded(lines(stream, file.where))))


def _csv_rows(file: RawFile, source: "_Decoded") -> Iterator[tuple[int, list[str]] | Reject]:
    rows = csv.reader(source, strict=True)
    while True:
        start, source.invalid = rows.line_num + 1, None
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
            yield _not_utf8(start, source.invalid)
        elif row:
            yield start, row


def _tsv(file: RawFile, fields: Sequence[str]) -> Iterator[Row | Reject]:
    with opened(file.path, file.compression, file.tally) as stream:
        yield from _table(file, fields, _tsv_rows(lines(stream, file.where)))


def _tsv_rows(numbered: Iterator[tuple[int, bytes]]) -> Iterator[tuple[int, list[str]] | Reject]:
    for number, line in numbered:
        if line.isspace() and b"\t" not in line:
            continue
        try:
            yield number, [_unquoted(value) for value in line.decode().rstrip("\r\n").split("\t")]
        except UnicodeDecodeError as error:
            yield _not_utf8(number, error)


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
            _check_columns(file, header, fields)
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
        for number, line in itertools.chain(lines(stream, file.where), [(0, b"\n")]):
            blank = line.isspace()
            if paragraph and (blank or length > LONGEST_PARAGRAPH):
                try:
                    yield Row(start, {fields[0]: b"".join(paragraph).decode()})
                except UnicodeDecodeError as error:
                    yield _not_utf8(start, error)
                length, paragraph = 0, []
            if not blank:
                start = start if paragraph else number
                length += len(line)
                paragraph.append(line)


def _parquet(file: RawFile, fields: Sequence[str]) -> Iterator[Row | Reject]:
    with pq.ParquetFile(file.path) as parquet:
        names = parquet.schema_arrow.names
        _check_columns(file, names, fields)
        number = 0
        for batch in parquet.iter_batches(batch_size=_BATCH_ROWS, columns=list(dict.fromkeys(fields))):
            for row in _batch_rows(batch):
                number += 1
                yield row._replace(line=number)
            file.tally.bytes = file.size * number // parquet.metadata.num_rows


def _batch_rows(batch: pa.RecordBatch) -> Iterator[Row | Reject]:
    try:
        yield from [Row(0, values) for values in batch.to_pylist()]
    except UnicodeDecodeError:  # somewhere in the batch: go through it row by row
        for index in range(batch.num_rows):
            try:
                yield Row(0, batch.slice(index, 1).to_pylist()[0])
            except UnicodeDecodeError as error:
                yield _not_utf8(0, error)


def _hub(file: RawFile, fields: Sequence[str]) -> Iterator[Row | Reject]:
    for number, values in enumerate(hub.rows(file.where), start=1):
        yield Row(number, values)


_READERS: dict[str, Callable[[RawFile, Sequence[str]], Iterator[Row | Reject]]] = {
    "jsonl": _jsonl, "csv": _csv, "tsv": _tsv, "txt": _txt, "parquet": _parquet, "hub": _hub,
}  # fmt: skip


class _Decoded:
    """Lines as text; remembers whether one was not UTF-8 (it is given all the same: csv must see its quotes)."""

    def __init__(self, numbered: Iterator[tuple[int, bytes]]) -> None:
        self._lines = numbered
        self.invalid: UnicodeDecodeError | None = None
        self.ended = False

    def __iter__(self) -> "_Decoded":
        return self

    def __next__(self) -> str:
        try:
            _, line = next(self._lines)
        except StopIteration:
            self.ended = True
            raise
        try:
            return line.decode()
        except UnicodeDecodeError as error:
            self.invalid = error
            return line.decode(errors="replace")


def _check_columns(file: RawFile, names: list[str], fields: Sequence[str]) -> None:
    for field in fields:
        if field not in names:
            raise unknown_field(file.where, field, names)
        if names.count(field) > 1:
            raise InputError(
                f"{file.where} has {names.count(field)} columns named '{field}'; expected one, rename the others"
            )


def _unquoted(value: str) -> str:
    quoted = _QUOTED.fullmatch(value) if value.startswith('"') else None
    return quoted[1].replace('""', '"') if quoted else value


def _not_utf8(line: int, error: UnicodeDecodeError) -> Reject:
    return Reject(line, "invalid UTF-8", f"byte 0x{error.object[error.start]:02x} at {error.start}")
