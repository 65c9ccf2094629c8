"""From the address that people write, a folder or ``s3://…``, to the store behind it."""

import os
from functools import lru_cache
from pathlib import Path

from tlm.artifacts.stores.store import Store
from tlm.errors import InputError

DEFAULT_ROOT = "artifacts"


def named_root(root: str | None) -> str | None:
    """The given root, else ``TLM_ROOT``, else None."""
    return root or os.environ.get("TLM_ROOT") or None


def resolve_root(root: str | None) -> str:
    """The given root, else ``TLM_ROOT``, else ``./artifacts``. A step with inputs has its `home` instead."""
    return named_root(root) or DEFAULT_ROOT


def open_store(root: str) -> Store:
    """The store at `root`: a path, ``file://…`` or ``s3://bucket/prefix``. Raises InputError for another scheme."""
    return _open(root if "://" in root else str(Path(root).absolute()))


def close_stores() -> None:
    """Forget open stores: after a change of the environment that says where S3 is and who we are there."""
    _open.cache_clear()


@lru_cache
def _open(root: str) -> Store:
    scheme, separator, rest = root.partition("://")
    if separator and scheme == "s3":
        from tlm.artifacts.stores.s3 import S3Store

        return S3Store(root)
    if separator and scheme != "file":
        raise InputError(
            f"root '{root}': scheme '{scheme}' is not known; give a folder, file://… or s3://bucket/prefix"
        )
    from tlm.artifacts.stores.local import LocalStore

    return LocalStore(Path(rest if separator else root))
