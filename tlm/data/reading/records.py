"""Rows as the readers yield them, checked access to their values, and the rows that are set aside; lines of files.

Lines are plain, gzip (any number of members) or zstd (any number of frames). Memory is bounded whatever a file holds:
lines are limited to `LONGEST_LINE` and files are decompressed in small chunks.
"""

import gzip
import io
import re
import reprlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from unicodedata import category

import pyarrow as pa
import pyarrow.parquet as pq

from tlm.artifacts.produce import Draft
from tlm.data.reading import zstd
from tlm.data.reading.files import RawFile
from tlm.data.text import normalise
from tlm.errors import MOST_NAMED, InputError, UnknownField, did_you_mean
from tlm.settings.options import NOT_NEGATIVE, value_in

SHARE_REJECTED = 0.001  # of the rows may be rejected even if `max_rejected` is smaller
SHARE_HELD_OUT = 0.1  # of the rows of dev or test may be rejected
SHARE_HOPELESS = 0.1  # rejected among the first HOPELESS_ROWS rows: stop without reading the rest
HOPELESS_ROWS = 10_000
LONGEST_DETAIL = 200
REJECTED_FILE = "rejected.parquet"
LINES = "lines"  # a column that is there only if one of the rejected rows has several lines
REJECTED = pa.schema(
    [("file", "string"), ("line", "int64"), ("reason", "string"), ("detail", "string"), (LINES, "int64")]
)
_SEPARATORS = {  # found in the header of a table, and the advice
    ";": "';': rename it to .csv",
    "\t": "tabs: rename it to .tsv",
    ",": "',': rename it to .csv",
    "|": "'|': save it with commas as .csv",
}
_KINDS: dict[type, str] = {bool: "true/false", int: "a number", float: "a number", list: "a list", dict: "an object"}


class Record(NamedTuple):
    """A readable row: its line number (in parquet files its row number), from 1, and its values by field."""

    line: int
    values: Mapping[str, Any]


CONVERT = "convert it, as iconv -f CP1252 -t UTF-8 does for Western European text; CP1251: Cyrillic, GB18030: Chinese"


class Reject(NamedTuple):
    """An unreadable row: its line number (in parquet files its row number), from 1, a reason code and the details.

    A malformed record counts as all the lines that it takes, because each of them may have been a row.
    """

    line: int
    reason: str
    detail: str
    lines: int = 1
    file: str = ""  # base name; `Rejects` notes it

    @classmethod
    def not_utf8(cls, line: int, error: UnicodeDecodeError) -> "Reject":
        """A row that is not valid UTF-8."""
        found = f"byte 0x{error.object[error.start]:02x} at {error.start}"
        return cls(line, "invalid UTF-8", f"{found} ({CONVERT})")


class BadRow(Exception):
    """A value of a row cannot be used; the row is set aside. Its arguments are a reason code and the details."""


def text_of(values: Mapping[str, Any], field: str) -> str:
    """Return the normalised text in `field`, which may name several (`names_in`).

    Raises BadRow: missing, null, not a string, lone surrogate, empty.
    """
    value = value_in(values, field) if "," in field else value_of(values, field)
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
    return str(value) if type(value) is int else text_of(values, field)


def value_of(values: Mapping[str, Any], field: str) -> Any:
    """Return the value in `field`, of any type. Raises BadRow: missing field, null."""
    if field not in values:
        raise BadRow("missing field", f"no field '{field}'; there are {', '.join(values) or 'none'}")
    if values[field] is None:
        raise BadRow("null", f"field '{field}' is null")
    return values[field]


def checked_text(value: str, field: str) -> str:
    """Return `value`, normalised. Raises BadRow: lone surrogate, empty but for characters that nobody sees."""
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise BadRow("lone surrogate", f"field '{field}', character {error.start}") from None
    text = normalise(value)
    if all(category(letter) == "Cf" for letter in text):
        raise BadRow("empty", f"field '{field}' has no text")
    return text


def _unknown_field(where: str, field: str, names: Sequence[str]) -> UnknownField:
    """Return the error for a field that a file lacks; it lists the fields and suggests the most similar one."""
    separator = next((mark for mark in _SEPARATORS if len(names) == 1 and mark in names[0]), None)
    separated = f"; its columns seem to be separated by {_SEPARATORS[separator]}" if separator else ""
    outer, _, inner = field.partition(".")
    copy = f"jq -c '.{inner.rpartition('.')[2]} = .{field}'"
    nested = f"; a field within a field is not read: copy it up (in jsonl, {copy})" if inner and outer in names else ""
    shown = ", ".join(map(repr, names[:MOST_NAMED])) + " …" * (len(names) > MOST_NAMED)
    hint = separated or nested or did_you_mean(field, names)
    return UnknownField(f"{where} has no field '{field}'; it has {shown or 'none'}{hint}")


def check_columns(where: str, names: Sequence[str], fields: Sequence[str]) -> None:
    """Raise InputError if a table with columns of these names lacks one of `fields`, or has it twice."""
    for field in fields:
        if field not in names:
            raise _unknown_field(where, field, names)
        if names.count(field) > 1:
            raise InputError(f"{where} has {names.count(field)} columns named '{field}'; rename all but one")


class Rejects:
    """Counts the rows read and holds those set aside; more than max(`most` rows, 0.1 % of the rows) stop the step.

    A malformed record of several lines counts as so many rows, read and set aside.
    """

    def __init__(self, most: int) -> None:
        NOT_NEGATIVE.check("max_rejected", most)
        self.most = most
        self.read = 0
        self.read_by_file = Counter[str]()  # by `RawFile.where`
        self._rows: list[Reject] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, file: str, row: Reject) -> None:
        """Set a row of a file, given by its base name, aside.

        Raises InputError if so many of the first rows are bad that reading the rest is pointless.
        """
        printable = row.detail[:LONGEST_DETAIL].encode(errors="backslashreplace").decode()
        self._rows.append(row._replace(file=file, detail=normalise(printable)))
        self._count += row.lines
        if self.read >= HOPELESS_ROWS and len(self) > max(self.most, SHARE_HOPELESS * self.read):
            self.check()

    def check(self) -> None:
        """Raise InputError if too many of the rows read so far, or all of them, were set aside."""
        if len(self) == self.read > 0:
            raise _too_many(self._rows, self.read, "rows", "", "fix them")
        if len(self) > max(self.most, SHARE_REJECTED * self.read):
            limit = f", more than {self.most} and more than 0.1 %"
            advice = "fix them or raise max_rejected" if self.most else "fix them"
            raise _too_many(self._rows, self.read, "rows", limit, advice)

    def check_held_out(self, split: str, files: Sequence[RawFile]) -> None:
        """Raise InputError if dev or test lost more than a tenth of its rows, whatever `most` is."""
        names = {file.name for file in files}
        lost = [row for row in self._rows if row.file in names]
        read = sum(self.read_by_file[file.where] for file in files)
        if _total(lost) > SHARE_HELD_OUT * read:
            raise _too_many(lost, read, f"{split} rows", ", more than a tenth", "fix them or remove them from the file")

    def table(self) -> pa.Table:
        """Return the rows set aside: file, line, reason, detail, and lines if one of them has several."""
        table = pa.Table.from_pylist([row._asdict() for row in self._rows], schema=REJECTED)
        return table if self._count > len(table) else table.drop_columns(LINES)

    def take(self, rows: pa.Table, read_by_file: Mapping[str, int]) -> None:
        """Add what another part of the work has read and set aside, as its `table` and counts say."""
        taken = [Reject(**row) for row in rows.to_pylist()]
        self._rows += taken
        self._count += _total(taken)
        self.read += sum(read_by_file.values())
        self.read_by_file.update(read_by_file)

    def write(self, draft: Draft) -> None:
        """Add the rows set aside to an artifact as rejected.parquet, and their counts."""
        pq.write_table(self.table(), draft.folder / REJECTED_FILE, compression="zstd")
        draft.rows[REJECTED_FILE] = len(self._rows)
        draft.counts["rejected"] = _by_reason(self._rows)


def _total(rows: Sequence[Reject]) -> int:
    return sum(row.lines for row in rows)


def _by_reason(rows: Sequence[Reject]) -> dict[str, int]:
    """Return how many rows were set aside for each reason, the most frequent first."""
    counts = Counter[str]()
    for row in rows:
        counts[row.reason] += row.lines
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _too_many(rows: Sequence[Reject], read: int, what: str, limit: str, advice: str) -> InputError:
    reasons = ", ".join(f"{count} {reason}" for reason, count in _by_reason(rows).items())
    first = rows[0]
    return InputError(
        f"{_total(rows)} of {read} {what} cannot be used ({reasons}){limit}, "
        f"the first at {first.file}:{first.line}: {first.reason}, {first.detail}; {advice}"
    )


LONGEST_LINE = 64 << 20  # bytes; a file with longer lines does not hold one record per line
BOMB_BYTES = 256 << 20  # below this size, or ...
BOMB_RATIO = 250  # ... this compression ratio, a file is no decompression bomb; text is compressed 3 to 10 times
_BUFFER = 1 << 17
_ZSTD = {zstd.DecompressionParameter.window_log_max: 31}  # large text collections are compressed with `zstd --long=31`
_BOM = b"\xef\xbb\xbf"
_OTHER_KINDS = {
    "UTF-16 or UTF-32 text": rb"\xff\xfe|\xfe\xff|\0\0\xfe\xff",
    "gzip data": rb"\x1f\x8b",
    "zstd data": rb"\x28\xb5\x2f\xfd",
    "bzip2 data": rb"BZh[1-9]1AY&SY",
    "xz data": rb"\xfd7zXZ\0",
    "a zip archive or a spreadsheet": rb"PK\x03\x04",
    "parquet": rb"PAR1\x15",
}


def lines(file: RawFile) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file, or of a piece, with their line ends but without a byte order mark.

    They are numbered as in the whole file, from 1.

    Raises:
        InputError: the first bytes are not UTF-8 text, a line exceeds LONGEST_LINE, or a decompression bomb.
        EOFError: the compressed data end too early.
    """
    with io.FileIO(file.path) as raw:
        stream: io.BufferedReader[Any] = io.BufferedReader(raw, _BUFFER)
        if file.compression == "gz":
            stream = io.BufferedReader(gzip.GzipFile(fileobj=stream), _BUFFER)  # type: ignore[arg-type]
        elif file.compression == "zst":
            stream = io.BufferedReader(zstd.ZstdFile(stream, options=_ZSTD), _BUFFER)  # type: ignore[arg-type]
        start, end, before = (file.piece.start, file.piece.stop, file.piece.row) if file.piece else (0, None, 0)
        if start == 0:
            _check_kind(stream.peek(_BUFFER), file.where)
        else:
            stream.seek(start)
        size = 0
        for number, line in enumerate(iter(lambda: stream.readline(LONGEST_LINE), b""), start=before + 1):
            size += len(line)
            file.bytes_read = raw.tell() - start
            if len(line) == LONGEST_LINE:
                raise too_long(file.where, number)
            check_growth(size, file.bytes_read, file.where)
            yield number, line.removeprefix(_BOM) if number == 1 else line
            if start + size == end:
                return


def too_long(where: str, line: int) -> InputError:
    """Return the error for a line of `LONGEST_LINE` bytes or more."""
    return InputError(f"{where}:{line}: the line is longer than {LONGEST_LINE >> 20} MiB; expected one record per line")


def check_growth(size: int, packed: int, where: str) -> None:
    """Raise InputError if `packed` bytes of a file expand to so many bytes (`size`) that it is a decompression bomb."""
    if size > BOMB_BYTES and size > BOMB_RATIO * packed:
        raise InputError(
            f"{where} expands to more than {BOMB_RATIO} times its size, so it looks like a decompression bomb, not "
            "text; inspect it and provide it uncompressed"
        )


def _check_kind(head: bytes, where: str) -> None:
    found = next((kind for kind, magic in _OTHER_KINDS.items() if re.match(magic, head)), None)
    if found is None and head.count(0) > len(head) // 4:
        found = "UTF-16 text or binary data (many of its bytes are 0)"
    if found is not None:
        raise InputError(f"{where} is {found}, despite its extension; convert it to UTF-8 text or fix the extension")
    if b"\r" in head and b"\n" not in head:
        raise InputError(
            f"{where}: lines end with \\r only (classic Mac OS); convert the line ends to \\n (tr '\\r' '\\n')"
        )
