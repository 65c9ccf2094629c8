"""Folders to prepare files in: held by a lock while their maker lives, swept by whoever comes next."""

import fcntl
import os
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tlm.errors import InputError

STRAY_SECONDS = 86_400.0


def cache_folder() -> Path:
    """Where downloads go: ``TLM_CACHE``, else a folder of ours among the machine's temporary ones.

    Raises InputError: somebody else made that one, or may write into it; what is verified there could be exchanged.
    """
    if given := os.environ.get("TLM_CACHE"):
        return Path(given)
    folder = Path(tempfile.gettempdir()) / f"tlm-cache-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise InputError(f"{folder} is not ours alone; remove it, or name another folder in TLM_CACHE")
    return folder


@contextmanager
def scratch_folder(parent: Path, name: str) -> Iterator[Path]:
    """A fresh folder under `parent`, removed at the end; folders of the dead (nobody holds their lock) are swept first.

    The lock gets its name once it is held, so that a sweeper never meets a living maker's lock unheld.
    """
    parent.mkdir(parents=True, exist_ok=True)
    _sweep(parent)
    folder = parent / f"{name}-{secrets.token_hex(4)}"
    unheld, lock = parent / f"{folder.name}.new", parent / f"{folder.name}.lock"
    with unheld.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        unheld.rename(lock)
        folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            lock.unlink(missing_ok=True)


def _sweep(parent: Path) -> None:
    for lock in parent.glob("*.lock"):
        with lock.open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
            lock.unlink(missing_ok=True)
    for path in parent.iterdir():  # small files of a maker killed between writing and publishing
        with suppress(FileNotFoundError):  # another process has just published it
            if path.suffix != ".lock" and path.is_file() and time.time() - path.stat().st_mtime > STRAY_SECONDS:
                path.unlink()
