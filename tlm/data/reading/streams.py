"""Lines of raw files: plain, gzip (any number of members) or zstd (any number of frames).

Memory is bounded whatever a file holds: lines are limited to `LONGEST_LINE` and files are decompressed in small chunks.
"""

import gzip
import io
import re
from collections.abc import Iterator
from typing import Any

from backports import zstd

from tlm.data.reading.files import RawFile
from tlm.errors import InputError

LONGEST_LINE = 64 << 20  # bytes; a file with longer lines does not hold one record per line
BOMB_BYTES = 256 << 20  # below this size, or ...
BOMB_RATIO = 250  # ... this compression ratio, a file is no decompression bomb; text is compressed 3 to 10 times
_BUFFER = 1 << 17
_ZSTD = {zstd.DecompressionParameter.window_log_max: 31}  # large text collections are compressed with `zstd --long=31`
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


def lines(file: RawFile) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file, or of a piece, with their line ends but without a byte order mark.

    They are numbered as in the whole file, from 1.

    Raises:
        InputError: the first bytes are not UTF-8 text, a line exceeds LONGEST_LINE, or a decompression bomb.
        EOFError: the compressed data end too early.
    """
    with io.FileIO(file.path) as raw:
        stream: io.BufferedReader[Any] = io.BufferedReader(raw, _BUFFER)
        if file.compression == "gz":
            stream = io.BufferedReader(gzip.GzipFile(fileobj=stream), _BUFFER)  # type: ignore[arg-type]
        elif file.compression == "zst":
            stream = io.BufferedReader(zstd.ZstdFile(stream, options=_ZSTD), _BUFFER)  # type: ignore[arg-type]
        start, end, before = (file.piece.start, file.piece.stop, file.piece.row) if file.piece else (0, None, 0)
        if start == 0:
            _check_kind(stream.peek(_BUFFER), file.where)
        else:
            stream.seek(start)
        size = 0
        for number, line in enumerate(iter(lambda: stream.readline(LONGEST_LINE), b""), start=before + 1):
            size += len(line)
            file.bytes_read = raw.tell() - start
            if len(line) == LONGEST_LINE:
                raise too_long(file.where, number)
            check_growth(size, file.bytes_read, file.where)
            yield number, line.removeprefix(_BOM) if number == 1 else line
            if start + size == end:
                return


def too_long(where: str, line: int) -> InputError:
    """Return the error for a line of `LONGEST_LINE` bytes or more."""
    return InputError(f"{where}:{line}: the line is longer than {LONGEST_LINE >> 20} MiB; expected one record per line")


def check_growth(size: int, packed: int, where: str) -> None:
    """Raise InputError if `packed` bytes of a file expand to so many bytes (`size`) that it is a decompression bomb."""
    if size > BOMB_BYTES and size > BOMB_RATIO * packed:
        raise InputError(
            f"{where} expands to more than {BOMB_RATIO} times its size, so it looks like a decompression bomb, not "
            "text; inspect it and provide it uncompressed"
        )


def _check_kind(head: bytes, where: str) -> None:
    found = next((kind for kind, magic in _OTHER_KINDS.items() if re.match(magic, head)), None)
    if found is None and head.count(0) > len(head) // 4:
        found = "UTF-16 text or binary data (many of its bytes are 0)"
    if found is not None:
        raise InputError(f"{where} is {found}, despite its extension; convert it to UTF-8 text or fix the extension")
    if b"\r" in head and b"\n" not in head:
        raise InputError(
            f"{where}: lines end with \\r only (classic Mac OS); convert the line ends to \\n (tr '\\r' '\\n')"
        )
