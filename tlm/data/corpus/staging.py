"""Read each part of the files, and find the passages that repeat an earlier one, in constant memory."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import chain, islice
from math import inf
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tlm.artifacts.produce import Draft, finished, produce
from tlm.artifacts.stores.store import ArtifactKind
from tlm.data.corpus.plan import BUCKET, LICENSED, PART, STAGED, Plan, passages
from tlm.data.parallel import each
from tlm.data.passages import Shards
from tlm.data.ranges import Ints
from tlm.data.reading.files import RawFile, check_room, raw_files
from tlm.data.reading.readers import read_all
from tlm.data.reading.records import REJECTED_FILE, Rejects
from tlm.data.text import fold
from tlm.settings.options import Layout

ROWS = 10_000  # at a time
STAGED_FILES = "staged-*.parquet"
DIGESTS = "digests-{:03d}.bin"
_RECORD = np.dtype([("digest", "S16"), ("row", "<i8")])


def stage(folder: Path, rows: Iterable[tuple[Any, ...]], schema: pa.Schema, buckets: int = 64) -> dict[str, int]:
    """Write rows to the files staged-00000.parquet… of a folder, and the digests of their texts to digests-000.bin….

    Texts are the same if they are equal by `fold`. Their digests are distributed by the first two bytes, so that one
    file at a time can be sorted in memory.

    Args:
        folder: Where the files are written.
        rows: The rows.
        schema: Their columns, with one called ``text``.
        buckets: The number of files for digests, a power of two up to 65,536.

    Returns:
        The number of rows by file.
    """
    rows, shards = iter(rows), Shards(folder, "staged", compression="lz4")
    with ExitStack() as stack:
        files = [stack.enter_context((folder / DIGESTS.format(bucket)).open("wb")) for bucket in range(buckets)]
        while portion := list(islice(rows, ROWS)):
            table = pa.table(list(zip(*portion, strict=True)), schema=schema)
            _note(table["text"].to_pylist(), shards.total, files)
            shards.add(table)
    return shards.close()


def _note(texts: Sequence[str], first: int, files: Sequence[BinaryIO]) -> None:
    """Write the digests of texts, whose rows are numbered from `first` on."""
    digests = [hashlib.blake2b(fold(text).encode(), digest_size=16).digest() for text in texts]
    records = np.empty(len(digests), _RECORD)
    records["digest"], records["row"] = digests, np.arange(first, first + len(digests))
    buckets = np.frombuffer(b"".join(digests), "<u2")[::8] % len(files)
    for bucket in np.unique(buckets):
        files[bucket].write(records[buckets == bucket].tobytes())


def repeats_in(folder: Path) -> Ints:
    """The rows of a stage whose text an earlier row has, ascending."""
    return np.sort(np.concatenate([repeated([path])[0] for path in folder.glob("digests-*.bin")]))


def repeated(bucket: Sequence[Path]) -> list[Ints]:
    """Find, for each of several stages, the rows whose text an earlier row of this or an earlier stage has.

    Args:
        bucket: The same file of digests of each stage.
    """
    records = [np.fromfile(path, _RECORD) for path in bucket]
    digests = np.concatenate([part["digest"] for part in records])
    repeats = np.ones(len(digests), np.bool_)
    repeats[np.unique(digests, return_index=True)[1]] = False  # the index of the first
    ends = np.cumsum([len(part) for part in records])
    return [part["row"][mask] for part, mask in zip(records, np.split(repeats, ends[:-1]), strict=True)]


def distinct(
    tables: Mapping[str, int], path: Callable[[str], Path], repeats: Ints, start: int = 0, stop: float = inf
) -> Iterator[pa.Table]:
    """Stream staged rows from `start` to `stop`, without the repeated ones, at most 10,000 at a time.

    Args:
        tables: Number of rows by file.
        path: The path of a file; called only for the files that are needed.
        repeats: Which rows repeat an earlier one, ascending.
        start: How many of the others to leave out.
        stop: After how many of the others to end.
    """
    row = kept = 0
    for name, rows in tables.items():
        first, last = np.searchsorted(repeats, (row, row + rows))
        stays = np.ones(rows, np.bool_)
        stays[repeats[first:last] - row] = False
        numbers = kept - 1 + np.cumsum(stays)
        row, kept = row + rows, kept + rows - int(last - first)
        stays &= (start <= numbers) & (numbers < stop)
        if stays.any():
            yield from _filtered(path(name), stays)


def _filtered(path: Path, stays: NDArray[np.bool_]) -> Iterator[pa.Table]:
    """Stream the rows of a file that stay."""
    with pq.ParquetFile(path) as table:
        for batch in table.iter_batches(ROWS, use_threads=False):  # threads keep memory of their own
            yield pa.Table.from_batches([batch]).filter(pa.array(stays[: len(batch)]))
            stays = stays[len(batch) :]


def make(
    plan: Plan, kind: ArtifactKind, write: Callable[[Draft, Plan, int], None], numbers: Iterable[int], label: str
) -> None:
    """Make the results of this kind on the way to a corpus. Finished ones, and all of a finished corpus, are skipped.

    The results on the way may be gone once the corpus is finished, by an equal run perhaps.
    """
    if finished(plan.corpus, plan.root) is None:
        each(partial(_make, plan, kind, write), list(numbers), label, "buckets" if kind == BUCKET else "parts")


def _make(plan: Plan, kind: ArtifactKind, write: Callable[[Draft, Plan, int], None], number: int) -> None:
    recipe = plan.recipe(kind, number)
    if finished(recipe, plan.root) is None:
        produce(recipe, plan.root, write, plan, number)


ANY_NUMBER = 1 << 62  # of rejected rows: they are judged over all parts


def stage_parts(plan: Plan, max_rejected: int, numbers: Iterable[int]) -> None:
    """Read these parts."""
    make(plan, PART, partial(_write_staged, max_rejected), numbers, "reading")


def staged(
    folder: Path, files: Sequence[RawFile], layout: Layout, rejects: Rejects, buckets: int = 64
) -> dict[str, int]:
    """Write the passages of files to a folder, as `stage` does; rows that cannot be used go to `rejects`."""
    found = read_all(files, layout.fields, rejects, partial(passages, layout))
    return stage(folder, chain.from_iterable(found), LICENSED if layout.license_field else STAGED, buckets)


def _write_staged(max_rejected: int, draft: Draft, plan: Plan, number: int) -> None:
    rejects = Rejects(max_rejected if number == 0 else ANY_NUMBER)  # too many of the very first rows end the work
    with raw_files(plan.paths, together=False) as files:
        own = plan.files(files, number)
        check_room(own, draft.folder)
        draft.rows = staged(draft.folder, own, plan.layout, rejects, plan.buckets)
    pq.write_table(rejects.table(), draft.folder / REJECTED_FILE, compression="zstd")
    draft.counts = {"read": rejects.read, "by file": dict(rejects.read_by_file)}
    draft.details["passages"] = sum(draft.rows.values())


def dedup_buckets(plan: Plan) -> None:
    """Find the texts that repeat an earlier one, bucket by bucket."""
    make(plan, BUCKET, _write_bucket, plan.numbers(BUCKET), "comparing")


def _write_bucket(draft: Draft, plan: Plan, number: int) -> None:
    """Write the rows of each part that repeat an earlier text, and how many they are."""
    parts = [(part, part.entries(DIGESTS.format(number))[0]) for part in plan.all(PART)]
    found = repeated([part.verified(entry) for part, entry in parts])
    for part, entry in parts:
        part.store.forget(f"{part.folder_name}/{entry.name}")
    for place, rows in enumerate(found):
        if len(rows):
            name = f"part-{place:05d}.npy"
            np.save(draft.folder / name, rows)
            draft.rows[name] = len(rows)
