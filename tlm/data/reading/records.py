"""Rows as the readers yield them, checked access to their values, and the rows that are set aside."""

import difflib
import reprlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from tlm.artifacts.produce import Draft
from tlm.data.reading.files import RawFile
from tlm.data.text import normalise
from tlm.errors import InputError, refuse_negative

SHARE_REJECTED = 0.001  # of the rows may be rejected even if `max_rejected` is smaller
SHARE_HELD_OUT = 0.1  # of the rows of dev or test may be rejected
SHARE_HOPELESS = 0.1  # rejected among the first HOPELESS_ROWS rows: stop without reading the rest
HOPELESS_ROWS = 10_000
LONGEST_DETAIL = 200
LONGEST_CACHED = 200  # characters of an id or a source
REJECTED_FILE = "rejected.parquet"
LINES = "lines"  # a column that is there only if one of the rejected rows has several lines
REJECTED = pa.schema(
    [("file", "string"), ("line", "int64"), ("reason", "string"), ("detail", "string"), (LINES, "int64")]
)
_SEPARATORS = {  # found in the header of a table, and the advice
    ";": "';' instead of commas (.csv) or tabs (.tsv): export it with one of those",
    "\t": "tabs: rename it to .tsv",
    ",": "',': rename it to .csv",
}
_KINDS: dict[type, str] = {bool: "true/false", int: "a number", float: "a number", list: "a list", dict: "an object"}


class Record(NamedTuple):
    """A readable row: its line number (in parquet files its row number), from 1, and its values by field."""

    line: int
    values: Mapping[str, Any]


class Reject(NamedTuple):
    """An unreadable row: its line number (in parquet files its row number), from 1, a reason code and the details.

    A malformed record counts as all the lines that it takes, because each of them may have been a row.
    """

    line: int
    reason: str
    detail: str
    lines: int = 1


_Rejected = tuple[str, Reject]  # with the base name of its file


class BadRow(Exception):
    """A value of a row cannot be used; the row is set aside. Its arguments are a reason code and the details."""


def text_of(values: Mapping[str, Any], field: str) -> str:
    """Return the normalised text in `field`. Raises BadRow: missing, null, not a string, lone surrogate, empty."""
    value = value_of(values, field)
    if not isinstance(value, str):
        kind = _KINDS.get(type(value), f"of type {type(value).__name__}")
        raise BadRow("not a string", f"field '{field}' is {kind}: {reprlib.repr(value)}")
    return checked_text(value, field)


def name_of(values: Mapping[str, Any], field: str, default: str = "") -> str:
    """Return the id or source in `field`, a string or an integer; `default` if no field is given.

    Raises BadRow as `text_of` does.
    """
    if not field:
        return default
    value = value_of(values, field)
    if type(value) is int:
        return str(value)
    short = isinstance(value, str) and len(value) < LONGEST_CACHED
    return _checked_name(value, field) if short else text_of(values, field)


def value_of(values: Mapping[str, Any], field: str) -> Any:
    """Return the value in `field`, of any type. Raises BadRow: missing field, null."""
    if field not in values:
        raise BadRow("missing field", f"no field '{field}'; there are {', '.join(values) or 'none'}")
    if values[field] is None:
        raise BadRow("null", f"field '{field}' is null")
    return values[field]


def checked_text(value: str, field: str) -> str:
    """Return `value`, normalised. Raises BadRow: lone surrogate, empty."""
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise BadRow("lone surrogate", f"field '{field}', character {error.start}") from None
    text = normalise(value)
    if not text:
        raise BadRow("empty", f"field '{field}' has no text")
    return text


_checked_name = lru_cache(maxsize=4096)(checked_text)  # few different sources


def unknown_field(where: str, field: str, known: Iterable[str]) -> InputError:
    """Return the error for a field that a file lacks; it lists the fields and suggests the most similar one."""
    names = list(known)
    separator = next((mark for mark in _SEPARATORS if len(names) == 1 and mark in names[0]), None)
    close = difflib.get_close_matches(field, names, n=1)
    if separator:
        hint = f"; its columns seem to be separated by {_SEPARATORS[separator]}"
    else:
        hint = f"; did you mean '{close[0]}'?" if close else ""
    return InputError(f"{where} has no field '{field}'; it has {', '.join(map(repr, names)) or 'none'}{hint}")


def check_columns(where: str, names: Sequence[str], fields: Sequence[str]) -> None:
    """Raise InputError if a table with columns of these names lacks one of `fields`, or has it twice."""
    for field in fields:
        if field not in names:
            raise unknown_field(where, field, names)
        if names.count(field) > 1:
            raise InputError(f"{where} has {names.count(field)} columns named '{field}'; rename all but one")


def not_utf8(line: int, error: UnicodeDecodeError) -> Reject:
    """Return the reject for a row that is not valid UTF-8."""
    return Reject(line, "invalid UTF-8", f"byte 0x{error.object[error.start]:02x} at {error.start}")


class Rejects:
    """Counts the rows read and holds those set aside; more than max(`most` rows, 0.1 % of the rows) stop the step.

    A malformed record of several lines counts as so many rows, read and set aside.
    """

    def __init__(self, most: int) -> None:
        refuse_negative(max_rejected=most)
        self.most = most
        self.read = 0
        self.read_by_file = Counter[str]()  # by `RawFile.where`
        self._rows: list[_Rejected] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, file: str, row: Reject) -> None:
        """Set a row of a file, given by its base name, aside.

        Raises InputError if so many of the first rows are bad that reading the rest is pointless.
        """
        printable = row.detail[:LONGEST_DETAIL].encode(errors="backslashreplace").decode()
        self._rows.append((file, row._replace(detail=normalise(printable))))
        self._count += row.lines
        if self.read >= HOPELESS_ROWS and len(self) > max(self.most, SHARE_HOPELESS * self.read):
            self.check()

    def check(self) -> None:
        """Raise InputError if too many of the rows read so far, or all of them, were set aside."""
        if len(self) == self.read > 0:
            raise _too_many(self._rows, self.read, "rows", "", "fix them")
        if len(self) > max(self.most, SHARE_REJECTED * self.read):
            limit = f", more than {self.most} and more than 0.1 %"
            raise _too_many(self._rows, self.read, "rows", limit, "fix them or raise max_rejected")

    def check_held_out(self, split: str, files: Sequence[RawFile]) -> None:
        """Raise InputError if dev or test lost more than a tenth of its rows, whatever `most` is."""
        names = {file.name for file in files}
        lost = [row for row in self._rows if row[0] in names]
        read = sum(self.read_by_file[file.where] for file in files)
        if _total(lost) > SHARE_HELD_OUT * read:
            raise _too_many(lost, read, f"{split} rows", ", more than a tenth", "fix them or remove them from the file")

    def table(self) -> pa.Table:
        """Return the rows set aside: file, line, reason, detail, and lines if one of them has several."""
        columns = zip(*((file, *row) for file, row in self._rows), strict=True)
        table = pa.table(list(columns) or [()] * len(REJECTED), schema=REJECTED)
        return table if self._count > len(table) else table.drop_columns(LINES)

    def take(self, rows: pa.Table, read: int, read_by_file: Mapping[str, int]) -> None:
        """Add what another part of the work has read and set aside, as its `table` and counts say."""
        taken = [(row.pop("file"), Reject(**row)) for row in rows.to_pylist()]
        self._rows += taken
        self._count += _total(taken)
        self.read += read
        self.read_by_file.update(read_by_file)

    def write(self, draft: Draft) -> None:
        """Add the rows set aside to an artifact as rejected.parquet, and their counts."""
        pq.write_table(self.table(), draft.folder / REJECTED_FILE, compression="zstd")
        draft.rows[REJECTED_FILE] = len(self._rows)
        draft.counts["rejected"] = _by_reason(self._rows)


def _total(rows: Sequence[_Rejected]) -> int:
    return sum(row.lines for _, row in rows)


def _by_reason(rows: Sequence[_Rejected]) -> dict[str, int]:
    """Return how many rows were set aside for each reason, the most frequent first."""
    counts = Counter[str]()
    for _, row in rows:
        counts[row.reason] += row.lines
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _too_many(rows: Sequence[_Rejected], read: int, what: str, limit: str, advice: str) -> InputError:
    reasons = ", ".join(f"{count} {reason}" for reason, count in _by_reason(rows).items())
    file, first = rows[0]
    return InputError(
        f"{_total(rows)} of {read} {what} cannot be used ({reasons}){limit}, "
        f"the first at {file}:{first.line}: {first.reason}, {first.detail}; {advice}"
    )
