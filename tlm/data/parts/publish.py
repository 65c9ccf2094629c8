"""Last: judge the rejected rows of all parts, publish the corpus, and remove what was on the way to it."""

from collections.abc import Iterator

import pyarrow.parquet as pq

from tlm.artifacts.artifact import Artifact, remove
from tlm.artifacts.home import home
from tlm.artifacts.kinds import ArtifactKind
from tlm.artifacts.manifest import FileEntry
from tlm.artifacts.produce import Draft, produce
from tlm.data.parts.dedup import BUCKET
from tlm.data.parts.plan import Plan
from tlm.data.parts.shards import SHARDS
from tlm.data.parts.stage import PART
from tlm.data.reading.records import REJECTED_FILE, Rejects
from tlm.data.registry import compare_corpus
from tlm.errors import InputError, Interrupted


def publish(plan: Plan, max_rejected: int) -> str:
    """Publish the corpus, unless it is there already, and remove what was on the way to it.

    Raises:
        InputError: too many rejected rows, or a part is not there.
        Interrupted: shards are gone that were written, after a week perhaps; repeating writes them again.
    """
    uri = produce(plan.corpus, plan.root, _write, plan, max_rejected)
    store = home(plan.root, ())
    last = plan.recipe(PART, len(plan.parts) - 1).key
    if not any(store.list(f"{PART}/{last}/")):  # it goes last
        return uri
    for kind, number in _on_the_way(plan):
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
    draft.published = list(_written(plan))
    draft.run |= {"parts": len(plan.parts), "parts_process_seconds": _process_seconds(plan)}
    finish(draft, rejects, staged, sum(entry.rows or 0 for entry in draft.published))


def _written(plan: Plan) -> Iterator[FileEntry]:
    """The shards, all of which must still be there."""
    folder, lost = f"corpus/{plan.key}", 0
    store = home(plan.root, ())
    there = {stored.name for stored in store.list(f"{folder}/")}
    for shards in _all(plan, SHARDS):
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
        runs = [plan.found(kind, number).run() for kind, number in _on_the_way(plan)]
    except InputError:
        return None
    known = all("process_seconds" in run for run in runs)
    return round(sum(run["process_seconds"] for run in runs), 3) if known else None


def _on_the_way(plan: Plan) -> Iterator[tuple[ArtifactKind, int]]:
    """Kind and number of each result on the way, in the order in which they are removed."""
    kinds: tuple[tuple[ArtifactKind, int], ...]
    kinds = ((SHARDS, len(plan.parts)), (BUCKET, plan.buckets), (PART, len(plan.parts)))
    return ((kind, number) for kind, count in kinds for number in range(count))


def _all(plan: Plan, kind: ArtifactKind) -> Iterator[Artifact]:
    return (plan.found(kind, number) for number in range(len(plan.parts)))


def finish(draft: Draft, rejects: Rejects, staged: int, total: int) -> None:
    """Add the rejected rows and the counts."""
    draft.counts |= {"read": rejects.read, "documents": rejects.read - len(rejects), "passages": total}
    draft.counts["duplicates"] = staged - total
    rejects.write(draft)
    draft.details["passages"] = total
