"""Folders for downloads and unfinished files; those of dead processes are removed."""

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
    """Return the folder for downloads: ``TLM_CACHE``, else a folder of this user in the machine's temporary folder.

    Raises:
        InputError: another user owns that folder or may write to it, and could replace verified files; or it cannot be
            made.
    """
    given = os.environ.get("TLM_CACHE")
    folder = Path(given) if given else Path(tempfile.gettempdir()) / f"tlm-cache-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError, PermissionError) as error:
        raise InputError(f"{folder} cannot be made ({error.strerror}); name another folder in TLM_CACHE") from None
    found = folder.stat() if given else folder.lstat()  # the temporary folder is everybody's: a link may be another's
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise InputError(
            f"{folder} can be written to by other users; remove it, or name one in TLM_CACHE that only you can write to"
        )
    return folder


@contextmanager
def scratch_folder(parent: Path, name: str) -> Iterator[Path]:
    """Make a new folder under `parent` and remove it at the end. First, folders of dead processes are removed.

    A folder whose lock nobody holds belongs to a dead process. The lock file gets its name once the lock is held, so
    that no other process finds it unlocked before.
    """
    parent.mkdir(parents=True, exist_ok=True)
    _remove_stale(parent)
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


def _remove_stale(parent: Path) -> None:
    for lock in parent.glob("*.lock"):
        with lock.open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
            lock.unlink(missing_ok=True)
    for path in parent.iterdir():  # small files of a process that was killed before it published them
        with suppress(FileNotFoundError):  # another process has just published it
            if path.suffix != ".lock" and path.is_file() and time.time() - path.stat().st_mtime > STRAY_SECONDS:
                path.unlink()
