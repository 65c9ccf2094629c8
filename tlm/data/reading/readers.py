"""Rows of raw files, one at a time: JSON lines, CSV, TSV, parquet, plain text and data sets on the Hugging Face Hub.

A row that cannot be read is yielded as a `Reject`; a file that cannot be read raises InputError.

- JSON lines (.jsonl, .ndjson, .json): one object per line; empty lines are skipped.
- CSV: a header, then rows as in RFC 4180 (quoted values may contain line breaks). A quote out of place is found as far
  as possible (`tlm.data.reading.tables`), and all lines that it swallows are rejected.
- TSV: a header, then one row per line. A value that is quoted as a whole, with inner quotes doubled, is unquoted, as
  spreadsheets write it; any other quote is text.
- Plain text (.txt): paragraphs, separated by empty lines, are the documents; one above a million characters is split
  at line ends. The text is returned under the name of the first requested field.
- Parquet: the requested columns only.

Readers hold no more than a line, a row or a few rows of a row group in memory; rows above 64 MiB are refused.
"""

import itertools
import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any, TypeVar

import pyarrow as pa
from backports import zstd

from tlm.data.reading import hub, tables
from tlm.data.reading.files import RawFile
from tlm.data.reading.records import BadRow, Record, Reject, Rejects, check_columns, lines, not_utf8
from tlm.errors import InputError
from tlm.progress import Meter

T = TypeVar("T")

PEEK_ROWS = 20
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


def check(file: RawFile, fields: Sequence[str]) -> None:
    """Check the first rows. Raises InputError: no rows, no readable row, a field that none of them has."""
    rows = list(itertools.islice(read(file, fields), PEEK_ROWS))
    if not rows:
        raise InputError(f"{file.where} is empty; expected rows with the fields {', '.join(fields)}")
    rejects = [row for row in rows if isinstance(row, Reject)]
    if len(rejects) == len(rows):
        line, reason, detail, _ = rejects[0]
        raise InputError(f"{file.where}:{line}: {reason}, {detail}; none of the first rows is readable {file.format}")
    names = dict.fromkeys(name for row in rows if isinstance(row, Record) for name in row.values)
    check_columns(file.where, list(names), fields)


def _jsonl(file: RawFile, fields: Sequence[str]) -> Iterator[Record | Reject]:
    rows = ((number, line) for number, line in lines(file) if not line.isspace())
    for index, (number, line) in enumerate(rows):
        if index == 0 and not (file.piece and file.piece.start) and line.lstrip().startswith(b"["):
            raise InputError(f"{file.where} begins with a JSON array; expected one object per line (jq -c '.[]')")
        try:
            values = _JSON.decode(line.decode())
        except UnicodeDecodeError as error:
            yield not_utf8(number, error)
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
        name = next(name for index, (name, _) in enumerate(pairs) if name in dict(pairs[:index]))
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
                yield not_utf8(start, error)
            length, paragraph = 0, []
        if not blank:
            start = start if paragraph else number
            length += len(line)
            paragraph.append(line)


_READERS: dict[str, Callable[[RawFile, Sequence[str]], Iterator[Record | Reject]]] = {
    "jsonl": _jsonl, "csv": tables.rows, "tsv": tables.rows, "txt": _txt, "parquet": tables.parquet_rows,
    "hub": lambda file, _: itertools.starmap(Record, enumerate(hub.rows(file.where), start=1)),
}  # fmt: skip
