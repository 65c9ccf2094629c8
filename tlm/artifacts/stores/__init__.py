"""Stores of artifacts: a local folder or an S3 bucket, behind one interface."""

import os
import secrets
from functools import lru_cache
from pathlib import Path

from tlm.artifacts.stores.local import LocalStore
from tlm.artifacts.stores.store import Store, canonical_json, value_sha256
from tlm.errors import InputError, is_utf8, reason

DEFAULT_ROOT = "artifacts"


def named_root(root: str | None) -> str | None:
    """Return `root`, else ``TLM_ROOT``, else None."""
    return root or os.environ.get("TLM_ROOT") or None


def open_store(root: str | None) -> Store:
    """Return the store at `root`, else at ``TLM_ROOT``, else at ``./artifacts``.

    Args:
        root: A path, ``file://…`` or ``s3://bucket/prefix``.

    Raises:
        InputError: another scheme, or settings for S3 that cannot work.
    """
    root = named_root(root) or DEFAULT_ROOT
    if root.startswith("s3:/") and not root.startswith("s3://"):
        raise InputError(f"root '{root}' has one slash; give s3://bucket/prefix")
    try:
        address = root if "://" in root else f"file://{Path(root).expanduser().absolute()}"
    except (RuntimeError, FileNotFoundError) as error:  # nobody has that home, or this folder was removed
        raise InputError(f"root '{root}': {reason(error)}; give the whole path") from None
    return opened(address)


@lru_cache
def opened(root: str) -> Store:
    """The store at a whole address. After a change of the environment variables for S3, clear the cache."""
    scheme, _, path = root.partition("://")
    if scheme == "s3":
        from tlm.artifacts.stores.s3 import S3Store

        return S3Store(root)
    if scheme != "file":
        raise InputError(
            f"root '{root}': scheme '{scheme}' is not known; give a folder, file://… or s3://bucket/prefix"
        )
    if not is_utf8(path):  # Arrow refuses such names
        raise InputError(f"root '{path}': the name is not valid UTF-8; rename the folder, or give another one")
    return LocalStore(Path(path))


IDENTITY = "store.json"  # at the root


def identity(store: Store) -> str:
    """Return a digest (24 hex digits) of the store's place and of a random number that is kept in it.

    The place alone would not do, since two machines may each have a folder of that name; nor would the number alone,
    since a store can be copied.
    """
    if store.read(IDENTITY) is None:
        store.create(IDENTITY, canonical_json({"id": secrets.token_hex(16)}) + b"\n")
    place = store.root if "://" in store.root else os.path.realpath(store.root)
    return value_sha256([place, (store.read(IDENTITY) or b"").decode(errors="replace")])[:24]
