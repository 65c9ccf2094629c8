"""Exact deduplication of any number of texts in little memory: digests are distributed to files by their first byte."""

import hashlib
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tlm.data.text import fold_clean

_RECORD = np.dtype([("digest", "S16"), ("ordinal", "<i8")])
BUCKETS = 64  # open files; each holds 1/64 of the digests and is sorted in memory


def digest(text: str) -> bytes:
    """Return 16 bytes (BLAKE2b) that are equal for normalised texts that are equal by `fold`."""
    return hashlib.blake2b(fold_clean(text).encode(), digest_size=16).digest()


class Seen:
    """Collects digests in `buckets` files (a power of two) in `folder`, then finds the first of each."""

    def __init__(self, folder: Path, buckets: int = BUCKETS) -> None:
        self.count = 0
        self._paths = [folder / f"digests-{bucket:03d}" for bucket in range(buckets)]
        self._files = [path.open("wb") for path in self._paths]

    def add(self, digests: list[bytes]) -> None:
        """Append the digests of the next ordinals."""
        records = np.empty(len(digests), _RECORD)
        records["digest"] = digests
        records["ordinal"] = np.arange(self.count, self.count + len(digests))
        self.count += len(digests)
        bucket = np.frombuffer(b"".join(digests), np.uint8)[::16] % len(self._files)
        for number, file in enumerate(self._files):
            file.write(records[bucket == number].tobytes())

    def firsts(self) -> npt.NDArray[np.bool_]:
        """Tell for each ordinal whether no smaller one has the same digest. No digests can be added afterwards."""
        first = np.zeros(self.count, np.bool_)
        for file, path in zip(self._files, self._paths, strict=True):
            file.close()
            records = np.fromfile(path, _RECORD)
            _, index = np.unique(records["digest"], return_index=True)  # of the first, as ordinals ascend
            first[records["ordinal"][index]] = True
        return first
