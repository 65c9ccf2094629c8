"""Data sets on the Hugging Face Hub (optional: needs the package `datasets`), streamed row by row.

An address is ``hf://name`` or ``hf://owner/name``, then ``/configuration`` or ``/file.csv`` (the path of a file in the
data set), then ``:split`` unless it is train, then ``?column=value&…`` to keep only rows with these values. The query
``?text=column`` instead renames that column to text.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl

from tlm.artifacts.stores.store import check_url
from tlm.errors import InputError, reason

EXPECTED = "expected hf://name, hf://owner/name or hf://owner/name/config, each followed by :split unless it is train"
_FILE = re.compile(r"\.(csv|tsv|json|jsonl|parquet|txt)(\.(gz|zst))?$")
_MISSING = {"RepositoryNotFoundError", "DatasetNotFoundError"}
_UNREACHABLE = {"ConnectionError", "NetworkError", "TimeoutException", "Timeout", "ConnectTimeout", "URLError"}


@dataclass(frozen=True)
class Address:
    """The parts of an address."""

    name: str  # of the data set, with its owner
    config: str | None
    file: str | None  # path in the data set
    split: str
    text: str  # column to be renamed to text, or ""
    only: tuple[tuple[str, str], ...]  # required values by column


def checked_name(address: str) -> str:
    """Return ``name/config:split``, for ids and sources. Raises InputError: bad address, package `datasets` missing."""
    try:
        import datasets  # noqa: F401
    except ImportError:
        raise InputError(
            f"{address}: Hub data sets need the package datasets; install it with the extra 'hub'"
        ) from None
    check_endpoint()
    parts = _parts(address)
    name = "/".join(filter(None, (parts.name.split("/")[-1], parts.config, parts.file)))
    return name if parts.file else f"{name}:{parts.split}"


def check_endpoint() -> None:
    """Raise InputError where ``HF_ENDPOINT`` names a server that may not be used instead of the Hub."""
    if endpoint := os.environ.get("HF_ENDPOINT"):
        check_url(endpoint, "HF_ENDPOINT")


def digest(address: str) -> str:
    """Return what determines the rows: address and commit of the data set. Raises InputError: no access to the Hub."""
    parts = _parts(address)
    chosen = "".join(f"?{column}={value}" for column, value in (("text", parts.text), *parts.only) if value)
    with _explained(address):
        return f"{parts.name}/{parts.config or parts.file or ''}:{parts.split}{chosen}@{_commit(parts.name)}"


def rows(address: str) -> Iterator[dict[str, Any]]:
    """Yield the rows in order, by field. Raises InputError: the Hub is unreachable or lacks the data set."""
    from datasets import load_dataset

    parts = _parts(address)
    options: dict[str, Any] = {"data_files": {parts.split: parts.file}} if parts.file else {}
    options |= {"split": parts.split, "streaming": True}
    with _explained(address):
        for row in load_dataset(parts.name, parts.config, revision=_commit(parts.name), **options):
            if all(column in row and str(row[column]) == value for column, value in parts.only):
                yield {**row, "text": row.get(parts.text)} if parts.text else row


@lru_cache
def _commit(name: str) -> str:
    from huggingface_hub import HfApi

    return str(HfApi().dataset_info(name).sha)


def _parts(address: str) -> Address:
    place, _, query = address.removeprefix("hf://").partition("?")
    place, _, split = place.partition(":")
    parts = place.split("/")
    file = "/".join(parts[2:]) if len(parts) > 2 and _FILE.search(place) else None
    if not all(parts) or (len(parts) > 3 and not file):
        raise InputError(f"{address} is not the address of a Hub data set; {EXPECTED}")
    wanted = dict(parse_qsl(query))
    text = wanted.pop("text", "")
    config = parts[2] if len(parts) == 3 and not file else None
    return Address("/".join(parts[:2]), config, file, split or "train", text, tuple(sorted(wanted.items())))


@contextmanager
def _explained(address: str) -> Iterator[None]:
    """Turn the many kinds of exceptions of the Hub's clients into an InputError."""
    try:
        yield
    except Exception as error:
        kinds = {kind.__name__ for kind in type(error).__mro__}
        if _MISSING & kinds:
            found = "the Hub has no such data set, or it is private; check the name"
        elif _UNREACHABLE & kinds:
            found = f"cannot reach the Hugging Face Hub ({reason(error)}); check the network or use local files"
        else:
            found = f"cannot be read from the Hub: {reason(error)}; check name, split and network"
        raise InputError(f"{address}: {found}") from None
