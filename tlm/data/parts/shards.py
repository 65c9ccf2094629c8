"""Third: write the passages that stay, numbered through, in the same shards as one process writes."""

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np
import pyarrow as pa

from tlm.artifacts.artifact import Artifact
from tlm.artifacts.home import home
from tlm.artifacts.manifest import FileEntry, seal
from tlm.artifacts.produce import Draft, finished, produce
from tlm.data.parts.dedup import BUCKET
from tlm.data.parts.parallel import each
from tlm.data.parts.plan import Plan
from tlm.data.parts.stage import PART
from tlm.data.ranges import Ints, offsets_of
from tlm.data.shards import GROUP_ROWS, GROUPS, Shards, numbered
from tlm.data.stage import STAGED_FILES, distinct

SHARDS: Final = "corpus-shards"
SHARD_ROWS = GROUPS * GROUP_ROWS


class Kept:
    """The passages that stay, over all parts.

    Attributes:
        parts: The parts, in order.
        offsets: For each part the number (`doc`) of its first passage that stays, and the number of all passages.
    """

    def __init__(self, plan: Plan) -> None:
        self.parts = [plan.found(PART, number) for number in range(len(plan.parts))]
        self._repeats: list[list[tuple[Artifact, FileEntry]]] = [[] for _ in self.parts]
        for bucket in (plan.found(BUCKET, number) for number in range(plan.buckets)):
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
    """Write the shards that begin in these parts; those that are written already are left alone."""
    each(partial(_write_part, plan), list(numbers), "writing", "parts")


def _write_part(plan: Plan, number: int) -> None:
    recipe = plan.recipe(SHARDS, number)
    if finished(recipe, plan.root) is None:
        produce(recipe, plan.root, lambda draft: _write(draft, plan, Kept(plan), number))


def _write(draft: Draft, plan: Plan, passages: Kept, number: int) -> None:
    """Put the shards into the folder of the corpus, which does not exist for readers before its manifest does."""
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
