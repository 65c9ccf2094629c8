"""Write the passages that stay, numbered through, and publish the corpus."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tlm.artifacts.artifact import Artifact, FileEntry, home, remove, seal
from tlm.artifacts.produce import Draft, produce
from tlm.artifacts.stores.store import ArtifactKind
from tlm.data.corpus.plan import BUCKET, PART, SHARDS, Plan
from tlm.data.corpus.staging import STAGED_FILES, distinct, make
from tlm.data.passages import GROUP_ROWS, GROUPS, Shards, numbered
from tlm.data.ranges import Ints, offsets_of
from tlm.data.reading.records import REJECTED_FILE, Rejects
from tlm.data.registry import compare_corpus
from tlm.errors import InputError, Interrupted

ON_THE_WAY: tuple[ArtifactKind, ...] = (SHARDS, BUCKET, PART)  # in the order in which they are removed
SHARD_ROWS = GROUPS * GROUP_ROWS


class Kept:
    """The passages that stay, over all parts.

    Attributes:
        parts: The parts, in order.
        offsets: For each part the number (`doc`) of its first passage that stays, and the number of all passages.
    """

    def __init__(self, plan: Plan) -> None:
        self.parts = list(plan.all(PART))
        self._repeats: list[list[tuple[Artifact, FileEntry]]] = [[] for _ in self.parts]
        for bucket in plan.all(BUCKET):
            for entry in bucket.entries():
                self._repeats[int(Path(entry.logical).stem.removeprefix("part-"))].append((bucket, entry))
        lengths = [
            part.details["passages"] - sum(entry.rows or 0 for _, entry in repeats)
            for part, repeats in zip(self.parts, self._repeats, strict=True)
        ]
        self.offsets = offsets_of(np.array(lengths))

    def read(self, start: int, stop: int) -> Iterator[pa.Table]:
        """Stream the passages whose numbers are ``start, …, stop - 1``."""
        for number, part in enumerate(self.parts):
            first, end = self.offsets[number], self.offsets[number + 1]
            if first < stop and end > start:
                entries = {entry.logical: entry for entry in part.entries(STAGED_FILES)}
                tables = {name: entry.rows or 0 for name, entry in entries.items()}
                own = int(max(start - first, 0)), int(min(stop, end) - first)
                yield from distinct(tables, lambda name: part.verified(entries[name]), self._rows(number), *own)  # noqa: B023

    def _rows(self, number: int) -> Ints:
        """The rows of a part that repeat an earlier text, ascending."""
        found = [np.load(bucket.verified(entry)) for bucket, entry in self._repeats[number]]
        return np.sort(np.concatenate([np.empty(0, np.int64), *found]))


def write_shards(plan: Plan, numbers: Iterable[int]) -> None:
    """Write the shards that begin in these parts."""
    make(plan, SHARDS, _write_shards, numbers, "writing")


def _write_shards(draft: Draft, plan: Plan, number: int) -> None:
    """Put the shards into the folder of the corpus, which does not exist for readers before its manifest does."""
    passages = Kept(plan)
    first, last = (-(-int(offset) // SHARD_ROWS) for offset in passages.offsets[number : number + 2])
    with TemporaryDirectory(prefix="shards-", dir=draft.folder) as name:
        folder, store = Path(name), home(plan.root, ())
        shards = Shards(folder, "passages", first=first)
        doc = first * SHARD_ROWS
        for table in passages.read(doc, min(last * SHARD_ROWS, int(passages.offsets[-1]))):
            shards.add(numbered(table, doc))
            doc += len(table)
        entries = seal(folder, shards.close())
        for entry in entries:
            store.add(f"corpus/{plan.key}/{entry.name}", folder / entry.name)
    draft.details["files"] = [entry.model_dump() for entry in entries]


def publish(plan: Plan, max_rejected: int) -> str:
    """Publish the corpus, unless it is there already, and remove the results on the way to it.

    Raises:
        InputError: too many rejected rows, or a part is not there.
        Interrupted: shards are gone that were written, after a week perhaps; repeating writes them again.
    """
    uri = produce(plan.corpus, plan.root, _write, plan, max_rejected)
    store = home(plan.root, ())
    last = plan.recipe(PART, len(plan.parts) - 1).key
    if not any(store.list(f"{PART}/{last}/")):  # it goes last
        return uri
    for kind in ON_THE_WAY:
        for number in plan.numbers(kind):
            remove(store, f"{kind}/{plan.recipe(kind, number).key}")
    return uri


def _write(draft: Draft, plan: Plan, max_rejected: int) -> None:
    rejects, staged = Rejects(max_rejected), 0
    for part in plan.all(PART):
        rows = pq.read_table(part.path(REJECTED_FILE))
        rejects.take(rows, part.counts["read"], part.counts["by file"])
        staged += part.details["passages"]
    rejects.check()
    compare_corpus(rejects.read_by_file)
    draft.published = list(_written(plan))
    draft.run |= {"parts": len(plan.parts), "parts_process_seconds": _process_seconds(plan)}
    finish(draft, rejects, staged, sum(entry.rows or 0 for entry in draft.published))


def _written(plan: Plan) -> Iterator[FileEntry]:
    """List the shards, and raise Interrupted if one is gone."""
    folder, lost = f"corpus/{plan.key}", 0
    store = home(plan.root, ())
    there = {stored.name for stored in store.list(f"{folder}/")}
    for shards in plan.all(SHARDS):
        files = [FileEntry(**entry) for entry in shards.details["files"]]
        if all(f"{folder}/{file.name}" in there for file in files):
            yield from files
        else:
            remove(store, shards.folder_name)
            lost += 1
    if lost:
        raise Interrupted(f"shards of {lost} parts are gone from {store.root}/{folder}; repeat to write them again")


def _process_seconds(plan: Plan) -> float | None:
    """The CPU seconds of all results on the way; None if one of them is gone or did not note them."""
    try:
        seconds = (float(made.run()["process_seconds"]) for kind in ON_THE_WAY for made in plan.all(kind))
        return round(sum(seconds), 3)
    except (InputError, KeyError):
        return None


def finish(draft: Draft, rejects: Rejects, staged: int, total: int) -> None:
    """Add the rejected rows and the counts."""
    draft.counts |= {"read": rejects.read, "documents": rejects.read - len(rejects), "passages": total}
    draft.counts["duplicates"] = staged - total
    rejects.write(draft)
    draft.details["passages"] = total
