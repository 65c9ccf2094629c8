"""A store in a local folder."""

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from tlm.artifacts.stores.store import Stored
from tlm.errors import InputError

TRIES = 20  # to put a file into a folder that other processes remove


class LocalStore:
    """Files under a folder; a file appears by rename or link, after its bytes are on the disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.root = str(self.folder)

    def read(self, name: str) -> bytes | None:
        try:
            return self.local(name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def add(self, name: str, source: Path) -> None:
        _sync(source)
        self._put(name, source.replace)

    def write(self, name: str, data: bytes) -> None:
        self.add(name, self._temporary(data))

    def create(self, name: str, data: bytes) -> bool:
        temporary = self._temporary(data)
        try:
            _sync(temporary)
            self._put(name, partial(os.link, temporary))  # unlike a rename, a link refuses to replace
        except FileExistsError:
            return False
        finally:
            temporary.unlink()
        return True

    def local(self, name: str) -> Path:
        """The path of `name`. Raises InputError where '..' or a link leads out of the folder."""
        path = self.folder / name
        if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(self.folder)):
            raise InputError(f"{path} leads out of {self.root}; put the file itself there, without '..' or a link")
        return path

    def forget(self, name: str) -> None:
        pass

    def list(self, prefix: str) -> Iterator[Stored]:
        start = self.folder / prefix if prefix.endswith("/") or not prefix else (self.folder / prefix).parent
        found = (Path(folder, name) for folder, _, names in os.walk(start) for name in names)
        for path in sorted(found):
            name = path.relative_to(self.folder).as_posix()
            if name.startswith(prefix) and not name.startswith(".scratch/"):
                with suppress(FileNotFoundError):  # another process has just removed it
                    stat = path.stat()
                    yield Stored(name, stat.st_size, stat.st_mtime)

    def delete(self, name: str) -> None:
        path = self.local(str(Path(name).parent)) / Path(name).name  # removes a link, not its target
        path.unlink(missing_ok=True)
        with suppress(OSError):  # remove the folders that are empty now, up to the first that is not
            for parent in path.parents[: len(Path(name).parents) - 1]:
                parent.rmdir()

    def abandoned(self, before: float, delete: bool) -> Iterator[str]:
        return iter(())

    def scratch(self) -> Path:
        return self.folder / ".scratch"

    def _put(self, name: str, put: Callable[[Path], object]) -> None:
        """Have `put` make the file appear, again if another process removes its folder while it is empty."""
        target = self.local(name)
        for tries_left in reversed(range(TRIES)):
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                put(target)
                break
            except FileNotFoundError:
                if not tries_left:
                    raise
        with suppress(FileNotFoundError):
            _sync(target.parent)

    def _temporary(self, data: bytes) -> Path:
        self.scratch().mkdir(parents=True, exist_ok=True)
        path = self.scratch() / secrets.token_hex(8)
        path.write_bytes(data)
        return path


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
