"""Rows of parquet files, a few at a time."""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tlm.data.reading.files import RawFile
from tlm.data.reading.records import Reject, Row, check_columns, not_utf8
from tlm.data.reading.streams import LONGEST_LINE, check_growth
from tlm.errors import InputError

_BATCH_ROWS = 32
_BATCH_BYTES = 1 << 27  # limit for a batch if a column expands suspiciously:
_SUSPICIOUS = 10  # times its compressed size; text expands about 3 times


def rows(file: RawFile, fields: Sequence[str]) -> Iterator[Row | Reject]:
    """Yield the rows in order, with the columns `fields`, and those of `file.extra` that the file has.

    The rows of a piece are numbered as in the whole file.

    Raises InputError: no such column, a value above 64 MiB, a decompression bomb; pa.ArrowException: a damaged file.
    """
    size, first = 0, file.piece.row if file.piece else 0
    number = first
    with pq.ParquetFile(file.path) as table:
        names = table.schema_arrow.names
        wanted, packed = list(dict.fromkeys([*fields, *(name for name in file.extra if name in names)])), file.size
        check_columns(file.where, names, wanted)
        groups = range(table.num_row_groups) if file.piece is None else range(file.piece.start, file.piece.stop)
        rows = sum(table.metadata.row_group(group).num_rows for group in groups)
        together = _batch_rows(table.metadata, wanted, file.where)
        for batch in table.iter_batches(together, list(groups), columns=wanted):
            for row in _rows(batch):
                number += 1
                size += _length(row, f"{file.where}:{number}")
                check_growth(size, packed, file.where)
                yield row._replace(line=number)
            file.bytes_read = packed * (number - first) // rows


def _batch_rows(metadata: pq.FileMetaData, fields: Sequence[str], where: str) -> int:
    """Return a batch size that fits in memory even if the longest possible string is in every row.

    Dictionary encoding can repeat one huge value in all rows without making the file larger.
    """
    most = _BATCH_ROWS
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            size, packed = column.total_uncompressed_size, column.total_compressed_size
            if any(f"{column.path_in_schema}.".startswith(f"{name}.") for name in fields):
                check_growth(size, packed, where)
                most = min(most, max(1, _BATCH_BYTES // size)) if size > _SUSPICIOUS * packed else most
    return most


def _rows(batch: pa.RecordBatch) -> Iterator[Row | Reject]:
    try:
        yield from [Row(0, values) for values in _values(batch)]
    except (ValueError, OverflowError, pa.ArrowException):  # in some row of the batch: convert them one by one
        for index in range(batch.num_rows):
            try:
                yield Row(0, _values(batch.slice(index, 1))[0])
            except UnicodeDecodeError as error:
                yield not_utf8(0, error)
            except (ValueError, OverflowError, pa.ArrowException) as error:  # such as a date that Python lacks
                yield Reject(0, "unreadable value", str(error))


def _values(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Convert to Python types; nanoseconds, which `datetime` lacks, would become pandas types where it is installed."""
    fields = [field.with_type(_microseconds(field.type)) for field in batch.schema]
    return batch.cast(pa.schema(fields)).to_pylist()  # type: ignore[no-any-return]


def _microseconds(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz) if kind.unit == "ns" else kind
    return pa.duration("us") if pa.types.is_duration(kind) and kind.unit == "ns" else kind


def _length(row: Row | Reject, where: str) -> int:
    lengths = [len(value) for value in row.values.values() if isinstance(value, str)] if isinstance(row, Row) else []
    if max(lengths, default=0) > LONGEST_LINE:
        raise InputError(f"{where}: a value is longer than {LONGEST_LINE >> 20} MiB; expected one record per row")
    return sum(lengths)
