"""Where artifacts live: one small interface, a local folder or S3 behind it."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class Stored:
    """A file in a store: its name from the root, its size in bytes, when it was written (seconds since 1970)."""

    name: str
    size: int
    modified: float


class Store(Protocol):
    """Files by name under a root. Names are relative POSIX paths."""

    root: str

    def read(self, name: str) -> bytes | None:
        """A small file's bytes, or None if there is none."""

    def add(self, name: str, source: Path) -> None:
        """Make `source` appear whole under `name` (names carry digests); the local file may be moved."""

    def write(self, name: str, data: bytes) -> None:
        """Make a small file appear whole, replacing one of that name."""

    def create(self, name: str, data: bytes) -> bool:
        """Make a small file appear whole, unless the name is taken: then change nothing and return False."""

    def local(self, name: str) -> Path:
        """A path on this machine that holds the file (downloaded if need be); if there is none, none is there."""

    def forget(self, name: str) -> None:
        """Drop a download that turned out damaged; a no-op where `local` is the file itself."""

    def list(self, prefix: str) -> Iterator[Stored]:
        """All files whose names begin with `prefix`."""

    def delete(self, name: str) -> None:
        """Remove a file; removing what is not there is no error."""

    def abandoned(self, before: float, delete: bool) -> Iterator[str]:
        """Names whose upload began before that time (seconds since 1970) and never ended; `delete` removes them."""

    def scratch(self) -> Path:
        """A folder on this machine to prepare files in, from which `add` is cheap."""
