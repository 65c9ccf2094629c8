"""A store in a local folder; folders for downloads and unfinished files."""

import errno
import fcntl
import glob
import os
import re
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import TextIO

from tlm.artifacts.stores.store import KINDS, Stored
from tlm.errors import InputError
from tlm.progress import say

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


def make_folder(folder: Path) -> None:
    """Make a folder and those above it. In the folder of a group (setgid), the group gets its rights at any umask."""
    new = [*takewhile(lambda one: not one.is_dir(), (folder, *folder.parents))]
    folder.mkdir(parents=True, exist_ok=True)
    for one in reversed(new):
        mode = one.parent.stat().st_mode
        if mode & stat.S_ISGID:
            with suppress(OSError):  # another user has just made it, or it is a drive without modes
                one.chmod(one.stat().st_mode | mode & stat.S_IRWXG)


@contextmanager
def scratch_folder(parent: Path, name: str) -> Iterator[Path]:
    """Make a new folder under `parent` and remove it at the end. First, folders of dead processes are removed.

    A folder whose lock nobody holds belongs to a dead process. The lock file gets its name once the lock is held, so
    that no other process finds it unlocked before.
    """
    folder = parent / f"{name}-{secrets.token_hex(4)}"
    unheld, lock = parent / f"{folder.name}.new", parent / f"{folder.name}.lock"
    try:
        make_folder(parent)
        _remove_stale(parent)
        opened = unheld.open("w")
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        raise InputError(
            f"{parent} cannot be written to: {error.strerror}; ask its owner to let you, or name another folder: for "
            "downloads in TLM_CACHE, or a copy of the whole store with --root"
        ) from None
    with opened as held:
        with suppress(OSError):  # without locks, as on some network drives, what a dead process left stays there
            fcntl.flock(held, fcntl.LOCK_EX)
        unheld.rename(lock)
        make_folder(folder)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            lock.unlink(missing_ok=True)


def _remove_stale(parent: Path) -> None:
    for lock in parent.glob("*.lock"):
        if lock.is_symlink():  # not ours, and it may lead anywhere
            lock.unlink(missing_ok=True)
            continue
        with suppress(OSError), lock.open("a") as file:  # held, another user's, or there are no locks here
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
            lock.unlink(missing_ok=True)
    # small files of a process that was killed before it published them
    _remove_strays(path for path in parent.iterdir() if path.suffix != ".lock")


def _remove_strays(paths: Iterable[Path]) -> None:
    """Remove unfinished files of processes that were killed: old ones whose lock nobody holds.

    They are old after a day, as some network drives keep locks on each machine apart, and rows may be long in coming.
    """
    for path in paths:
        with suppress(OSError):  # held, just published, another user's, or there are no locks here
            if path.is_file() and time.time() - path.stat().st_mtime > STRAY_SECONDS:
                with path.open("a") as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    path.unlink()


def here(path: str | Path) -> Path:
    """Return a path on this machine; ~ is home, file:///a is /a. Raises InputError for an address, as s3://bucket/a."""
    path = re.sub("^file:(//)?(?=/)", "", str(path))  # a Path has one slash
    if re.match(r"\w+:/", path):
        raise InputError(f"{path} is not on this machine; name a file or folder here, and copy it there yourself")
    return Path(os.path.expanduser(path))  # noqa: PTH111  that of pathlib fails if nobody has that home


@contextmanager
def whole(path: Path, otherwise: str = "") -> Iterator[TextIO]:
    """Open a text file that appears at the end, and not after an error: then `otherwise` is said.

    Raises InputError: it cannot be made, as its folder does not exist or nobody may write there.
    """
    target = part = path if path.exists() and not path.is_file() else path.resolve()  # a pipe has no other name
    if (target.is_file() or not target.exists()) and os.access(target.parent, os.W_OK):  # no device
        _remove_strays(target.parent.glob(f".{glob.escape(target.name)}.????????.part"))
        part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        sink = part.open("w", encoding="utf-8", newline="")
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError) as error:  # no full disk
        raise InputError(f"{path} cannot be written: {error.strerror}; name a file in a folder that exists") from None
    with suppress(OSError):  # there are no locks here
        fcntl.flock(sink, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with suppress(OSError):  # a new file, or a drive without modes
        shutil.copymode(target, part)
    try:
        with sink:
            yield sink
        if part != target:
            shutil.move(part, target)  # copies where the file is a mount, which cannot be replaced
    finally:
        if part != target and part.exists():
            part.unlink()
            if otherwise:
                say(otherwise)


def write_whole(path: Path, text: str) -> None:
    """Write a text file by `whole`."""
    with whole(path) as file:
        file.write(text)


TRIES = 20  # to put a file into a folder that other processes remove


class LocalStore:
    """Files under a folder; a file appears by rename or link, after its bytes are on the disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.root = str(self.folder)

    def read(self, name: str) -> bytes | None:
        with suppress(FileNotFoundError, NotADirectoryError):
            return self.local(name).read_bytes()
        return None

    def add(self, name: str, source: Path) -> None:
        self._put(name, source, source.replace)

    def write(self, name: str, data: bytes) -> None:
        self.add(name, self._temporary(data))

    def create(self, name: str, data: bytes) -> bool:
        temporary = self._temporary(data)
        try:
            self._put(name, temporary, partial(_appear, temporary))
        except FileExistsError:
            return False
        finally:
            temporary.unlink(missing_ok=True)
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
        start = self.folder / prefix.rpartition("/")[0]
        paths = (Path(folder, name) for folder, _, names in os.walk(start, onerror=self._unlisted) for name in names)
        for path in sorted(paths):
            name = path.relative_to(self.folder).as_posix()
            if name.startswith(prefix) and not name.startswith(".scratch/"):
                with suppress(FileNotFoundError):  # another process has just removed it
                    stat = path.stat()
                    yield Stored(name, stat.st_size, stat.st_mtime)

    def _unlisted(self, error: OSError) -> None:
        """Refuse to list only some of our files: `tlm gc` would remove what the others were made from."""
        inside = Path(error.filename).relative_to(self.folder).parts
        is_ours = not inside or inside[0] in (*KINDS, "progress")
        if is_ours and not isinstance(error, FileNotFoundError | NotADirectoryError):  # another process removes them
            raise InputError(f"{error.filename} cannot be listed: {error.strerror}; check its permissions")

    def delete(self, name: str) -> None:
        path = self.local(str(Path(name).parent)) / Path(name).name  # removes a link, not its target
        path.unlink(missing_ok=True)
        with suppress(OSError):  # remove the folders that are empty now, up to the first that is not
            for parent in path.parents[: len(Path(name).parents) - 1]:
                parent.rmdir()

    def abandoned(self, before: float, delete: bool) -> Iterator[str]:
        return iter(())

    def scratch(self) -> Path:
        return self.local(".scratch")

    def _put(self, name: str, source: Path, put: Callable[[Path], object]) -> None:
        """Have `put` make the file appear, again if another process removes its folder while it is empty."""
        target = self.local(name)
        for tries_left in reversed(range(TRIES)):
            try:
                make_folder(target.parent)
                with suppress(OSError):  # safetensors makes files that only we can read; who may enter may read, too
                    source.chmod(source.stat().st_mode | target.parent.stat().st_mode & 0o444)
                _sync(source)
                put(target)
                break
            except FileNotFoundError:
                if not tries_left:
                    raise
        with suppress(OSError):  # removed, or of a file system that cannot sync folders
            _sync(target.parent)

    def _temporary(self, data: bytes) -> Path:
        make_folder(self.scratch())
        path = self.scratch() / secrets.token_hex(8)
        try:
            path.write_bytes(data)
        except OSError:  # the disk is full
            path.unlink(missing_ok=True)
            raise
        return path


def _appear(source: Path, target: Path) -> None:
    """Have a file appear at `target`, unless there is one. Unlike a rename, a link refuses to replace.

    File systems without links (exFAT, network drives) get a rename: of two writers at the same moment, the later wins.
    """
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS):
            raise
        if target.exists():
            raise FileExistsError from None
        source.replace(target)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
