"""Documentation of Amazon's web services, as the installed botocore carries it.

Each service is one JSON model (``service-2.json``, often gzipped) per API version, in which operations, shapes and
their members have documentation strings in HTML; shapes that are marked as exceptions are the service's errors.
"""

import gzip
import html
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tlm.errors import InputError

INLINE = re.compile(r"</?(?:a|b|code|em|i|strong|sub|sup)\b[^>]*>", re.IGNORECASE)
MARKUP = re.compile(r"<!--.*?-->|<[^>]*>", re.DOTALL)


@dataclass(frozen=True)
class ApiError:
    """An exception shape: its name, its documentation, and what the model says of its HTTP answer."""

    name: str
    text: str
    status: int | None = None
    fault: bool = False


@dataclass(frozen=True)
class Service:
    """A service in its newest API version: all its documentation strings, and its errors (again, with names)."""

    name: str
    texts: list[str] = field(default_factory=list)
    errors: list[ApiError] = field(default_factory=list)


def model_files(folder: Path | None = None) -> list[Path]:
    """The model of the newest API version of every service under `folder` (botocore's data), by service name.

    Raises:
        InputError: there is no model.
    """
    folder = folder or _installed_data()
    newest = {path.parents[1].name: path for path in sorted(folder.glob("*/*/service-2.json*"))}
    if not newest:
        raise InputError(f"{folder} holds no service models (<service>/<version>/service-2.json.gz); install botocore")
    return [newest[name] for name in sorted(newest)]


def read_service(path: Path) -> Service:
    """Read one model. Texts are plain, on one line, each once, in the order of the file."""
    raw = path.read_bytes()
    model = json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw)
    texts = dict.fromkeys(plain(text) for text in _documentation(model))
    errors = [_error(name, shape) for name, shape in model.get("shapes", {}).items() if _is_error(shape)]
    return Service(path.parents[1].name, [text for text in texts if text], errors)


def plain(text: str) -> str:
    """HTML as plain text on one line: inline tags vanish, other tags part words."""
    return " ".join(html.unescape(MARKUP.sub(" ", INLINE.sub("", text))).split())


def _is_error(shape: dict[str, Any]) -> bool:
    return bool(shape.get("exception")) or "error" in shape


def _error(name: str, shape: dict[str, Any]) -> ApiError:
    status = shape.get("error", {}).get("httpStatusCode")
    return ApiError(name, plain(shape.get("documentation", "")), status, bool(shape.get("fault")))


def _documentation(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "documentation" and isinstance(value, str):
                yield value
            else:
                yield from _documentation(value)
    elif isinstance(node, list):
        for value in node:
            yield from _documentation(value)


def _installed_data() -> Path:
    found = find_spec("botocore")
    if found is None or found.origin is None:
        raise InputError("botocore is not installed, and its service documentation is the demo's text; install boto3")
    return Path(found.origin).parent / "data"
