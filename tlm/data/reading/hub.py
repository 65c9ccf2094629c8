"""Data sets of the Hugging Face Hub (an extra: needs the package `datasets`), streamed row by row.

An address is ``hf://name``, ``hf://owner/name``, either with ``/configuration`` or with ``/file.csv`` (any file of the
data set, by its path), then ``:split`` where it is not train, then ``?column=value&…`` to take only rows that have
these values. ``?text=column`` is another thing: that column is given the name text.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl

from tlm.artifacts.stores.endpoints import check_url
from tlm.errors import InputError, reason

EXPECTED = "expected hf://name, hf://owner/name or hf://owner/name/config, each with :split where it is not train"
_FILE = re.compile(r"\.(csv|tsv|json|jsonl|parquet|txt)(\.(gz|zst))?$")
_MISSING = {"RepositoryNotFoundError", "DatasetNotFoundError"}
_UNREACHABLE = {"ConnectionError", "NetworkError", "TimeoutException", "Timeout", "ConnectTimeout", "URLError"}


@dataclass(frozen=True)
class Address:
    """The parts of an address; `text` is the column to be called so, `only` what rows must have, by column."""

    name: str
    config: str | None
    file: str | None
    split: str
    text: str
    only: tuple[tuple[str, str], ...]


def checked_name(address: str) -> str:
    """What ids and sources call it: ``name/config:split``. Raises InputError: bad address, no package `datasets`."""
    try:
        import datasets  # noqa: F401
    except ImportError:
        raise InputError(
            f"{address}: Hub data sets need the package datasets; install it with the extra 'hub'"
        ) from None
    if os.environ.get("HF_ENDPOINT"):
        check_url(os.environ["HF_ENDPOINT"], "HF_ENDPOINT")
    parts = _parts(address)
    inner = parts.config or parts.file
    name = parts.name.split("/")[-1] + (f"/{inner}" if inner else "")
    return name if parts.file else f"{name}:{parts.split}"


def digest(address: str) -> str:
    """What the rows depend on: the address and the data set's commit. InputError where the Hub is not reached."""
    parts = _parts(address)
    chosen = "".join(f"?{column}={value}" for column, value in (("text", parts.text), *parts.only) if value)
    return f"{parts.name}/{parts.config or parts.file or ''}:{parts.split}{chosen}@{_commit_of(address)}"


def rows(address: str) -> Iterator[dict[str, Any]]:
    """The rows, in order, by field."""
    from datasets import load_dataset

    parts = _parts(address)
    files = {"data_files": {parts.split: parts.file}} if parts.file else {}
    commit = _commit_of(address)
    try:
        for row in load_dataset(parts.name, parts.config, split=parts.split, streaming=True, revision=commit, **files):
            if all(column in row and str(row[column]) == value for column, value in parts.only):
                yield {**row, "text": row.get(parts.text)} if parts.text else row
    except Exception as error:  # the Hub's client raises many kinds, all of which mean the same to a person
        raise _explained(address, error) from None


def _commit_of(address: str) -> str:
    try:
        return _commit(_parts(address).name)
    except Exception as error:  # as above
        raise _explained(address, error) from None


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
        raise InputError(f"{address} is no address of a Hub data set; {EXPECTED}")
    wanted = dict(parse_qsl(query))
    text = wanted.pop("text", "")
    config = parts[2] if len(parts) == 3 and not file else None
    return Address("/".join(parts[:2]), config, file, split or "train", text, tuple(sorted(wanted.items())))


def _explained(address: str, error: Exception) -> InputError:
    if isinstance(error, InputError):
        return error
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if _MISSING & kinds:
        return InputError(f"{address}: the Hub has no such data set, or it is not open to all; check the name")
    if _UNREACHABLE & kinds:
        return InputError(
            f"{address}: the Hugging Face Hub is not reached from here ({reason(error)}); see to the network, or "
            "give files of this disk instead"
        )
    return InputError(f"{address} cannot be read from the Hub: {reason(error)}; check name, split and network")
