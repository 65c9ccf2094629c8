"""The end: judge the rejected rows of all parts, publish the corpus, and remove what was on the way to it."""

from collections.abc import Iterator

import pyarrow.parquet as pq

from tlm.artifacts.artifact import Artifact, remove
from tlm.artifacts.manifest import FileEntry
from tlm.artifacts.produce import Draft, produce
from tlm.data.parts.dedup import BUCKET
from tlm.data.parts.plan import Plan
from tlm.data.parts.shards import SHARDS
from tlm.data.parts.stage import PART
from tlm.data.reading.records import REJECTED_FILE, Rejects
from tlm.data.registry import compare_corpus


def publish(plan: Plan, max_rejected: int) -> str:
    """Publish the corpus. Raises InputError: too many rejected rows; a part is not there."""
    uri = produce(plan.corpus, plan.root, lambda draft: _write(draft, plan, max_rejected))
    for kind, count in ((SHARDS, len(plan.parts)), (BUCKET, plan.buckets), (PART, len(plan.parts))):
        store = Artifact.open(uri).store
        for number in range(count):
            remove(store, f"{kind}/{plan.recipe(kind, number).key}")
    return uri


def _write(draft: Draft, plan: Plan, max_rejected: int) -> None:
    rejects, staged = Rejects(max_rejected), 0
    for part in _all(plan, PART):
        rows = pq.read_table(part.path(REJECTED_FILE))
        rejects.take(rows, part.counts["read"], part.counts["by file"])
        staged += part.details["passages"]
    rejects.check()
    compare_corpus(rejects.read_by_file)
    draft.published = [FileEntry(**entry) for one in _all(plan, SHARDS) for entry in one.details["files"]]
    finish(draft, rejects, staged, sum(entry.rows or 0 for entry in draft.published))


def _all(plan: Plan, kind: str) -> Iterator[Artifact]:
    return (plan.found(kind, number) for number in range(len(plan.parts)))


def finish(draft: Draft, rejects: Rejects, staged: int, total: int) -> None:
    """Add the rejected rows and the counts."""
    draft.counts |= {"read": rejects.read, "documents": rejects.read - len(rejects), "passages": total}
    draft.counts["duplicates"] = staged - total
    rejects.write(draft)
    draft.details["passages"] = total
