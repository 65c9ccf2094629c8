"""The interface of a store: what artifacts need of a local folder or of S3."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class Stored:
    """A file in a store.

    Attributes:
        name: Path below the root.
        size: Bytes.
        modified: Time of writing, in seconds since 1970.
    """

    name: str
    size: int
    modified: float


class Store(Protocol):
    """Files under a root. Their names are relative POSIX paths.

    Attributes:
        root: Address of the store, as `open_store` takes it.
    """

    root: str

    def read(self, name: str) -> bytes | None:
        """Return the bytes of a small file, or None if there is none."""

    def add(self, name: str, source: Path) -> None:
        """Publish the local file `source` as `name`, atomically; the local file may be moved."""

    def write(self, name: str, data: bytes) -> None:
        """Write a small file, atomically, and replace one of that name."""

    def create(self, name: str, data: bytes) -> bool:
        """Write a small file, atomically, unless one of that name exists: then change nothing and return False."""

    def local(self, name: str) -> Path:
        """Return the path of the file on this machine, after a download if necessary; it may not exist."""

    def forget(self, name: str) -> None:
        """Remove a damaged download; a store in a local folder does nothing."""

    def list(self, prefix: str) -> Iterator[Stored]:
        """Yield all files whose names begin with `prefix`."""

    def delete(self, name: str) -> None:
        """Remove a file, if it exists."""

    def abandoned(self, before: float, delete: bool) -> Iterator[str]:
        """Yield the names of our uploads that began before that time (seconds since 1970) and never ended.

        With `delete` they are removed. Uploads of others (`folder_of`) are left alone.
        """

    def scratch(self) -> Path:
        """Return a folder on this machine to prepare files in; `add` is cheap from there."""
