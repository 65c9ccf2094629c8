"""Data sets of the Hugging Face Hub (an extra: needs the package `datasets`), streamed row by row."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from tlm.errors import InputError

EXPECTED = "expected hf://name, hf://owner/name or hf://owner/name/config, each with :split where it is not train"


def checked_name(address: str) -> str:
    """What ids and sources call it: ``name:split``. Raises InputError: bad address, `datasets` not installed."""
    try:
        import datasets  # noqa: F401
    except ImportError:
        raise InputError(
            f"{address}: Hub data sets need the package datasets; install it with the extra 'hub'"
        ) from None
    name, _, split = _parts(address)
    return f"{name.split('/')[-1]}:{split}"


def digest(address: str) -> str:
    """What the rows depend on: name, configuration, split and commit. InputError where the Hub is not reached."""
    name, config, split = _parts(address)
    return f"{name}/{config or ''}:{split}@{_commit(address)}"


def rows(address: str) -> Iterator[dict[str, Any]]:
    """The rows, in order, by field."""
    from datasets import load_dataset

    name, config, split = _parts(address)
    try:
        yield from load_dataset(name, config, split=split, streaming=True, revision=_commit(address))
    except Exception as error:  # the Hub's client raises many kinds, all of which mean the same to a person
        raise _explained(address, error) from None


@lru_cache
def _commit(address: str) -> str:
    from huggingface_hub import HfApi

    try:
        return str(HfApi().dataset_info(_parts(address)[0]).sha)
    except Exception as error:  # as above
        raise _explained(address, error) from None


def _parts(address: str) -> tuple[str, str | None, str]:
    name, _, split = address.removeprefix("hf://").partition(":")
    parts = name.split("/")
    if not all(parts) or len(parts) > 3:
        raise InputError(f"{address} is no address of a Hub data set; {EXPECTED}")
    return "/".join(parts[:2]), parts[2] if len(parts) == 3 else None, split or "train"


def _explained(address: str, error: Exception) -> InputError:
    if isinstance(error, InputError):
        return error
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    return InputError(f"{address} cannot be read from the Hub: {reason}; check name, split and network")
