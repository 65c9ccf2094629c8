"""Digests of files and of plain values."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

SIGNATURE = "sha256"
CHUNK = 1 << 20

Ranges: TypeAlias = tuple[tuple[int, int], ...]  # bytes of a file: the first of each range, and the one after its last


def file_sha256(path: Path, ranges: Ranges | None = None) -> str:
    """Return the sha256 of a file, or of some of its bytes, in hex."""
    if ranges is None:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    digest = hashlib.sha256()
    for chunk in chunks(path, ranges):
        digest.update(chunk)
    return digest.hexdigest()


def chunks(path: Path, ranges: Ranges) -> Iterator[bytes]:
    """Read some bytes of a file, a MiB at a time."""
    with path.open("rb") as file:
        for start, stop in ranges:
            file.seek(start)
            while start < stop and (chunk := file.read(min(CHUNK, stop - start))):
                start += len(chunk)
                yield chunk


def value_sha256(value: Any) -> str:
    """Return the sha256, in hex, of a plain value (dict, list, str, number, None) in canonical JSON."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def signed_json(facts: dict[str, Any]) -> bytes:
    """Return `facts` as a line of canonical JSON, with their digest under ``sha256``."""
    return canonical_json({**facts, SIGNATURE: value_sha256(facts)}) + b"\n"


def canonical_json(value: Any) -> bytes:
    """Return `value` as JSON with sorted keys, no spaces and no NaN, so that equal values have equal bytes."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
