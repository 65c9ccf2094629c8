"""Bytes and lines of raw files: plain, gzip with any number of members, zstd with any number of frames."""

import gzip
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import zstandard

from tlm.errors import InputError

LONGEST_LINE = 64 << 20  # bytes; a longer one is no record but a file of another kind
_CHUNK = 1 << 17
_WINDOW = 1 << 31  # frames of `zstd --long=31`, as large text collections have
_BOM = b"\xef\xbb\xbf"


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


def lines(stream: io.BufferedReader, where: str) -> Iterator[tuple[int, bytes]]:
    """Numbered lines, from 1, with their ends; a byte order mark is taken off. Raises InputError above LONGEST_LINE."""
    for number, line in enumerate(iter(lambda: stream.readline(LONGEST_LINE), b""), start=1):
        if len(line) == LONGEST_LINE:
            raise InputError(
                f"{where}:{number}: the line is longer than {LONGEST_LINE >> 20} MiB; expected one record a line"
            )
        yield number, line.removeprefix(_BOM) if number == 1 else line


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
        self._compressed = b""
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
        data = self._compressed or self._raw.read(_CHUNK)
        if not data:
            if self._frame is not None:
                raise EOFError("the last zstd frame has no end")
            return False
        frame = self._frame or zstandard.ZstdDecompressor(max_window_size=_WINDOW).decompressobj()
        self._plain = memoryview(frame.decompress(data))
        self._compressed = frame.unused_data if frame.eof else b""
        self._frame = None if frame.eof else frame
        return True
