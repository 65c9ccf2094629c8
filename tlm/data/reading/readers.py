"""Rows of raw files, one at a time: JSON lines, CSV, TSV, parquet, plain text and data sets on the Hugging Face Hub.

A row that cannot be read is yielded as a `Reject`; a file that cannot be read raises InputError.

- JSON lines (.jsonl, .ndjson, .json): one object per line; empty lines are skipped.
- CSV: a header, then rows as in RFC 4180 (quoted values may contain line breaks). A quote out of place is found as far
  as possible, and all lines that it swallows, up to the next quote, are rejected with the record: where that quote is
  not at the end of a value, where the record has more or fewer values than the header, and where its lines look like
  rows themselves. The last cannot be seen in a table of one column. It proves little for a few lines, so these only get
  a warning: among docstrings of Python packages, written as CSV with one or two columns before or after, 6.5 % with 2
  lines look like rows, 0.07 % with 4, and none of 20,208 with 6 or more.
- TSV: a header, then one row per line. A value that is quoted as a whole, with inner quotes doubled, is unquoted, as
  spreadsheets write it; any other quote is text. Where a quote is opened at the end of a line and the next line has
  not as many values as the header, the lines of that value are rejected.
- Plain text (.txt): paragraphs, separated by empty lines, are the documents; one above a million characters is split
  at line ends. The text is returned under the name of the first requested field.
- Parquet: the requested columns only. Numbers of classes become the names that `datasets` of Hugging Face stores in
  the file (`datasets.ClassLabel`).

Readers hold no more than a line, a row or a few rows of a row group in memory; rows above 64 MiB are refused.
"""

import csv
import itertools
import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from tlm.data.reading import zstd
from tlm.data.reading.files import RawFile
from tlm.data.reading.records import LONGEST_LINE, BadRow, Record, Reject, Rejects, check_columns, check_growth, lines
from tlm.data.registry import class_name, class_names, hub_rows
from tlm.data.text import csv_separator
from tlm.errors import InputError
from tlm.progress import Meter, say
from tlm.settings.options import names_in

T = TypeVar("T")

PEEK_ROWS = 20
SEARCHED_ROWS = 10_000  # for a field that the first objects lack
METER_ROWS = 1000  # between updates of the progress
LONGEST_PARAGRAPH = 1_000_000  # bytes
_DAMAGED = (EOFError, OSError, zlib.error, zstd.ZstdError, pa.ArrowException, UnicodeDecodeError)


def read(file: RawFile, fields: Sequence[str]) -> Iterator[Record | Reject]:
    """Yield all rows of `file` in order; `fields` are those needed (CSV, TSV and parquet must have these columns).

    Raises:
        InputError: the file is damaged or truncated, has another format than its extension says or lacks a column; a
            line, row or value exceeds 64 MiB; or it is a decompression bomb.
    """
    file.bytes_read = 0
    try:
        yield from _READERS[file.format](file, fields)
    except MemoryError:  # Arrow's is an ArrowException, too, but says nothing about the file
        raise
    except _DAMAGED as error:
        reason = getattr(error, "strerror", None) or str(error).partition("\n")[0] or type(error).__name__
        raise InputError(
            f"{file.where} cannot be read: {reason}; check that it is complete and that you may read it"
        ) from None


def read_all(
    files: Sequence[RawFile], fields: Sequence[str], rejects: Rejects, use: Callable[[RawFile, Record], T]
) -> Iterator[T]:
    """Yield what `use` returns for each row of `files`; set aside rows that are unreadable or make it raise BadRow.

    Raises InputError: see `read`; too many of the first rows were set aside; a file changed while it was read.
    """
    done = 0
    with closing(Meter("reading", sum(file.size for file in files) / 1e6 or None, "MB")) as meter:
        for file in files:
            for row in read(file, fields):
                lines_read = row.lines if isinstance(row, Reject) else 1
                rejects.read += lines_read
                rejects.read_by_file[file.where] += lines_read
                if rejects.read % METER_ROWS < lines_read:
                    meter.advance((done + file.bytes_read) / 1e6 - meter.done, f"{rejects.read:,} rows")
                if isinstance(row, Reject):
                    rejects.add(file.name, row)
                    continue
                try:
                    found = use(file, row)
                except BadRow as bad:
                    rejects.add(file.name, Reject(row.line, *bad.args))
                else:
                    yield found
            done += file.bytes_read
            file.check_unchanged()


def check(file: RawFile, fields: Sequence[str], text_field: str = "", *, may_be_empty: bool = False) -> None:
    """Check the first rows. Of plain text, only the first of several fields in `text_field` is needed.

    Raises InputError: no rows unless there may be none, no readable row, a field that none of many rows has.
    """
    fields = [name for name in fields if file.format != "txt" or name not in names_in(text_field)[1:]]
    found = read(file, fields)
    rows = list(itertools.islice(found, PEEK_ROWS))
    if not rows and may_be_empty:
        return
    if not rows:
        raise InputError(f"{file.where} is empty; expected rows with the fields {', '.join(fields)}")
    rejects = [row for row in rows if isinstance(row, Reject)]
    if len(rejects) == len(rows):
        found_first = f"{file.where}:{rejects[0].line}: {rejects[0].reason}, {rejects[0].detail}"
        raise InputError(f"{found_first}; none of the first rows is readable {file.format}")
    names = dict.fromkeys(name for row in rows if isinstance(row, Record) for name in row.values)
    if file.format == "jsonl" and not names.keys() >= {*fields}:  # rows of other formats all have the same fields
        more = itertools.islice(found, SEARCHED_ROWS)
        names |= dict.fromkeys(name for row in more if isinstance(row, Record) for name in row.values)
    check_columns(file.where, list(names), fields)


_NO_LINES = (("a JSON array", rb"\[", "'.[]'"), ("an object of several lines", rb"\{\Z", "."))  # of JSON, and advice


def _jsonl(file: RawFile, fields: Sequence[str]) -> Iterator[Record | Reject]:
    rows = ((number, line) for number, line in lines(file) if not line.isspace())
    for index, (number, line) in enumerate(rows):
        if index == 0 and not (file.piece and file.piece.start):
            for found, begins, query in _NO_LINES:
                if re.match(begins, line.strip()):
                    raise InputError(f"{file.where} begins with {found}; expected one object per line (jq -c {query})")
        try:
            values = _JSON.decode(line.decode())
        except UnicodeDecodeError as error:
            yield Reject.not_utf8(number, error)
        except BadRow as bad:
            yield Reject(number, *bad.args)
        except (ValueError, RecursionError) as error:
            yield Reject(number, "invalid JSON", str(error))
        else:
            if isinstance(values, dict):
                yield Record(number, values)
            else:
                yield Reject(number, "not an object", f"a JSON {type(values).__name__}: {line[:40]!r}")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        # `values` has each key where it first stood: up to the first repetition, both have the same order
        name = next(name for (name, _), new in zip(pairs, [*values, None], strict=False) if name != new)
        raise BadRow("duplicate key", f"an object has two values for {name!r}")
    return values


_JSON = json.JSONDecoder(object_pairs_hook=_object)


def _txt(file: RawFile, fields: Sequence[str]) -> Iterator[Record | Reject]:
    start, length, paragraph = 0, 0, list[bytes]()
    for number, line in itertools.chain(lines(file), [(0, b"\n")]):
        blank = line.isspace()
        if number == 1 and line.startswith(b'{"') and line.rstrip().endswith(b"}"):
            raise InputError(f"{file.where} looks like JSON lines, not plain text; give it the extension .jsonl")
        if paragraph and (blank or length > LONGEST_PARAGRAPH):
            try:
                yield Record(start, {fields[0]: b"".join(paragraph).decode()})
            except UnicodeDecodeError as error:
                yield Reject.not_utf8(start, error)
            length, paragraph = 0, []
        if not blank:
            start = start if paragraph else number
            length += len(line)
            paragraph.append(line)


FEWEST = 6  # lines of a record that is taken for rows
MANY = 3  # records with fewer lines that could be rows, too, are warned of
SHARE_ROWS = 0.9  # of these lines have as many values as the header; others may be bad rows
SHARE_DOUBTED = 0.7  # of the lines of a record that is warned of
_GOES_ON = ("quoted lines", "a quoted value has several lines; write the file as .csv, or remove its line breaks")
_QUOTED = re.compile(r'"((?:[^"]++|"")*+)"')  # possessive: without backtracking, which takes memory per character


@dataclass
class _Record:
    """A row, which may have several lines, and what is known of them."""

    line: int  # the first one
    size: int = 0  # bytes
    lines: int = 0
    alike: int = 0  # lines with as many values as the header has, if quotes are ignored
    first: bool = False  # whether the first line is one of them
    last: bool = False
    invalid: UnicodeDecodeError | None = None
    values: Sequence[str] = ()

    def add(self, line: bytes, width: int, separator: str) -> None:
        """Count a line; `width` is the number of columns."""
        self.last = width > 1 and line.count(separator.encode()) + 1 == width
        self.first = self.first if self.lines else self.last
        self.alike += self.last
        self.lines += 1
        self.size += len(line)

    @property
    def of_rows(self) -> bool:
        """Whether the lines are rows themselves. A text with a comma in each line has two in the first or the last."""
        return self.lines > 1 and self.first and self.last and self.alike >= SHARE_ROWS * self.lines

    def reject(self, reason: str, detail: str) -> Reject:
        """The record with all its lines, rejected."""
        span = f"up to line {self.line + self.lines - 1}: " if self.lines > 1 else ""
        return Reject(self.line, reason, span + detail, self.lines)


def _table(file: RawFile, fields: Sequence[str]) -> Iterator[Record | Reject]:
    """Yield the rows of a CSV or TSV file, named as the header says. Raises InputError if that cannot be read."""
    rows = _doubted(file, _csv(file)) if file.format == "csv" else _tsv(file)
    first = next(rows, None)
    if first is None:
        return
    if isinstance(first, _Record) and first.invalid is not None:
        first = Reject.not_utf8(first.line, first.invalid)
    if isinstance(first, Reject):
        expected = f"the column names with {'commas' if file.format == 'csv' else 'tabs'} between them"
        raise InputError(f"{file.where}:{first.line}: {first.reason}, {first.detail}; expected {expected}")
    header = first.values
    if len(file.header) == len(header) and not set(fields) <= set(header):  # the file has no header
        header, rows = file.header, itertools.chain([first], rows)
    check_columns(file.where, header, fields)
    for row in rows:
        if isinstance(row, Reject):
            yield row
        elif len(row.values) != len(header):
            yield row.reject("ragged row", f"{len(row.values)} values, the header has {len(header)}")
        elif row.of_rows and row.lines >= FEWEST:
            yield row.reject("malformed csv", f"one record of {row.lines:,} lines that are rows; is a quote missing?")
        elif row.invalid is not None:
            yield Reject.not_utf8(row.line, row.invalid)
        else:
            yield Record(row.line, dict(zip(header, row.values, strict=True)))


def _doubted(file: RawFile, rows: Iterator[_Record | Reject]) -> Iterator[_Record | Reject]:
    """Yield the rows, and warn of records whose lines may be rows: of each long one, of short ones if most are so."""
    several = doubtful = first = 0
    long: list[str] = []
    for row in rows:
        if isinstance(row, _Record) and row.lines > 1:
            several += 1
            if row.of_rows:
                doubtful += 1
                first = first or row.line
            elif row.lines >= FEWEST and row.alike >= SHARE_DOUBTED * row.lines:
                long.append(f"{row.line} to {row.line + row.lines - 1}")
        yield row
    if doubtful >= MANY and 2 * doubtful > several:
        say(
            f"warning: {file.where}: {doubtful:,} of {several:,} records of several lines, the first at line {first}, "
            "may be rows that a quote out of place joins; check them"
        )
    if long:
        say(
            f"warning: {file.where}: {len(long):,} long records, the first in lines {long[0]}, were read as texts, but "
            "most of their lines look like rows; is a quote missing?"
        )


def _csv(file: RawFile) -> Iterator[_Record | Reject]:
    record, width = _Record(1), 0
    head = next((line for _, line in lines(file) if not line.isspace()), b"").decode(errors="replace")
    separator = "," if len(file.header) == 1 else csv_separator(head)

    def text() -> Iterator[str]:
        for _, line in lines(file):
            record.add(line, width, separator)
            if record.size > LONGEST_LINE:
                raise InputError(
                    f"{file.where}:{record.line}: the row that begins here is longer than {LONGEST_LINE >> 20} MiB; "
                    "is a closing quote missing?"
                )
            try:
                decoded = line.decode()
            except UnicodeDecodeError as error:  # reported with the row, whose end only the parser finds
                record.invalid, decoded = error, line.decode(errors="replace")
            yield decoded

    csv.field_size_limit(LONGEST_LINE)
    parser = csv.reader(text(), delimiter=separator, strict=True)
    while True:
        record = _Record(parser.line_num + 1)
        try:
            values = next(parser, None)
        except csv.Error as error:
            if "unexpected end" in str(error):
                raise InputError(
                    f"{file.where}:{record.line}: a quote is opened here and never closed; close it"
                ) from None
            yield record.reject("malformed csv", str(error))
            continue
        if values is None:
            return
        if values and (width or values != ["sep=", ""]):  # a hint for Excel in the first line
            record.values, width = values, width or len(values)
            yield record


def _tsv(file: RawFile) -> Iterator[_Record | Reject]:
    width, inside = 0, False  # the columns; whether a value that began above may go on
    held: _Record | None = None  # a row whose last value begins with a quote: the next line says whether it goes on
    for number, line in lines(file):
        if line.isspace() and b"\t" not in line:
            continue
        try:
            text = line.decode().rstrip("\r\n")
        except UnicodeDecodeError as error:
            if held is not None:
                yield held
                held = None
            yield Reject.not_utf8(number, error)
            continue
        row = _Record(number, lines=1, values=[_unquoted(value) for value in text.split("\t")])
        width = width or len(row.values)
        ragged, odd = len(row.values) != width, text.count('"') % 2 == 1
        if held is not None:
            goes_on = ragged
            yield held.reject(*_GOES_ON) if goes_on else held
        else:
            goes_on = inside and (ragged or odd)
        opens = odd and row.values[-1].startswith('"')
        held = row if opens and not ragged and not goes_on else None
        inside = not odd if goes_on else opens and ragged
        if goes_on or inside:
            yield row.reject(*_GOES_ON)
        elif held is None:
            yield row
    if held is not None:
        yield held


def _unquoted(value: str) -> str:
    quoted = _QUOTED.fullmatch(value) if value.startswith('"') else None
    return quoted[1].replace('""', '"') if quoted else value


_BATCH_ROWS = 32
_BATCH_BYTES = 1 << 26  # limit for a batch if a column expands suspiciously:
_SUSPICIOUS = 10  # times its compressed size; text expands about 3 times


def _parquet(file: RawFile, fields: Sequence[str]) -> Iterator[Record | Reject]:
    """Yield the rows in order, with the columns `fields`, and those of `file.extra` that the file has.

    The rows of a piece are numbered as in the whole file.

    Raises InputError: no such column, a value above 64 MiB, a decompression bomb; pa.ArrowException: a damaged file.
    """
    size = done = 0
    first = file.piece.row + 1 if file.piece else 1
    with pq.ParquetFile(file.path) as table:
        names = table.schema_arrow.names
        wanted = list(dict.fromkeys([*fields, *(name for name in file.extra if name in names)]))
        check_columns(file.where, names, wanted)
        groups = range(table.num_row_groups) if file.piece is None else range(file.piece.start, file.piece.stop)
        count = sum(table.metadata.row_group(group).num_rows for group in groups)
        together = _batch_rows(table, groups, wanted, file)
        classes = {column: names for column, names in class_names(table.schema_arrow).items() if column in wanted}
        for batch in table.iter_batches(together, list(groups), columns=wanted):
            for row in _rows(batch, first + done, classes):
                if isinstance(row, Record):
                    size += _length(row, f"{file.where}:{row.line}")
                check_growth(size, file.size, file.where)
                yield row
            done += batch.num_rows
            file.bytes_read = file.size * done // count


def _batch_rows(table: pq.ParquetFile, groups: range, fields: Sequence[str], file: RawFile) -> int:
    """Return a batch size that fits in memory even if the longest possible string is in every row.

    Dictionary encoding can repeat one huge value in all rows without making the file larger.

    Raises InputError: a decompression bomb; pa.ArrowException or OSError: a damaged file.
    """
    paths = [table.schema.column(index).path for index in range(len(table.schema))]
    columns = [i for i, path in enumerate(paths) if any(f"{path}.".startswith(f"{name}.") for name in fields)]
    most = _BATCH_ROWS
    for group in groups:
        metadata = table.metadata.row_group(group)
        check_growth(metadata.total_byte_size, file.size, file.where)
        # A damaged column raises an error when it is read, but ends the process in `RowGroupMetaData.column`.
        next(table.iter_batches(1, [group], columns=fields), None)
        for column in map(metadata.column, columns):
            size, packed = column.total_uncompressed_size, column.total_compressed_size
            check_growth(size, packed, file.where)
            most = min(most, max(1, _BATCH_BYTES // size)) if size > _SUSPICIOUS * packed else most
    return most


def _rows(batch: pa.RecordBatch, first: int, classes: Mapping[str, Sequence[str]]) -> Iterator[Record | Reject]:
    """Yield the rows of a batch, numbered from `first` on, with the names of `classes` by column."""
    try:
        yield from list(map(Record, itertools.count(first), _values(batch, classes)))
    except (ValueError, OverflowError, pa.ArrowException):  # in some row of the batch: convert them one by one
        for index in range(batch.num_rows):
            try:
                yield Record(first + index, _values(batch.slice(index, 1), classes)[0])
            except UnicodeDecodeError as error:
                yield Reject.not_utf8(first + index, error)
            except (ValueError, OverflowError, pa.ArrowException) as error:  # such as a date that Python lacks
                yield Reject(first + index, "unreadable value", str(error))


def _values(batch: pa.RecordBatch, classes: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
    """Convert to Python types; nanoseconds, which `datetime` lacks, would become pandas types where it is installed."""
    fields = [field.with_type(_microseconds(field.type)) for field in batch.schema]
    rows: list[dict[str, Any]] = batch.cast(pa.schema(fields)).to_pylist()
    for column, names in classes.items():
        for row in rows:
            row[column] = class_name(row[column], names)
    return rows


def _microseconds(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz) if kind.unit == "ns" else kind
    return pa.duration("us") if pa.types.is_duration(kind) and kind.unit == "ns" else kind


def _length(row: Record, where: str) -> int:
    """The characters of all texts in a row. Raises InputError if one text has too many."""
    lengths = [len(value) for value in row.values.values() if isinstance(value, str)]
    if max(lengths, default=0) > LONGEST_LINE:
        raise InputError(f"{where}: a value is longer than {LONGEST_LINE >> 20} MiB; expected one record per row")
    return sum(lengths)


_READERS: dict[str, Callable[[RawFile, Sequence[str]], Iterator[Record | Reject]]] = {
    "jsonl": _jsonl, "csv": _table, "tsv": _table, "txt": _txt, "parquet": _parquet,
    "hub": lambda file, _: itertools.starmap(Record, enumerate(hub_rows(file.where), start=1)),
}  # fmt: skip
