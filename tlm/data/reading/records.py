"""Rows as readers give them, values taken out of them with care, and the rows that had to be set aside."""

import difflib
import reprlib
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from tlm.data.text import normalise
from tlm.errors import InputError

SHARE_REJECTED = 0.001  # rows that may be bad even where `max_rejected` is smaller
SHARE_HELD_OUT = 0.1  # rows of dev or test that may be bad
SHARE_HOPELESS = 0.1  # so many of the first HOPELESS_ROWS rows: no need to read on
HOPELESS_ROWS = 10_000
LONGEST_DETAIL = 200
LONGEST_CACHED = 200  # characters of an id or a source
_SEPARATORS = {  # and what to do with a table that has them
    ";": "';', expected were commas (.csv) or tabs (.tsv): export it with those",
    "\t": "tabs: rename it to .tsv",
    ",": "',': rename it to .csv",
}


class Row(NamedTuple):
    """A row that could be read: its line (parquet: row) number, from 1, and its values by field."""

    line: int
    values: Mapping[str, Any]


class Reject(NamedTuple):
    """A row that could not: its line (parquet: row) number, a reason code, and what was found."""

    line: int
    reason: str
    detail: str


class BadRow(Exception):
    """A row whose value cannot be used; the reader of the row turns it into a reject."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason, self.detail = reason, detail


def text_of(values: Mapping[str, Any], field: str) -> str:
    """The text in `field`, normalised. Raises BadRow: missing field, null, not a string, lone surrogate, empty."""
    value = value_of(values, field)
    if not isinstance(value, str):
        raise BadRow("not a string", f"field '{field}' is {_kind(value)}: {reprlib.repr(value)}")
    return checked_text(value, field)


def name_of(values: Mapping[str, Any], field: str) -> str:
    """The id or source in `field`, a string or whole number. Raises BadRow as `text_of`."""
    value = value_of(values, field)
    if type(value) is int:
        return str(value)
    short = isinstance(value, str) and len(value) < LONGEST_CACHED
    return _checked_name(value, field) if short else text_of(values, field)


def value_of(values: Mapping[str, Any], field: str) -> Any:
    """The value in `field`, of any type. Raises BadRow: missing field, null."""
    value = values.get(field)
    if value is not None:
        return value
    if field in values:
        raise BadRow("null", f"field '{field}' is null")
    raise BadRow("missing field", f"no field '{field}'; there are {', '.join(values) or 'none'}")


def checked_text(value: str, field: str) -> str:
    """`value`, normalised. Raises BadRow: lone surrogate, empty."""
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise BadRow("lone surrogate", f"field '{field}', character {error.start}") from None
    text = normalise(value)
    if not text:
        raise BadRow("empty", f"field '{field}' has no text")
    return text


_checked_name = lru_cache(maxsize=4096)(checked_text)  # sources repeat


def unknown_field(where: str, field: str, known: Iterable[str]) -> InputError:
    """The error for a field that a file does not have: names those there are, and the nearest."""
    names = list(known)
    close = difflib.get_close_matches(field, names, n=1)
    hint = _other_separator(names) or (f"; did you mean '{close[0]}'?" if close else "")
    return InputError(f"{where} has no field '{field}'; it has {', '.join(map(repr, names)) or 'none'}{hint}")


def _other_separator(names: Sequence[str]) -> str:
    """A hint for a table whose columns are separated by something else than its name says, so that it has only one."""
    found = next((separator for separator in _SEPARATORS if len(names) == 1 and separator in names[0]), None)
    return f"; its columns seem to be separated by {_SEPARATORS[found]}" if found else ""


def check_columns(where: str, names: Sequence[str], fields: Sequence[str]) -> None:
    """Raise InputError if a table with columns of these names lacks one of `fields`, or has it twice."""
    for field in fields:
        if field not in names:
            raise unknown_field(where, field, names)
        if names.count(field) > 1:
            raise InputError(
                f"{where} has {names.count(field)} columns named '{field}'; expected one, rename the others"
            )


def not_utf8(line: int, error: UnicodeDecodeError) -> Reject:
    """The reject for a row with bytes that are no UTF-8."""
    return Reject(line, "invalid UTF-8", f"byte 0x{error.object[error.start]:02x} at {error.start}")


_Place = tuple[str, int, str, str]  # base name of the file, line, reason, detail


class Rejects:
    """The rows set aside, and the limit above which a step stops: max(`most` rows, 0.1 % of the rows read)."""

    def __init__(self, most: int) -> None:
        if most < 0:
            raise InputError(f"max_rejected is {most}; expected 0 or more rows")
        self.most = most
        self._rows: list[_Place] = []

    def add(self, file: str, line: int, reason: str, detail: str) -> None:
        """Set a row aside: base name of its file, line number, reason code, what was found."""
        printable = detail[:LONGEST_DETAIL].encode(errors="backslashreplace").decode()
        self._rows.append((file, line, reason, normalise(printable)))

    def check(self, read: int) -> None:
        """Raise InputError if too many of the `read` rows, or all of them, were set aside."""
        if len(self._rows) == read > 0:
            raise _too_many(self._rows, read, "rows", "", "mend them")
        if len(self._rows) > max(self.most, SHARE_REJECTED * read):
            limit = f", more than {self.most} and than 0.1 %"
            raise _too_many(self._rows, read, "rows", limit, "mend them or raise max_rejected")

    def check_held_out(self, split: str, files: Container[str], read: int) -> None:
        """Raise InputError if dev or test lost more than a tenth of its rows, whatever `most` is: it is another split.

        `files` are the base names of its files, `read` their rows.
        """
        lost = [row for row in self._rows if row[0] in files]
        if len(lost) > SHARE_HELD_OUT * read:
            advice = "mend them, or take them out of the file"
            raise _too_many(lost, read, f"{split} rows", ", more than a tenth", advice)

    def check_hopeless(self, read: int) -> None:
        """The same, half-way: raises only where the rows read so far are so bad that the rest cannot make up for it."""
        if read >= HOPELESS_ROWS and len(self._rows) > max(self.most, SHARE_HOPELESS * read):
            self.check(read)

    def by_reason(self) -> dict[str, int]:
        """How many rows were set aside for each reason, the most frequent first."""
        return _by_reason(self._rows)

    def write(self, path: Path) -> int:
        """Write them as parquet (file, line, reason, detail); the number of rows."""
        names = ["file", "line", "reason", "detail"]
        types = [pa.string(), pa.int64(), pa.string(), pa.string()]
        columns = zip(*self._rows, strict=True) if self._rows else [()] * len(names)
        arrays = [pa.array(column, type_) for column, type_ in zip(columns, types, strict=True)]
        pq.write_table(pa.table(arrays, names=names), path, compression="zstd")
        return len(self._rows)


def _by_reason(rows: Sequence[_Place]) -> dict[str, int]:
    counts = Counter(reason for _, _, reason, _ in rows)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _too_many(rows: Sequence[_Place], read: int, what: str, limit: str, advice: str) -> InputError:
    reasons = ", ".join(f"{count} {reason}" for reason, count in _by_reason(rows).items())
    file, line, reason, detail = rows[0]
    return InputError(
        f"{len(rows)} of {read} {what} cannot be used ({reasons}){limit}, "
        f"the first at {file}:{line}: {reason}, {detail}; {advice}"
    )


def _kind(value: Any) -> str:
    return {bool: "true/false", int: "a number", float: "a number", list: "a list", dict: "an object"}.get(
        type(value), f"of type {type(value).__name__}"
    )
