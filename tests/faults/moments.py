"""Dying just before the n-th operation on a file system: each is a moment in which things are half done."""

import itertools
import os
import signal
import sys
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any

EVENTS = frozenset(
    ("open", "os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "fcntl.flock", "shutil.rmtree")
)


@dataclass(frozen=True)
class Dying:
    """Prepares a child to be killed before its `moment`-th operation in `folder`, from 0.

    Waits for the disk count as well, and so does what names its file by a handle, as removing a tree does.
    """

    moment: int
    folder: Path

    def __call__(self) -> None:
        """In the child."""
        numbers, sync = itertools.count(), os.fsync

        def operation() -> None:
            if next(numbers) == self.moment:
                os.kill(os.getpid(), signal.SIGKILL)

        def look(event: str, arguments: tuple[Any, ...]) -> None:
            if event in EVENTS and _inside(arguments[0], self.folder):
                operation()

        def sync_later(handle: int) -> None:
            operation()
            sync(handle)

        os.fsync = sync_later  # type: ignore[assignment]
        sys.addaudithook(look)


def _inside(name: Any, folder: Path) -> bool:
    if isinstance(name, int):
        return True
    text = os.fsdecode(name)
    return not text.startswith("/") or Path(text).is_relative_to(folder)


def told_within_a_library() -> None:
    """Prepares a child that gets SIGTERM inside a library whose every error means that the library is not there."""
    library = types.ModuleType("pynvml")
    library.nvmlInit = lambda: os.kill(os.getpid(), signal.SIGTERM)  # type: ignore[attr-defined]
    sys.modules["pynvml"] = library
