"""Raw files: paths, folders, globs, S3 and Hub addresses, expanded to a sorted list of files.

As in a shell, ``*``, ``?`` and ``[…]`` match within a name, ``**`` stands for any number of folders, and none of them
matches a name that begins with a dot unless the pattern has the dot, too. Without ``**``, a pattern may also match
folders.
"""

import fnmatch
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from tlm.artifacts.stores.local import cache_folder, scratch_folder
from tlm.artifacts.stores.store import Ranges, Store, Stored, file_sha256
from tlm.data.registry import hub_digest, hub_name
from tlm.errors import InputError, did_you_mean, is_utf8
from tlm.progress import say

MAGIC = re.compile(r"[*?\[]")
ANY_DEPTH = "**"


def matches(names: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether the names of folders and file on a path match the parts of a pattern."""
    if not pattern or not names:
        return not names and all(part == ANY_DEPTH for part in pattern)
    visible = not names[0].startswith(".") or pattern[0].startswith(".")
    if pattern[0] == ANY_DEPTH:
        return matches(names, pattern[1:]) or (visible and matches(names[1:], pattern))
    return visible and fnmatch.fnmatchcase(names[0], pattern[0]) and matches(names[1:], pattern[1:])


def may_hold_matches(names: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether something in the folder on this path may match the pattern."""
    start = pattern[: len(names)]
    return ANY_DEPTH in start or matches(names, start)


def matching_folders(keys: Iterable[str], pattern: Sequence[str]) -> Iterator[str]:
    """Yield the folders of these keys that match the pattern."""
    if ANY_DEPTH not in pattern:
        folders = {tuple(key.split("/")[: len(pattern)]) for key in keys if key.count("/") >= len(pattern)}
        yield from ("/".join(names) for names in sorted(folders) if matches(names, pattern))


FORMATS = {
    ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl",
    ".csv": "csv", ".tsv": "tsv", ".parquet": "parquet", ".txt": "txt",
    ".md": "txt", ".rst": "txt",
}  # fmt: skip
_NAMED_ONLY = re.compile(r"\.(md|rst)(\.gz|\.zst)?$", re.IGNORECASE)  # in a folder, they mostly describe the data
COMPRESSIONS = {".gz": "gz", ".zst": "zst"}
EXPECTED = f"{', '.join(FORMATS)}, all but .parquet also with {' or '.join(COMPRESSIONS)}"


class Piece(NamedTuple):
    """A part of a large file that can be read without the rest (`tlm.data.corpus.plan`).

    Attributes:
        start: Its first byte; in parquet files its first row group.
        stop: The byte, or row group, after its last one.
        row: How many lines, in parquet files rows, are before it.
        ranges: The bytes of the file that reading it takes.
        digest: The sha256 of these bytes.
    """

    start: int
    stop: int
    row: int
    ranges: Ranges
    digest: str


@dataclass
class RawFile:
    """A raw file on this machine, on S3 or on the Hub."""

    where: str  # path or address, for messages
    name: str  # base name, for ids and sources
    format: str  # a value of FORMATS, or "hub"
    compression: str = ""  # a value of COMPRESSIONS, or "" for none
    locate: Callable[[], Path] | None = None  # gives the path on this machine, after a download if necessary; not "hub"
    locate_ranges: Callable[[Ranges], Path] | None = None  # the same, with these bytes alone; only remote files
    piece: Piece | None = None  # if it is only a part of the file
    size: int = 0  # bytes on disk; 0 for a Hub data set, which is streamed
    modified: float = 0.0  # time of the last change, in seconds since 1970; 0 for a Hub data set
    cache: Path | None = None  # the folder that it is downloaded to
    extra: tuple[str, ...] = ()  # columns to read, too, if it is a parquet file that has them
    header: tuple[str, ...] = ()  # column names of a CSV or TSV file without a header
    bytes_read: int = 0  # on disk, so far
    _stamp: tuple[int, int] | None = None  # size and time of modification before it was read

    @property
    def stem(self) -> str:
        """The base name without the extensions for format and compression."""
        path = PurePosixPath(self.name)
        return PurePosixPath(path.stem).stem if self.compression else path.stem

    @property
    def path(self) -> Path:
        """The file on this machine, downloaded first if it is on S3."""
        assert self.locate is not None, "a Hub data set has no path"
        return self.locate()

    def digest(self) -> str:
        """Return the sha256 of the bytes, or address and commit of a Hub data set."""
        self.stamp()
        if self.locate is None:
            return hub_digest(self.where)
        return file_sha256(self.path, self.piece.ranges if self.piece else None)

    def drop(self) -> None:
        """Remove the download; the next use downloads it again."""
        if self.cache is not None:
            self.path.unlink()

    def stamp(self) -> None:
        """Note how large and how old the file is before it is read, for `check_unchanged`."""
        self._stamp = self._now() if self.locate else None

    def check_unchanged(self) -> None:
        """Raise InputError if the file changed since `stamp` or `digest`: what was read may be neither old nor new."""
        if self._stamp is not None and self._now() != self._stamp:
            raise InputError(f"{self.where} changed while it was read; repeat the step when nothing writes to it")

    def _now(self) -> tuple[int, int]:
        with suppress(FileNotFoundError):
            stat = self.path.stat()
            return stat.st_size, stat.st_mtime_ns
        return 0, 0  # it is gone, as reading it says


@contextmanager
def raw_files(paths: Sequence[str], *, together: bool = True) -> Iterator[list[RawFile]]:
    """Expand `paths` to files, without duplicates and sorted by `where`; downloads are removed at the end.

    A path is a file, a folder (searched recursively, except for names beginning with '.' or '_'), a pattern
    (`matches`), ``s3://bucket/`` with the same behind it, or ``hf://name[:split]``. What exists under exactly this
    name goes before a pattern.

    Args:
        paths: What to expand.
        together: Whether all are downloaded, so that the disk must have room for all of them.

    Raises:
        InputError: missing file, unknown extension, a glob or folder without a readable file, or not enough disk space
            for the downloads.
    """
    if not all(paths) or not paths:
        raise InputError("a path is missing or empty; give files, folders, globs or s3:// addresses")
    with ExitStack() as stack:
        found = {file.where: file for path in paths for file in _expand(path, stack)}
        files = [found[where] for where in sorted(found)]
        if together:
            check_downloads(files)
        yield files


def absolute(where: str, whole: Callable[[str], str] = os.path.abspath) -> PurePosixPath:
    """The whole path of a file or folder, or its address; with `os.path.realpath`, where links lead."""
    where = where.removeprefix("file://")
    return PurePosixPath(where if "://" in where else whole(where))


def fixed_part(path: str, files: Sequence[RawFile]) -> PurePosixPath:
    """The folder that a path names before its first pattern, whatever files there are: all `files` are below it."""
    plain = PurePosixPath(*takewhile(lambda name: not MAGIC.search(name), absolute(path).parts))
    return plain.parent if any(absolute(file.where) == plain for file in files) else plain


def check_room(files: Sequence[RawFile], folder: Path) -> None:
    """Raise InputError if the disk of `folder` has less space than the raw files take; the output takes more.

    Call it before the work begins, so that a full disk does not interrupt it later.
    """
    size, free = sum(file.size for file in files), shutil.disk_usage(folder).free
    if size > free:
        raise InputError(
            f"the {len(files)} raw files take {size / 1e9:,.3f} GB, the disk of {folder.parent} has "
            f"{free / 1e9:,.3f} GB free; free some space, use another disk or give fewer files"
        )


def check_downloads(files: Sequence[RawFile]) -> None:
    """Raise InputError if there is not enough disk space to download all of the files."""
    for cache in {file.cache for file in files if file.cache is not None}:
        check_room([file for file in files if file.cache == cache], cache)


def _expand(path: str, stack: ExitStack) -> list[RawFile]:
    scheme, separator, _ = path.partition("://")
    if separator and scheme == "s3":
        return _from_s3(path, stack)
    if separator and scheme == "hf":
        return [RawFile(path, hub_name(path), "hub")]
    if separator and scheme != "file":
        raise InputError(f"{path}: unknown scheme '{scheme}'; expected a path, file://…, s3://… or hf://…")
    return _from_disk(str(Path(path.removeprefix("file://"))))


def _from_disk(path: str) -> list[RawFile]:
    if Path(path).is_dir():
        return [file for name in _readable(path, _walk(path)) for file in _from_disk(str(Path(path) / name))]
    if Path(path).is_file():
        stat = Path(path).stat()
        return [_raw_file(path, lambda: Path(path), stat.st_size, modified=stat.st_mtime)]
    if Path(path).exists():
        raise InputError(f"{path} is not a regular file; expected a file or a folder")
    if Path(path).is_symlink():
        raise InputError(f"{path} is a broken or circular symbolic link; fix or remove it")
    if not MAGIC.search(path):
        parent = Path(path).parent
        siblings = [file.name for file in parent.iterdir() if file.exists()] if parent.is_dir() else []
        raise InputError(f"{path} does not exist{did_you_mean(Path(path).name, siblings) or '; check the path'}")
    found = _matching(path)
    if not found:
        raise InputError(f"{path} matches no file; check the pattern")
    return [file for match in sorted(found) for file in _from_disk(match)]


def _walk(folder: str, pattern: Sequence[str] = (ANY_DEPTH,)) -> list[str]:
    """List the files in a folder and its sub-folders, relative to it, as far as a pattern may match there.

    With a pattern of limited depth, folders are listed as well. Links to folders are followed only then: they may be
    circular.
    """
    found, links, limited = list[str](), list[str](), ANY_DEPTH not in pattern
    for place, folders, names in os.walk(folder, onerror=_cannot_list, followlinks=limited):
        at = Path(place).relative_to(folder)
        found += [str(at / name) for name in (*names, *(folders if limited else ()))]
        if not limited:
            links += [name for name in folders if (Path(place) / name).is_symlink() and name[0] not in "._"]
        folders[:] = [name for name in folders if may_hold_matches((*at.parts, name), pattern)]
    if links:
        say(f"{folder}: skipped symbolic links to folders: {some(links)}")
    return found


def _cannot_list(error: OSError) -> None:
    raise InputError(f"{error.filename} cannot be listed: {error.strerror}; check its permissions") from None


def _matching(pattern: str) -> list[str]:
    """List the files and folders on disk that match a pattern."""
    parts = Path(pattern).parts
    start = next(number for number, part in enumerate(parts) if MAGIC.search(part))
    base, parts = Path(*parts[:start]), parts[start:]
    names = _walk(str(base), parts) if base.is_dir() else []
    return [str(base / name) for name in names if matches(Path(name).parts, parts)]


def _from_s3(address: str, stack: ExitStack) -> list[RawFile]:
    from tlm.artifacts.stores.s3 import S3Store, leads_out

    bucket, _, key = address.removeprefix("s3://").partition("/")
    store = S3Store(f"s3://{bucket}")
    store.cache = stack.enter_context(scratch_folder(cache_folder() / "raw", "raw"))
    found = _on_s3(store, address, key.rstrip("/"))
    if any(leads_out(one.name) for one in found):
        raise InputError(f"{address}: a key has empty, '.' or '..' parts, which a file path cannot have; rename it")
    return [
        _raw_file(f"s3://{bucket}/{one.name}", partial(store.local, one.name, one.size), one.size, cache=store.cache,
                  modified=one.modified, locate_ranges=partial(store.local_ranges, one.name, one.size))
        for one in found
    ]  # fmt: skip


def _on_s3(store: Store, address: str, key: str) -> list[Stored]:
    """Return the objects that an address means: the one of that key, else those of a folder, else of a pattern.

    As on disk, empty parts and "." mean nothing, unless there is an object or folder of exactly that name.
    """
    there = _objects(store, key)
    if key in there:
        return [there[key]]
    if not key or any(name.startswith(f"{key}/") for name in there):
        return [there[name] for name in _inside(store, key, there)]
    plain = "/".join(part for part in key.split("/") if part not in ("", "."))
    if key != plain:
        return _on_s3(store, address, plain)
    if not MAGIC.search(key):
        raise InputError(
            f"{address} is neither an object nor a folder; check the bucket and the key, or give {store.root}/{key}* "
            "for all objects whose keys begin so"
        )
    pattern, there = key.split("/"), _objects(store, MAGIC.split(key)[0])
    chosen = [name for name in there if matches(name.split("/"), pattern)]
    chosen += [name for folder in matching_folders(there, pattern) for name in _inside(store, folder, there)]
    if not chosen:
        raise InputError(f"{address} matches no object; check the bucket and the pattern")
    return [there[name] for name in dict.fromkeys(chosen)]


def _objects(store: Store, prefix: str) -> dict[str, Stored]:
    return {stored.name: stored for stored in store.list(prefix) if not stored.name.endswith("/")}


def _inside(store: Store, folder: str, keys: Iterable[str]) -> list[str]:
    """Select the keys in a folder that can be read."""
    start = f"{folder}/" if folder else ""
    names = [key.removeprefix(start) for key in keys if key.startswith(start)]
    return [start + name for name in _readable(f"{store.root}/{folder}", names)]


def _readable(folder: str, names: list[str]) -> list[str]:
    """Select the names in a folder that have an extension of data; says which are skipped."""
    visible = [name for name in names if not re.search(r"(^|/)[._]", name)]
    prose = {name for name in visible if _NAMED_ONLY.search(name)}
    known = [name for name in visible if _kind(name) and name not in prose]
    other = [PurePosixPath(name).name for name in visible if not _kind(name) or name in prose]
    hint = f"; to read .md or .rst, give a pattern such as {folder.rstrip('/')}/**/*.md" if prose else ""
    if not known:
        raise InputError(f"{folder} has no readable file; expected {EXPECTED}{hint}")
    if other:
        say(f"{folder}: skipped files with other extensions: {some(other)}{hint}")
    return known


def some(names: list[str]) -> str:
    """The first five names, for a message."""
    return ", ".join(names[:5]) + " …" * (len(names) > 5)


def _raw_file(where: str, locate: Callable[[], Path], size: int, **remote: Any) -> RawFile:
    if not is_utf8(where):
        raise InputError(f"{where}: the name is not valid UTF-8; rename the file or its folder")
    kind = _kind(where)
    if kind is None:
        raise InputError(f"{where}: unknown extension; expected {EXPECTED}")
    return RawFile(where, PurePosixPath(where).name, *kind, locate, size=size, **remote)


def _kind(name: str) -> tuple[str, str] | None:
    """Return format and compression by extension: ('jsonl', 'gz') for ``x.jsonl.gz``; None if it is not known."""
    path = PurePosixPath(name.lower())
    compression = COMPRESSIONS.get(path.suffix, "")
    format_ = FORMATS.get(PurePosixPath(path.stem).suffix if compression else path.suffix)
    return None if format_ is None or (format_ == "parquet" and compression) else (format_, compression)
