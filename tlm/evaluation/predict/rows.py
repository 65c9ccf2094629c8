"""Rows of text to predict, from plain text, JSON lines or CSV, and rows of predictions; a bad row stays a row."""

import csv
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import Any, Literal, TextIO

from tlm.errors import InputError, nearest, with_article
from tlm.evaluation.pages.text import BIDI_AND_CONTROLS, spelled

ReadFormat = Literal["auto", "txt", "jsonl", "csv"]
WriteFormat = Literal["jsonl", "csv"]
# Where a formula could begin: at the start of a cell, and after a line break, semicolon or tab, because spreadsheets
# may split cells there.
_FORMULA = re.compile(r"^(?=[\t\r\n])|(?:^|(?<=[;\t\n]))(?=[=+\-@＝＋－＠])")
_UNSEEN = re.compile(rf"(?!\r\n){BIDI_AND_CONTROLS.pattern}")  # a lone \r would end the row
LONGEST_CELL = 2**31 - 1
BETWEEN = "; "  # labels of one text


@dataclass(frozen=True)
class InputRow:
    """A text or pair of texts to predict, or an error.

    Attributes:
        number: Row number, from 1.
        text: The text.
        pair: The second text, for a task on pairs.
        error: What is wrong with the row; "" if nothing is.
    """

    number: int
    text: str = ""
    pair: str | None = None
    error: str = ""


def read_rows(lines: Iterator[str], form: ReadFormat, text_field: str, pair_field: str = "") -> Iterator[InputRow]:
    """Read rows in order. Bytes that are not UTF-8 are expected as surrogate escapes.

    Args:
        lines: Lines of the file, with their line ends.
        form: Format; ``auto`` reads JSON lines if the first line begins with a brace, else plain text.
        text_field: Field of the text (jsonl, csv).
        pair_field: Field of the second text; empty for single texts.

    Raises:
        InputError: there is no row at all, or the CSV header lacks a field.
    """
    first = next(lines, None)
    if first is None:
        raise InputError("the input is empty; expected one text per row")
    if form == "auto":
        form = "jsonl" if first.lstrip("\ufeff \t").startswith("{") else "txt"
    whole = chain([first.removeprefix("\ufeff")], lines)
    fields = [text_field, pair_field] if pair_field else [text_field]
    if form == "csv":
        return _csv_rows(whole, fields)
    if pair_field and form == "txt":
        raise InputError(f"plain text has no field '{pair_field}'; give pairs as jsonl or csv")
    return (_line_row(number, line, fields if form == "jsonl" else None) for number, line in enumerate(whole, 1))


def write_rows(
    rows: Iterable[dict[str, Any]],
    form: WriteFormat,
    labels: Sequence[str] | None,
    sink: TextIO,
    *,
    several: bool = False,
    marked: bool = False,
) -> Counter[str]:
    """Write predicted rows one at a time; returns how many are good, how many of these unsure, and how many bad.

    No terminal and no spreadsheet can read a command in them: JSON escapes control and direction characters, so that
    values are unchanged; `inert` says what is done in CSV. There, `several` labels of a text stand in one cell, and
    `marked` rows say in a column whether they are unsure.
    """
    counts: Counter[str] = Counter()
    writer = csv.writer(sink, lineterminator="\n")
    answer = ["value"] if labels is None else ["labels"] if several else ["label", "probability"]
    head = ["row", "text", *answer, *(["unsure"] if marked else [])]
    if form == "csv":
        writer.writerow(map(inert, [*head, *(f"p({label})" for label in labels or []), "error"]))
    for row in rows:
        if form == "jsonl":
            sink.write(_json_line(row))
        else:
            numbers = row.get("probabilities", {})
            known = row | {"labels": BETWEEN.join(row.get("labels", ()))}
            known |= {"unsure": str(row["unsure"]).lower()} if "unsure" in row else {}
            cells = [*(known.get(name, "") for name in head), *(numbers.get(label, "") for label in labels or [])]
            writer.writerow(map(inert, [*cells, row.get("error", "")]))
        counts["bad" if "error" in row else "good"] += 1
        counts["unsure"] += row.get("unsure", False)
    return counts


def check_new(to: str) -> None:
    """Raise InputError unless `write_new` can write this file: an older one may hold what a person filled in."""
    if Path(to).suffix not in (".csv", ".jsonl"):
        raise InputError(f"{to} is not called .csv or .jsonl; name such a file to write")
    if Path(to).exists() or not Path(to).resolve().parent.is_dir():
        raise InputError(f"{to} exists, or its folder does not; name a new file in a folder that exists")


def write_new(to: str, rows: Sequence[dict[str, Any]], head: Sequence[str]) -> None:
    """Write rows with the fields `head` into a new file, CSV or JSON lines by its extension, as `write_rows` does."""
    with Path(to).open("x", encoding="utf-8", newline="") as sink:
        if to.endswith(".jsonl"):
            sink.writelines(map(_json_line, rows))
        else:
            csv.writer(sink, lineterminator="\n").writerows([head, *(map(inert, row.values()) for row in rows)])


def _json_line(row: dict[str, Any]) -> str:
    line = json.dumps(row, ensure_ascii=False, allow_nan=False)
    return BIDI_AND_CONTROLS.sub(lambda found: json.dumps(found[0])[1:-1], line) + "\n"


def inert(cell: Any) -> Any:
    """A CSV cell: text gets an apostrophe before what a spreadsheet would read as a formula; numbers stay as they are.

    Control and direction characters are spelled out.
    """
    return _FORMULA.sub("'", _UNSEEN.sub(spelled, cell)) if isinstance(cell, str) else cell


def _csv_rows(lines: Iterator[str], fields: list[str]) -> Iterator[InputRow]:
    csv.field_size_limit(LONGEST_CELL)
    reader = csv.reader(lines, strict=True)
    header = next(reader)
    for field in fields:
        if field not in header:
            raise InputError(f"the CSV has no column '{field}'{nearest(field, header)}")
    return _csv_body(reader, [header.index(field) for field in fields], len(header))


def _csv_body(reader: Any, places: list[int], width: int) -> Iterator[InputRow]:
    for number in count(1):
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield InputRow(number, error=f"not CSV: {error}")
            continue
        if len(cells) != width:
            yield InputRow(number, error=f"{len(cells)} cells; the header has {width}")
        else:
            yield checked(number, [cells[place] for place in places])


def _line_row(number: int, line: str, fields: list[str] | None) -> InputRow:
    if fields is None:
        return checked(number, [line.rstrip("\r\n")])
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return InputRow(number, error="not JSON")
    if not isinstance(record, dict):
        return InputRow(number, error=f"{with_article(type(record).__name__)}; expected an object")
    missing = [field for field in fields if field not in record]
    if missing:
        return InputRow(number, error=f"no field '{missing[0]}'")
    return checked(number, [record[field] for field in fields])


def is_utf8(text: str) -> bool:
    """Whether a text can be written as UTF-8: it has no lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def checked(number: int, values: Sequence[Any]) -> InputRow:
    """A row of these texts (one, or a pair), or what is wrong with them."""
    for value in values:
        if not isinstance(value, str):
            return InputRow(number, error=f"the text is {with_article(type(value).__name__)}; expected a string")
        if not value.strip():
            return InputRow(number, error="the text is empty")
        if not is_utf8(value):
            return InputRow(number, error="the text is not UTF-8")
    return InputRow(number, *values)
