"""Documentation of Amazon's web services, as the installed botocore contains it.

Each service has one JSON model (``service-2.json``, often gzipped) per API version, in which operations, shapes and
their members have documentation strings in HTML; shapes marked as exceptions are the errors of the service.
"""

import gzip
import html
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from tlm.errors import InputError

INLINE = re.compile(r"</?(?:a|b|code|em|i|strong|sub|sup)\b[^>]*>", re.IGNORECASE)
MARKUP = re.compile(r"<!--.*?-->|<[^>]*>", re.DOTALL)


@dataclass(frozen=True)
class ApiError:
    """An exception shape of a service."""

    name: str
    text: str  # its documentation
    status: int | None = None  # of the HTTP response
    fault: bool = False  # of the server, not the client


@dataclass(frozen=True)
class Service:
    """A service in its newest API version."""

    name: str
    texts: list[str] = field(default_factory=list)  # all documentation strings, including those of errors
    errors: list[ApiError] = field(default_factory=list)
    operations: dict[str, str] = field(default_factory=dict)  # documentation by name


def model_files(folder: Path | None = None) -> list[Path]:
    """List the model of the newest API version of each service in `folder` (default: botocore's data), by name.

    Raises InputError: there is no model.
    """
    folder = folder or Path(str(files("botocore"))) / "data"
    newest = {path.parents[1].name: path for path in sorted(folder.glob("*/*/service-2.json*"))}
    if not newest:
        raise InputError(f"{folder} has no service models (<service>/<version>/service-2.json.gz); reinstall botocore")
    return [newest[name] for name in sorted(newest)]


def read_service(path: Path) -> Service:
    """Read one model. Its texts are plain, on one line, without duplicates, in the order of the file."""
    raw = path.read_bytes()
    model = json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw)
    texts = dict.fromkeys(plain(text) for text in _documentation(model))
    errors = [
        ApiError(
            name,
            plain(shape.get("documentation", "")),
            shape.get("error", {}).get("httpStatusCode"),
            bool(shape.get("fault")),
        )
        for name, shape in model.get("shapes", {}).items()
        if shape.get("exception") or "error" in shape
    ]
    operations = {name: plain(one.get("documentation", "")) for name, one in model.get("operations", {}).items()}
    return Service(path.parents[1].name, [text for text in texts if text], errors, operations)


def plain(text: str) -> str:
    """Convert HTML to plain text on one line: inline tags are removed, other tags separate words."""
    return " ".join(html.unescape(MARKUP.sub(" ", INLINE.sub("", text))).split())


def _documentation(node: Any) -> Iterator[str]:
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        if key == "documentation" and isinstance(value, str):
            yield value
        else:
            yield from _documentation(value)
