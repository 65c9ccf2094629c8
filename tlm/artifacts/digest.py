"""Digests of files and of plain values."""

import hashlib
import json
from pathlib import Path
from typing import Any

SIGNATURE = "sha256"


def file_sha256(path: Path) -> str:
    """Return the sha256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def value_sha256(value: Any) -> str:
    """Return the sha256, in hex, of a plain value (dict, list, str, number, None) in canonical JSON."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def signed_json(facts: dict[str, Any]) -> bytes:
    """Return `facts` as a line of canonical JSON, with their digest under ``sha256``."""
    return canonical_json({**facts, SIGNATURE: value_sha256(facts)}) + b"\n"


def canonical_json(value: Any) -> bytes:
    """Return `value` as JSON with sorted keys, no spaces and no NaN, so that equal values have equal bytes."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
