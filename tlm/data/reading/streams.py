"""Bytes and lines of raw files: plain, gzip with any number of members, zstd with any number of frames.

Memory stays bounded whatever a file holds: no line is longer than `LONGEST_LINE`, and nothing is unpacked at one go.
"""

import gzip
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import zstandard

from tlm.errors import InputError

LONGEST_LINE = 64 << 20  # bytes; a longer one is no record but a file of another kind
BOMB_BYTES = 256 << 20  # a file may grow to so much ...
BOMB_RATIO = 250  # ... or to so many times its size; text shrinks to a third or a tenth
_CHUNK = 1 << 17
_MOUTHFUL = 1 << 11  # bytes of zstd unpacked at a time: four bytes of it can hold 128 KiB, so these 64 MiB
_WINDOW = 1 << 31  # frames of `zstd --long=31`, as large text collections have
_BOM = b"\xef\xbb\xbf"
_OTHER_KINDS = {
    "UTF-16 or UTF-32 text": rb"\xff\xfe|\xfe\xff|\0\0\xfe\xff",
    "gzip data": rb"\x1f\x8b",
    "zstd data": rb"\x28\xb5\x2f\xfd",
    "bzip2 data": rb"BZh[1-9]1AY&SY",
    "xz data": rb"\xfd7zXZ\0",
    "a zip archive or a spreadsheet": rb"PK\x03\x04",
    "parquet": rb"PAR1\x15",
}


class Tally:
    """How many bytes of a file (as it lies on the disk) have been read: for showing progress."""

    def __init__(self) -> None:
        self.bytes = 0


@contextmanager
def opened(path: Path, compression: str, tally: Tally) -> Iterator[io.BufferedReader]:
    """The decompressed bytes of `path`; `compression` is '', 'gz' or 'zst'. EOFError when a cut-off end is reached."""
    with path.open("rb", buffering=0) as file:
        raw: io.RawIOBase = _Counted(file, tally)
        if compression == "gz":
            raw = gzip.GzipFile(fileobj=io.BufferedReader(raw, _CHUNK))  # type: ignore[assignment]
        elif compression == "zst":
            raw = _Zstd(raw)
        yield io.BufferedReader(raw, _CHUNK)


def lines(stream: io.BufferedReader, where: str, tally: Tally) -> Iterator[tuple[int, bytes]]:
    """Numbered lines, from 1, with their ends; a byte order mark is taken off.

    Raises InputError: no text in UTF-8 by its first bytes, a line above LONGEST_LINE, a decompression bomb.
    """
    _check_kind(stream.peek(_CHUNK), where)
    size = 0
    for number, line in enumerate(iter(lambda: stream.readline(LONGEST_LINE), b""), start=1):
        size += len(line)
        if len(line) == LONGEST_LINE:
            raise InputError(
                f"{where}:{number}: the line is longer than {LONGEST_LINE >> 20} MiB; expected one record a line"
            )
        check_growth(size, tally.bytes, where)
        yield number, line.removeprefix(_BOM) if number == 1 else line


def check_growth(size: int, packed: int, where: str) -> None:
    """Raise InputError if `packed` bytes of a file became so many, `size`, that it must be a decompression bomb."""
    if size > BOMB_BYTES and size > BOMB_RATIO * packed:
        raise InputError(
            f"{where} grows to more than {BOMB_RATIO} times its size, as no text does but a decompression bomb; "
            "see what is in it and give it unpacked"
        )


def _check_kind(head: bytes, where: str) -> None:
    found = next((kind for kind, magic in _OTHER_KINDS.items() if re.match(magic, head)), None)
    if found is None and head.count(0) > len(head) // 4:
        found = "UTF-16 text or no text at all (every second byte or so is 0)"
    if found is not None:
        raise InputError(f"{where} is {found}, whatever its name says; convert it to UTF-8, or mend its extension")
    if b"\r" in head and b"\n" not in head:
        raise InputError(f"{where}: lines end with \\r alone, as on old Macs; convert them to \\n (tr '\\r' '\\n')")


class _Counted(io.RawIOBase):
    def __init__(self, file: io.FileIO, tally: Tally) -> None:
        self._file, self._tally = file, tally

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        size = self._file.readinto(buffer) or 0
        self._tally.bytes += size
        return size


class _Zstd(io.RawIOBase):
    """The zstandard package's own stream reader takes a cut-off file for a whole one; this one does not."""

    def __init__(self, raw: io.RawIOBase) -> None:
        self._raw = raw
        self._frame: zstandard.ZstdDecompressionObj | None = None
        self._compressed = memoryview(b"")
        self._plain = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._plain:
            if not self._decompress():
                return 0
        size = min(len(buffer), len(self._plain))
        buffer[:size] = self._plain[:size]
        self._plain = self._plain[size:]
        return size

    def _decompress(self) -> bool:
        if not self._compressed:
            self._compressed = memoryview(self._raw.read(_CHUNK) or b"")
        if not self._compressed:
            if self._frame is not None:
                raise EOFError("the last zstd frame has no end")
            return False
        frame = self._frame or zstandard.ZstdDecompressor(max_window_size=_WINDOW).decompressobj()
        mouthful = self._compressed[:_MOUTHFUL]
        self._plain = memoryview(frame.decompress(mouthful))
        self._compressed = self._compressed[len(mouthful) - (len(frame.unused_data) if frame.eof else 0) :]
        self._frame = None if frame.eof else frame
        return True
