"""Rows of texts to predict, from a file or stdin, one at a time. What is wrong with a row is in the row.

Lines of text, JSON or CSV are read without pyarrow, which the image that serves does not have.
"""

import csv
import json
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TextIO

from tlm.data.text import csv_separator
from tlm.errors import InputError, did_you_mean, is_utf8, with_article
from tlm.settings.options import names_in, value_in

if TYPE_CHECKING:
    from tlm.data.reading.files import RawFile

ReadFormat = Literal["auto", "txt", "jsonl", "csv"]

SUFFIXES: dict[str, ReadFormat] = {
    ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".csv": "csv", ".txt": "txt",
}  # fmt: skip
LONGEST_CELL = 2**31 - 1
_NO_LINES = re.compile(r'\s*(\[\s*([{"]|$)|\{\s*$)')  # JSON, but not a record in each line


@dataclass(frozen=True)
class InputRow:
    """A text or pair of texts to predict, or an error.

    Attributes:
        number: Row number, from 1.
        text: The text.
        pair: The second text, for a task on pairs.
        error: What is wrong with the row; "" if nothing is.
        kept: Other fields of the row, which its answer has, too.
    """

    number: int
    text: str = ""
    pair: str | None = None
    error: str = ""
    kept: dict[str, Any] = field(default_factory=dict)


def read_rows(
    lines: Iterator[str], form: ReadFormat, text_field: str, pair_field: str = "", keep: Sequence[str] = ()
) -> Iterator[InputRow]:
    """Read rows in order; empty lines of jsonl and csv are none. Bytes that are not UTF-8 come as surrogate escapes.

    Args:
        lines: Lines of the file, with their line ends.
        form: Format; ``auto`` reads what the first line with text is: an object of JSON, CSV's names, or plain text.
        text_field: Field of the text (jsonl, csv), or several (`names_in`).
        pair_field: Field of the second text; empty for single texts.
        keep: Further fields.

    Raises InputError: there is no row at all, the CSV header lacks a field or has it twice, or records are in another
    form, such as an array of JSON.
    """
    lines = chain([next(lines, "").removeprefix("\ufeff")], lines)
    empty: list[str] = []
    for first in lines:
        if first.strip() and not first.startswith("sep="):  # a hint for Excel
            break
        empty.append(first)
    else:
        raise InputError("the input is empty; expected one text per row")
    if "\0" in first:
        raise InputError("the input is UTF-16 or not text; convert it, as iconv -f UTF-16 -t UTF-8 does")
    if form in ("auto", "jsonl") and _NO_LINES.match(first):
        found = "the input begins with a JSON array, or with an object of several lines"
        raise InputError(f"{found}; expected one object per line (jq -c '.[]' for an array, or jq -c .)")
    csv.field_size_limit(LONGEST_CELL)
    if form == "auto":
        form = _form_of(first, text_field)
    lines = chain(empty if form == "txt" else [], [first], lines)  # in plain text, empty lines are rows
    if form == "txt":
        if pair_field or keep or text_field != "text":
            other = pair_field or next(iter(keep), text_field)
            advice = "give jsonl or csv, or name the format with --source-format"
            raise InputError(f"plain text has no field '{other}'; {advice}")
        return (checked(number, [line.rstrip("\r\n")]) for number, line in enumerate(lines, 1))
    fields = [text_field, pair_field] if pair_field else [text_field]
    if form == "csv":
        return _csv_rows(lines, fields, keep, csv_separator(first))
    filled = (line for line in lines if line.strip())
    return (_record_row(number, _parsed(line), fields, keep) for number, line in enumerate(filled, 1))


def _form_of(line: str, text_field: str) -> ReadFormat:
    """The format of a file, by its first line with text: an object of JSON, CSV's names, or plain text."""
    if line.lstrip(" \t").startswith("{"):
        return "jsonl"
    wanted = {*names_in(text_field)}
    if wanted <= {*next(csv.reader([line], delimiter=csv_separator(line)), [])}:
        return "csv"
    if wanted <= {*next(csv.reader([line], delimiter="\t"), [])}:
        raise InputError("the columns are separated by tabs; name a file called .tsv with --source")
    return "txt"


def _csv_rows(lines: Iterator[str], fields: list[str], keep: Sequence[str], separator: str) -> Iterator[InputRow]:
    reader = csv.reader(lines, delimiter=separator, strict=True)
    try:
        header = next(reader)
    except csv.Error as error:
        raise InputError(f"the head of the CSV cannot be read: {error}; fix its first line") from None
    for name in (*names_in(*fields), *keep):
        if name not in header:
            raise InputError(f"the CSV has no column '{name}'; it has {str(header)[1:-1]}{did_you_mean(name, header)}")
        if header.count(name) > 1:
            raise InputError(f"the CSV has {header.count(name)} columns '{name}'; give each a name of its own")
    return _csv_body(reader, fields, keep, header)


def _csv_body(reader: Any, fields: list[str], keep: Sequence[str], header: list[str]) -> Iterator[InputRow]:
    numbers = count(1)
    while True:
        try:
            if not (cells := next(reader)):  # an empty line
                continue
        except StopIteration:
            return
        except csv.Error as error:
            yield InputRow(next(numbers), error=f"not CSV: {error}")
            continue
        if len(cells) != len(header):
            yield InputRow(next(numbers), error=f"{len(cells)} cells; the header has {len(header)}")
        else:
            yield _record_row(next(numbers), dict(zip(header, cells, strict=True)), fields, keep)


def _parsed(line: str) -> Any:
    """The object in a line, or what is wrong with it as a text."""
    try:
        record = json.loads(line, parse_constant=lambda name: None)  # NaN is no JSON
    except (ValueError, RecursionError):
        return "not JSON"
    return record if isinstance(record, dict) else f"{with_article(type(record).__name__)}; expected an object"


def _record_row(number: int, record: dict[str, Any] | str, fields: list[str], keep: Sequence[str]) -> InputRow:
    if isinstance(record, str):
        return InputRow(number, error=record)
    missing = [field for field in fields if not any(name in record for name in names_in(field))]
    texts = [value_in(record, field) for field in fields]
    row = InputRow(number, error=f"no field '{missing[0]}'") if missing else checked(number, texts)
    return _keeping(row, {name: record.get(name) for name in keep}) if keep else row


def _keeping(row: InputRow, kept: dict[str, Any]) -> InputRow:
    """The row with these fields, as an answer can have them."""
    text = json.dumps(kept, ensure_ascii=False, default=str)  # dates of parquet
    found = _parsed(text)
    if not is_utf8(text) or not isinstance(found, dict):
        return InputRow(row.number, error="a field to keep is not UTF-8, or too deep")
    return replace(row, kept=found)


def checked(number: int, values: Sequence[Any]) -> InputRow:
    """A row of these texts (one, or a pair), or what is wrong with them."""
    if not 1 <= len(values) <= 2:
        return InputRow(number, error=f"{len(values)} texts; expected one, or a pair")
    for value in values:
        if not isinstance(value, str):
            return InputRow(number, error=f"the text is {with_article(type(value).__name__)}; expected a string")
        if not value.strip():
            return InputRow(number, error="the text is empty")
        if not is_utf8(value):
            return InputRow(number, error="the text is not UTF-8")
    return InputRow(number, *values)


def opened(source: str, files: ExitStack) -> Iterator[str]:
    """The lines of a file, or of stdin (-). Raises InputError: the file cannot be read."""
    if source == "-":
        sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape", newline="")  # type: ignore[union-attr]
        return iter(sys.stdin)
    try:
        stream: TextIO = Path(source).open(encoding="utf-8", errors="surrogateescape", newline="")  # noqa: SIM115
    except OSError as error:
        raise InputError(f"{source} cannot be read: {error.strerror}; name a file of texts, or - for stdin") from None
    return iter(files.enter_context(stream))


def table_rows(file: "RawFile", fields: list[str], keep: Sequence[str]) -> Iterator[InputRow]:
    """Read the rows of a file as tasks are read: also of parquet, of a packed file, of one on S3.

    Raises InputError: the file is plain text, whose lines are no rows there, or lacks a field.
    """
    from tlm.data.reading.readers import check, read
    from tlm.data.reading.records import Record, Reject

    if file.format == "txt":
        advice = "name it alone, unpacked and on this machine, or convert it to .jsonl"
        raise InputError(f"{file.where} is plain text; {advice}")
    wanted = [*names_in(*fields), *keep]
    # A table names its columns, even on a day without rows; an object may lack what is to be kept
    is_table = file.format != "jsonl"
    check(file, wanted if is_table else names_in(*fields), may_be_empty=is_table and file.size > 0)

    def values(row: Record | Reject) -> dict[str, Any] | str:
        return f"{row.reason}: {row.detail}" if isinstance(row, Reject) else dict(row.values)

    return (_record_row(number, values(row), fields, keep) for number, row in enumerate(read(file, wanted), 1))
