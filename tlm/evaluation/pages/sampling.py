"""Read a few rows of large sharded tables: only the shards and row groups that hold them."""

from collections.abc import Iterable
from typing import Any

import pyarrow.parquet as pq

from tlm.artifacts.artifact import Artifact


def evenly(total: int, wanted: int) -> list[int]:
    """At most `wanted` ordinals below `total`, evenly spaced."""
    count = min(total, wanted)
    return [(2 * index + 1) * total // (2 * count) for index in range(count)]


def rows_at(artifact: Artifact, pattern: str, ordinals: Iterable[int]) -> dict[int, dict[str, Any]]:
    """Read rows of a sharded table (files that match `pattern`, in order) by ordinal; others are left out."""
    wanted, start = sorted(set(ordinals)), 0
    found: dict[int, dict[str, Any]] = {}
    for entry in artifact.entries(pattern):
        stop = start + (entry.rows if entry.rows is not None else pq.read_metadata(artifact.verified(entry)).num_rows)
        inside = [ordinal for ordinal in wanted if start <= ordinal < stop]
        if inside:
            found.update(_from_file(pq.ParquetFile(artifact.verified(entry)), start, inside))
        start = stop
    return found


def _from_file(file: pq.ParquetFile, start: int, wanted: list[int]) -> dict[int, dict[str, Any]]:
    found: dict[int, dict[str, Any]] = {}
    for group in range(file.num_row_groups):
        stop = start + file.metadata.row_group(group).num_rows
        inside = [ordinal for ordinal in wanted if start <= ordinal < stop]
        if inside:
            rows = file.read_row_group(group).take([ordinal - start for ordinal in inside]).to_pylist()
            found.update(zip(inside, rows, strict=True))
        start = stop
    return found
