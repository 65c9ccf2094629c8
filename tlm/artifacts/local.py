"""A store in a local folder."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tlm.artifacts.store import Stored

READABLE = 0o644  # temporary files are their owner's alone, but another pod may run as another user


class LocalStore:
    """Files under a folder; a file appears by rename or link, after its bytes are on the disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.root = str(self.folder)

    def read(self, name: str) -> bytes | None:
        try:
            return (self.folder / name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def add(self, name: str, source: Path) -> None:
        target = self._target(name)
        _sync(source)
        source.replace(target)
        _sync(target.parent)

    def write(self, name: str, data: bytes) -> None:
        self.add(name, self._temporary(data))

    def create(self, name: str, data: bytes) -> bool:
        target, temporary = self._target(name), self._temporary(data)
        try:
            _sync(temporary)
            os.link(temporary, target)  # unlike a rename, a link refuses to replace
        except FileExistsError:
            return False
        finally:
            temporary.unlink()
        _sync(target.parent)
        return True

    def local(self, name: str) -> Path:
        return self.folder / name

    def forget(self, name: str) -> None:
        pass

    def list(self, prefix: str) -> Iterator[Stored]:
        start = self.folder / prefix if prefix.endswith("/") or not prefix else (self.folder / prefix).parent
        for path in sorted(start.rglob("*")):
            name = path.relative_to(self.folder).as_posix()
            if name.startswith(prefix) and not name.startswith(".scratch/") and path.is_file():
                stat = path.stat()
                yield Stored(name, stat.st_size, stat.st_mtime)

    def delete(self, name: str) -> None:
        path = self.folder / name
        path.unlink(missing_ok=True)
        with suppress(OSError):  # no empty folders are left; the first that is not empty ends it
            for parent in path.parents[: len(Path(name).parents) - 1]:
                parent.rmdir()

    def scratch(self) -> Path:
        return self.folder / ".scratch"

    def _target(self, name: str) -> Path:
        target = self.folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        return target

    def _temporary(self, data: bytes) -> Path:
        self.scratch().mkdir(parents=True, exist_ok=True)
        handle, path = tempfile.mkstemp(dir=self.scratch())
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(path).chmod(READABLE)
        return Path(path)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
