"""Files of all kinds, for the cases."""

import csv
import gzip
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tlm.data.reading import zstd

Row = tuple[Any, ...]


def lines(*texts: Any) -> str:
    """JSON lines with these texts."""
    return "".join(json.dumps({"text": text}) + "\n" for text in texts)


def objects(*rows: dict[str, Any]) -> str:
    """JSON lines of these rows."""
    return "".join(json.dumps(row) + "\n" for row in rows)


def table(*rows: Row) -> str:
    """A CSV file."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


TEST: Sequence[Row] = (("tall tree", "a"), ("wide lake", "b"))


def task(
    train: Sequence[Row], dev: Sequence[Row] = (("blue sky", "a"),), test: Sequence[Row] = TEST, folder: str = "task"
) -> dict[str, str]:
    """A task's three files of (text, label, id)."""
    return {
        f"{folder}/{split}.jsonl": objects(*(dict(zip(("text", "label", "id"), row, strict=False)) for row in rows))
        for split, rows in (("train", train), ("dev", dev), ("test", test))
    }


def parquet(columns: dict[str, Any], **options: Any) -> bytes:
    """A parquet file of these columns."""
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink, **options)
    return sink.getvalue()


def squeezed(parts: Sequence[tuple[bytes, int]], ending: str) -> Callable[[Path], None]:
    """Writes a .gz or .zst file of (bytes, times) without ever having it whole."""

    def write(path: Path) -> None:
        with path.open("wb") as file:
            packer = (
                gzip.GzipFile(fileobj=file, mode="wb", compresslevel=6)
                if ending == "gz"
                else zstd.ZstdFile(file, "w", level=1)
            )
            with packer:
                for data, times in parts:
                    for _ in range(times):
                        packer.write(data)

    return write
