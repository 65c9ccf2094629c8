"""Documentation of web services, as the Python clients of Amazon (botocore) and Google contain it.

botocore has one JSON model of each service (``service-2.json``, often gzipped) per API version, in which operations,
shapes and their members have documentation strings in HTML; shapes marked as exceptions are the errors of the service.
Google's client has one discovery document per version, in which methods, schemas and properties have descriptions.
"""

import gzip
import html
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from zipfile import ZipFile

INLINE = re.compile(r"</?(?:a|b|code|em|i|strong|sub|sup)\b[^>]*>", re.IGNORECASE)
MARKUP = re.compile(r"<!--.*?-->|<[^>]*>", re.DOTALL)
MODEL = re.compile(r"botocore/data/([^/]+)/[^/]+/service-2\.json(?:\.gz)?")
DISCOVERED = re.compile(r"googleapiclient/discovery_cache/documents/(\w+)\.[^/]+\.json")


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


def newest(wheel: ZipFile, pattern: re.Pattern[str]) -> dict[str, str]:
    """The file of the newest version of each service that a package has, by name: `MODEL` or `DISCOVERED`."""
    found = {match[1]: match[0] for file in sorted(wheel.namelist()) if (match := pattern.fullmatch(file))}
    return dict(sorted(found.items()))


def read_service(wheel: ZipFile, name: str, file: str) -> Service:
    """Read one of Amazon's models. Its texts are plain, on one line, without duplicates, in the order of the file."""
    model = _json(wheel, file)
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
    return Service(name, _texts(model, "documentation"), errors, operations)


def descriptions(wheel: ZipFile, file: str) -> list[str]:
    """The texts of one of Google's documents, in the same form."""
    return _texts(_json(wheel, file), "description")


def plain(text: str) -> str:
    """Convert HTML to plain text on one line: inline tags are removed, other tags separate words."""
    return " ".join(html.unescape(MARKUP.sub(" ", INLINE.sub("", text))).split())


def _json(wheel: ZipFile, file: str) -> Any:
    raw = wheel.read(file)
    return json.loads(gzip.decompress(raw) if file.endswith(".gz") else raw)


def _texts(model: Any, key: str) -> list[str]:
    return [text for text in dict.fromkeys(map(plain, _values(model, key))) if text]


def _values(node: Any, key: str) -> Iterator[str]:
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for name, value in items:
        if name == key and isinstance(value, str):
            yield value
        else:
            yield from _values(value, key)
