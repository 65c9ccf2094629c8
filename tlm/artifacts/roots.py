"""Open the store at a root, which is a folder or ``s3://…``."""

import os
from functools import lru_cache
from pathlib import Path

from tlm.artifacts.stores.store import Store
from tlm.errors import InputError

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
    return _open(root if "://" in root else str(Path(root).absolute()))


def close_stores() -> None:
    """Forget the open stores. Needed after a change of the environment variables for S3."""
    _open.cache_clear()


@lru_cache
def _open(root: str) -> Store:
    scheme, separator, rest = root.partition("://")
    if scheme == "s3" and separator:
        from tlm.artifacts.stores.s3 import S3Store

        return S3Store(root)
    if separator and scheme != "file":
        raise InputError(
            f"root '{root}': scheme '{scheme}' is not known; give a folder, file://… or s3://bucket/prefix"
        )
    from tlm.artifacts.stores.local import LocalStore

    return LocalStore(Path(rest if separator else root))
