"""Texts to predict, row by row, out of plain text, JSON lines or CSV, and predicted rows; a bad row stays a row."""

import csv
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TextIO

from tlm.errors import InputError, nearest, with_article
from tlm.evaluation.pages.text import BIDI_AND_CONTROLS, spelled

ReadFormat = Literal["auto", "txt", "jsonl", "csv"]
WriteFormat = Literal["jsonl", "csv"]
# Where a formula would begin: a cell, a line in it, and what a spreadsheet takes for a cell that parts cells by these.
_FORMULA = re.compile(r"^(?=[\t\r\n])|(?:^|(?<=[;\t\n]))(?=[=+\-@＝＋－＠])")
_UNSEEN = re.compile(rf"(?!\r\n){BIDI_AND_CONTROLS.pattern}")  # a lone \r would end the row
LONGEST_CELL = 2**31 - 1


@dataclass(frozen=True)
class Row:
    """One text, or pair of texts, or what is wrong with the row; `number` counts rows from 1."""

    number: int
    text: str = ""
    pair: str | None = None
    error: str = ""


def read_rows(lines: Iterator[str], form: ReadFormat, text_field: str, pair_field: str = "") -> Iterator[Row]:
    """Rows in their order. Bytes that are no UTF-8 are expected as surrogate escapes.

    Args:
        lines: Of the file, line ends included.
        form: ``auto`` takes JSON lines where the first line begins with a brace, else plain text.
        text_field: Field of the text (jsonl, csv).
        pair_field: Field of the second text; empty for single texts.

    Raises:
        InputError: there is no row at all, or the CSV header lacks a field.
    """
    first = next(lines, None)
    if first is None:
        raise InputError("the input is empty; expected one text a row")
    if form == "auto":
        form = "jsonl" if first.lstrip("\ufeff \t").startswith("{") else "txt"
    whole = _chain(first.removeprefix("\ufeff"), lines)
    fields = [text_field, pair_field] if pair_field else [text_field]
    if form == "csv":
        return _csv_rows(whole, fields)
    if pair_field and form == "txt":
        raise InputError(f"plain text has no field '{pair_field}'; give pairs as jsonl or csv")
    return (_line_row(number, line, fields if form == "jsonl" else None) for number, line in enumerate(whole, 1))


def write_rows(rows: Iterable[dict[str, Any]], form: WriteFormat, labels: Sequence[str] | None, sink: TextIO) -> None:
    """Write predicted rows one at a time, so that no terminal and no spreadsheet takes anything in them for a command.

    In JSON control and direction characters stand as escapes, so that values are what they were; see `inert` for CSV.
    """
    if form == "jsonl":
        for row in rows:
            line = json.dumps(row, ensure_ascii=False, allow_nan=False)
            sink.write(BIDI_AND_CONTROLS.sub(lambda found: json.dumps(found[0])[1:-1], line) + "\n")
        return
    writer = csv.writer(sink, lineterminator="\n")
    chances = [f"p({label})" for label in labels or []]
    head = ["label", "probability"] if labels is not None else ["value"]
    writer.writerow(map(inert, ["row", "text", *head, *chances, "error"]))
    for row in rows:
        numbers = row.get("probabilities", {})
        cells = [row.get(name, "") for name in ("row", "text", *head)]
        writer.writerow(
            inert(cell) for cell in [*cells, *(numbers.get(label, "") for label in labels or []), row.get("error", "")]
        )


def inert(cell: Any) -> Any:
    """A cell of CSV, numbers as they are: text has an apostrophe before what a spreadsheet would take for a formula.

    Control and direction characters are spelled out.
    """
    return _FORMULA.sub("'", _UNSEEN.sub(spelled, cell)) if isinstance(cell, str) else cell


def _chain(first: str, rest: Iterator[str]) -> Iterator[str]:
    yield first
    yield from rest


def _csv_rows(lines: Iterator[str], fields: list[str]) -> Iterator[Row]:
    csv.field_size_limit(LONGEST_CELL)
    reader = csv.reader(lines, strict=True)
    header = next(reader)
    for field in fields:
        if field not in header:
            raise InputError(f"the CSV has no column '{field}'{nearest(field, header)}")
    return _csv_body(reader, [header.index(field) for field in fields], len(header))


def _csv_body(reader: Any, places: list[int], width: int) -> Iterator[Row]:
    number = 0
    while True:
        number += 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield Row(number, error=f"not CSV: {error}")
            continue
        if len(cells) != width:
            yield Row(number, error=f"{len(cells)} cells; the header has {width}")
        else:
            yield _checked(number, [cells[place] for place in places])


def _line_row(number: int, line: str, fields: list[str] | None) -> Row:
    if fields is None:
        return _checked(number, [line.rstrip("\r\n")])
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return Row(number, error="not JSON")
    if not isinstance(record, dict):
        return Row(number, error=f"{with_article(type(record).__name__)}; expected an object")
    missing = [field for field in fields if field not in record]
    if missing:
        return Row(number, error=f"no field '{missing[0]}'")
    return _checked(number, [record[field] for field in fields])


def _checked(number: int, values: list[Any]) -> Row:
    for value in values:
        if not isinstance(value, str):
            return Row(number, error=f"the text is {with_article(type(value).__name__)}; expected a string")
        if not value.strip():
            return Row(number, error="the text is empty")
        if any("\ud800" <= character <= "\udfff" for character in value):
            return Row(number, error="the text is not UTF-8")
    return Row(number, *values)
