"""Exact deduplication of any number of texts in little memory: digests go to files by their first bits."""

import hashlib
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tlm.data.text import fold_clean

_RECORD = np.dtype([("high", "<u8"), ("low", "<u8"), ("ordinal", "<i8")])
BUCKETS = 64  # files open at once; each holds 1/64 of the digests and is sorted in memory


def digest(text: str) -> bytes:
    """16 bytes of a normalised text, equal for texts that are equal by `fold` (128 bits of BLAKE2b)."""
    return hashlib.blake2b(fold_clean(text).encode(), digest_size=16).digest()


class Seen:
    """Digests by ordinal, in `buckets` files (a power of two) under `folder`; then, which ordinals are repeats."""

    def __init__(self, folder: Path, buckets: int = BUCKETS) -> None:
        self.count = 0
        self._paths = [folder / f"digests-{bucket:03d}" for bucket in range(buckets)]
        self._files = [path.open("wb") for path in self._paths]

    def add(self, digests: list[bytes]) -> None:
        """Append the digests of the next ordinals."""
        records = np.empty(len(digests), _RECORD)
        halves = np.frombuffer(b"".join(digests), "<u8").reshape(-1, 2)
        records["high"], records["low"] = halves[:, 0], halves[:, 1]
        records["ordinal"] = np.arange(self.count, self.count + len(digests))
        self.count += len(digests)
        bucket = (records["high"] % len(self._files)).astype(np.intp)
        order = np.argsort(bucket, kind="stable")
        ends = np.searchsorted(bucket[order], np.arange(len(self._files)), side="right")
        for file, part in zip(self._files, np.split(records[order], ends[:-1]), strict=True):
            file.write(part.tobytes())

    def firsts(self) -> npt.NDArray[np.bool_]:
        """For each ordinal, whether no smaller one has the same digest. Ends the adding."""
        for file in self._files:
            file.close()
        first = np.ones(self.count, np.bool_)
        for repeats in map(_repeats, self._paths):
            first[repeats] = False
        return first


def _repeats(path: Path) -> npt.NDArray[np.int64]:
    records = np.fromfile(path, _RECORD)
    high, low = records["high"].copy(), records["low"].copy()
    order = np.lexsort((low, high))  # stable: of equal digests the smallest ordinal stays first
    high, low = high[order], low[order]
    same = (high[1:] == high[:-1]) & (low[1:] == low[:-1])
    repeats: npt.NDArray[np.int64] = records["ordinal"][order[1:][same]]
    return repeats
