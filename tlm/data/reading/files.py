"""Where raw data come from: files, folders, globs, S3 and Hub addresses, expanded to files in a fixed order."""

import fnmatch
import glob
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath

from tlm.artifacts.digest import file_sha256
from tlm.artifacts.stores.scratch import cache_folder, scratch_folder
from tlm.data.reading import hub
from tlm.data.reading.streams import Tally
from tlm.errors import InputError, nearest
from tlm.progress import say

FORMATS = {
    ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl",
    ".csv": "csv", ".tsv": "tsv", ".parquet": "parquet", ".txt": "txt",
}  # fmt: skip
COMPRESSIONS = {".gz": "gz", ".zst": "zst"}
EXPECTED = f"{', '.join(FORMATS)}, each but .parquet also with {' or '.join(COMPRESSIONS)}"
_MAGIC = re.compile(r"[*?\[]")


@dataclass
class RawFile:
    """A raw file: `where` for sentences, base `name` for ids, its format, and a way to a path on this machine.

    `header` names the columns of a CSV or TSV file that has no first line with the wanted names.
    """

    where: str
    name: str
    format: str
    compression: str = ""
    locate: Callable[[], Path] | None = None
    header: tuple[str, ...] = ()
    tally: Tally = field(default_factory=Tally)
    _stamp: tuple[int, int] | None = None

    @property
    def stem(self) -> str:
        """The base name without the extensions of format and compression."""
        path = PurePosixPath(self.name)
        return PurePosixPath(path.stem).stem if self.compression else path.stem

    @property
    def path(self) -> Path:
        """The file on this machine, downloaded first where it lies elsewhere."""
        assert self.locate is not None, "a Hub data set has no path"
        return self.locate()

    @property
    def size(self) -> int:
        """Bytes on the disk; 0 for a Hub data set, which is streamed."""
        return self.path.stat().st_size if self.locate else 0

    def digest(self) -> str:
        """sha256 of the raw bytes; for a Hub data set address and commit. Raises InputError where it cannot be read."""
        if self.locate is None:
            return hub.digest(self.where)
        try:
            self._stamp = self._now()
            return file_sha256(self.path)
        except OSError as error:
            raise InputError(
                f"{self.where} cannot be read: {error.strerror}; check the file and its permissions"
            ) from None

    def check_unchanged(self) -> None:
        """Raise InputError if the file was written to since its digest was taken: the key would name something else."""
        if self._stamp is not None and self._now() != self._stamp:
            raise InputError(f"{self.where} was changed while it was read; repeat the step when nobody writes to it")

    def _now(self) -> tuple[int, int]:
        stat = self.path.stat()
        return stat.st_size, stat.st_mtime_ns


@contextmanager
def raw_files(paths: list[str]) -> Iterator[list[RawFile]]:
    """The files that `paths` mean, each once, sorted by where they are; downloads are gone afterwards.

    A path is a file, a folder (searched through all its sub-folders; names beginning with '.' or '_' are passed over),
    a glob, ``s3://bucket/key`` (or a prefix, or a glob), or ``hf://name[:split]``.

    Raises:
        InputError: missing file, unknown extension, a glob or folder without a file that can be read, more to download
            than the disk has room for.
    """
    if not all(paths) or not paths:
        raise InputError("no path was given, or an empty one; give files, folders, globs or s3:// addresses")
    with ExitStack() as stack:
        found = {file.where: file for path in paths for file in _expand(path, stack)}
        yield [found[where] for where in sorted(found)]


def check_room(files: Sequence[RawFile], folder: Path) -> None:
    """Raise InputError if the disk of `folder` has less room than the raw files take: what is made of them takes more.

    To be called before the work; a disk that fills up later interrupts it.
    """
    _check_room(sum(file.size for file in files), f"the {len(files)} raw files", folder)


def _check_room(size: int, what: str, folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if size > free:
        raise InputError(
            f"{what} have {size / 1e9:,.3f} GB, the disk of {folder.parent} has {free / 1e9:,.3f} GB free; free some, "
            "take another disk, or give fewer files"
        )


def _expand(path: str, stack: ExitStack) -> list[RawFile]:
    scheme, separator, _ = path.partition("://")
    if separator and scheme == "s3":
        return _from_s3(path, stack)
    if separator and scheme == "hf":
        return [RawFile(path, hub.checked_name(path), "hub")]
    if separator and scheme != "file":
        raise InputError(f"{path}: scheme '{scheme}' is not known; give a path, file://…, s3://… or hf://…")
    return _from_disk(str(Path(path.removeprefix("file://"))))


def _from_disk(path: str) -> list[RawFile]:
    if Path(path).is_dir():
        return [file for name in _readable(path, _walk(path)) for file in _from_disk(str(Path(path) / name))]
    if Path(path).is_file():
        return [_raw_file(path, lambda: Path(path))]
    if Path(path).exists():
        raise InputError(f"{path} is no regular file; expected a file or a folder")
    if Path(path).is_symlink():
        raise InputError(f"{path} is a link that leads nowhere or in a circle; mend it, or remove it")
    if not _MAGIC.search(path):
        parent = Path(path).parent
        siblings = [file.name for file in parent.iterdir() if file.exists()] if parent.is_dir() else []
        hint = nearest(Path(path).name, siblings)
        raise InputError(f"{path} does not exist{hint if 'did you mean' in hint else '; check the path'}")
    matches = _below(path) if "**" in Path(path).parts else glob.glob(path)  # noqa: PTH207  # absolute patterns
    if not matches:
        raise InputError(f"{path} matches no file; check the pattern")
    return [file for match in sorted(matches) for file in _from_disk(match)]


def _walk(folder: str) -> list[str]:
    """The files in a folder and its sub-folders, relative to it; links to folders, which may be circles, are not."""
    found, links = list[str](), list[str]()
    for place, folders, names in os.walk(folder, onerror=_cannot_look):
        found += [os.path.relpath(Path(place) / name, folder) for name in names]
        links += [name for name in folders if (Path(place) / name).is_symlink() and name[0] not in "._"]
    if links:
        say(f"{folder}: passed over, links to folders are not followed: {_some(links)}")
    return found


def _cannot_look(error: OSError) -> None:
    raise InputError(f"{error.filename} cannot be looked into: {error.strerror}; check its permissions") from None


def _below(pattern: str) -> list[str]:
    """The files that a pattern with ** matches; as in a shell, * and ** match no name with a dot in front."""
    parts = Path(pattern).parts
    start = next(number for number, part in enumerate(parts) if _MAGIC.search(part))
    base = Path(*parts[:start])
    return [str(base / name) for name in _walk(str(base)) if _fits(Path(name).parts, parts[start:])]


def _fits(names: Sequence[str], pattern: Sequence[str]) -> bool:
    if not pattern or not names:
        return not names and all(part == "**" for part in pattern)
    shown = names[0][0] != "." or pattern[0][0] == "."
    if pattern[0] == "**":
        return _fits(names, pattern[1:]) or (shown and _fits(names[1:], pattern))
    return shown and fnmatch.fnmatchcase(names[0], pattern[0]) and _fits(names[1:], pattern[1:])


def _from_s3(address: str, stack: ExitStack) -> list[RawFile]:
    from tlm.artifacts.stores.s3 import S3Store

    bucket, _, key = address.removeprefix("s3://").partition("/")
    store = S3Store(f"s3://{bucket}")
    store.cache = _download_folder(stack)
    sizes = {stored.name: stored.size for stored in store.list(_MAGIC.split(key)[0]) if not stored.name.endswith("/")}
    names = list(sizes)
    if _MAGIC.search(key):
        chosen = [name for name in names if name.count("/") == key.count("/") and PurePosixPath(name).match(key)]
    elif key in names:
        chosen = [key]
    else:
        folder = f"{key.rstrip('/')}/" if key else ""
        inside = [name.removeprefix(folder) for name in names if name.startswith(folder)]
        chosen = [folder + name for name in _readable(address, inside)]
    if not chosen:
        raise InputError(f"{address}: there is nothing here; check the bucket and the key")
    if any({"", ".", ".."} & set(name.split("/")) for name in chosen):
        raise InputError(f"{address}: a key has empty, '.' or '..' parts, which no path on a disk can have; rename it")
    _check_room(sum(sizes[name] for name in chosen), f"the {len(chosen)} files of {address}", store.cache)
    return [_raw_file(f"s3://{bucket}/{name}", partial(store.local, name)) for name in chosen]


def _download_folder(stack: ExitStack) -> Path:
    return stack.enter_context(scratch_folder(cache_folder() / "raw", "raw"))


def _readable(folder: str, names: list[str]) -> list[str]:
    """Those names in a folder that have a known extension; says which are passed over."""
    shown = [name for name in names if not re.search(r"(^|/)[._]", name)]
    known = [name for name in shown if _kind(name)]
    other = [PurePosixPath(name).name for name in shown if not _kind(name)]
    if not known:
        raise InputError(f"{folder} has no file that can be read; expected {EXPECTED}")
    if other:
        say(f"{folder}: passed over, their extension is not known: {_some(other)}")
    return known


def _some(names: list[str]) -> str:
    return ", ".join(names[:5]) + " …" * (len(names) > 5)


def _raw_file(where: str, locate: Callable[[], Path]) -> RawFile:
    if not _is_unicode(where):
        raise InputError(f"{where}: this name is not in UTF-8; rename the file, or its folder")
    kind = _kind(where)
    if kind is None:
        raise InputError(f"{where}: this extension is not known; expected {EXPECTED}")
    return RawFile(where, PurePosixPath(where).name, *kind, locate)


def _kind(name: str) -> tuple[str, str] | None:
    """Format and compression by extension: ('jsonl', 'gz') for ``x.jsonl.gz``; None where it is not known."""
    path = PurePosixPath(name.lower())
    compression = COMPRESSIONS.get(path.suffix, "")
    format_ = FORMATS.get(PurePosixPath(path.stem).suffix if compression else path.suffix)
    return None if format_ is None or (format_ == "parquet" and compression) else (format_, compression)


def _is_unicode(name: str) -> bool:
    """Whether a name from the disk was UTF-8; other bytes are lone surrogates in it."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
