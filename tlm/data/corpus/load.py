"""The corpus: documents from any source, normalised, cut into passages, each distinct text once."""

import json
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tlm.artifacts.artifact import Artifact, FileEntry, add_files, home, remove
from tlm.artifacts.produce import Draft, finished, produce
from tlm.artifacts.stores.store import ArtifactKind
from tlm.data.corpus.plan import BUCKET, LICENSED, PART, SHARDS, STAGED, Plan, make_plan, part_size, passages
from tlm.data.corpus.staging import DIGESTS, STAGED_FILES, distinct, repeated, repeats_in, stage
from tlm.data.parallel import each
from tlm.data.passages import GROUP_ROWS, GROUPS, numbered, write_shards
from tlm.data.ranges import Ints, offsets_of
from tlm.data.reading.files import Piece, RawFile, check_room, raw_files
from tlm.data.reading.readers import read_all
from tlm.data.reading.records import REJECTED_FILE, Rejects
from tlm.data.registry import compare_corpus, corpus_addresses
from tlm.errors import InputError, Interrupted
from tlm.progress import track
from tlm.settings.options import POSITIVE, Layout

SMALLEST = 64 << 20  # bytes of text in a part; less does not justify a process


def load_corpus(paths: list[str], *, layout: Layout = Layout(), max_rejected: int = 10, root: str | None = None) -> str:
    """Load a corpus: normalise documents, cut them into passages and keep each text once.

    Several large files are loaded in parts on all cores, and a repetition finds the parts that were finished. Memory
    does not grow with the corpus. Two passages are the same text if they are equal in Unicode NFC, ignoring
    case and white space; the first is kept. Ids need not be unique: they name rows of the raw files.

    Args:
        paths: Files, folders, globs, s3:// or hf:// addresses; jsonl, csv, tsv, parquet or txt, also .gz and .zst;
            .md and .rst only by name or glob; paper:bert or paper:roberta for Hub data sets like the paper's corpora.
        layout: How documents are read and cut.
        max_rejected: Unusable rows to set aside before the command stops; 0.1 % of all rows are always allowed.
        root: Store to write to; by default TLM_ROOT, else ./artifacts.

    Returns:
        URI of the corpus: passages (doc, id, text, source) in parquet shards, and the rejected rows.

    Raises:
        InputError: a setting out of range, an unreadable file, a missing field, too many bad rows.
    """
    rejects = Rejects(max_rejected)
    addresses = corpus_addresses(paths)
    with raw_files(addresses, together=False) as files:
        plan = make_plan(addresses, root, layout, files, part_size(files, SMALLEST), max_rejected)
        if len(plan.parts) == 1 and not plan.pieces:  # else its download is gone, and a piece is read again
            return produce(plan.corpus, root, _write, files, layout, rejects)
    try:
        for kind in reversed(ON_THE_WAY):
            make(plan, kind, plan.numbers(kind))
        return publish(plan)  # which also removes what was on the way, after a kill perhaps
    except (InputError, OSError):
        made = finished(plan.corpus, root)  # by an equal command beside this one, which then removed the parts
        if made is None:
            raise
        return made


def _write(draft: Draft, files: Sequence[RawFile], layout: Layout, rejects: Rejects) -> None:
    """Load files that are one part only, without anything on the way that others could go on with."""
    check_room(files, draft.folder)
    with TemporaryDirectory(prefix="staging-", dir=draft.folder) as name:
        folder = Path(name)
        tables = staged(folder, files, layout, rejects)
        rejects.check()
        compare_corpus(rejects.read_by_file)
        kept = track(distinct(tables, folder.joinpath, repeats_in(folder)), "writing", None, "tables")
        draft.rows = write_shards(draft.folder, "passages", numbered(kept))
    finish(draft, rejects, sum(tables.values()), sum(draft.rows.values()))


PLAN: Final = "corpus-plan"


def plan_corpus(
    paths: Sequence[str], *, layout: Layout = Layout(), pods: int, least: int = 1 << 20, root: str | None = None
) -> list[str]:
    """Plan the parts of a corpus, and return an item for each pod.

    Args:
        paths: Files of the corpus, as `load_corpus` takes them.
        layout: How documents are read and cut.
        pods: How many pods load it.
        least: Smallest size of a part, in bytes of text; it is a 64th of all text, but at most a GiB.
        root: Store to write to; by default TLM_ROOT, else ./artifacts.

    Raises:
        InputError: a setting out of range, an unreadable file, a missing field.
    """
    POSITIVE.check("pods", pods)
    addresses = corpus_addresses(list(paths))
    with raw_files(addresses, together=False) as files:
        plan = make_plan(addresses, root, layout, files, part_size(files, least))

    def write(draft: Draft) -> None:
        draft.details = {"settings": plan.settings, "parts": [list(part) for part in plan.parts]}
        draft.details["buckets"] = plan.buckets
        draft.details["pieces"] = [[number, *pieces] for number, pieces in plan.pieces.items()]

    uri = produce(plan.recipe(PLAN, 0), root, write)
    return [json.dumps({"plan": uri, "paths": addresses, "pod": pod, "pods": pods}) for pod in range(pods)]


def stage_corpus(pod: str) -> str:
    """Read the pod's parts of the files. Returns the item."""
    plan, own = _opened(pod)
    make(plan, PART, own)
    return pod


def dedup_corpus(pods: list[str]) -> list[str]:
    """Find the passages that repeat an earlier one, over all parts. Returns the items."""
    plan, _ = _opened(pods[0])
    make(plan, BUCKET, plan.numbers(BUCKET))
    return pods


def write_corpus(pod: str) -> str:
    """Write the shards that begin in the pod's parts. Returns the item."""
    plan, own = _opened(pod)
    make(plan, SHARDS, own)
    return pod


def publish_corpus(pods: list[str]) -> str:
    """Publish the corpus, and return its URI."""
    return publish(_opened(pods[0])[0])


def _opened(pod: str) -> tuple[Plan, range]:
    """The plan of an item, and the numbers of the pod's parts."""
    item = json.loads(pod)
    artifact = Artifact.open(item["plan"], PLAN)
    details = artifact.details
    parts = tuple((start, stop) for start, stop in details["parts"])
    pieces = {number: [Piece(*values) for values in found] for number, *found in details["pieces"]}
    plan = Plan(tuple(item["paths"]), artifact.store.root, details["settings"], parts, details["buckets"], pieces)
    return plan, range(item["pod"], len(parts), item["pods"])


# In the order in which they are removed, the reverse of that in which they are made; with how the progress calls it.
ON_THE_WAY: dict[ArtifactKind, str] = {SHARDS: "writing", BUCKET: "comparing", PART: "reading"}
SHARD_ROWS = GROUPS * GROUP_ROWS


def make(plan: Plan, kind: ArtifactKind, numbers: Sequence[int]) -> None:
    """Make results of this kind on the way to a corpus. Finished ones, and all of a finished corpus, are skipped.

    The results on the way may be gone once the corpus is finished, by an equal run perhaps.
    """
    if finished(plan.corpus, plan.root) is None:
        each(partial(_make, plan, kind), numbers, ON_THE_WAY[kind], "buckets" if kind == BUCKET else "parts")


def _make(plan: Plan, kind: ArtifactKind, number: int) -> None:
    recipe = plan.recipe(kind, number)
    if finished(recipe, plan.root) is None:
        write = {PART: _write_staged, BUCKET: _write_bucket, SHARDS: _write_shards}[kind]
        produce(recipe, plan.root, write, plan, number)


ANY_NUMBER = 1 << 62  # of rejected rows: they are judged over all parts


def staged(
    folder: Path, files: Sequence[RawFile], layout: Layout, rejects: Rejects, buckets: int = 64
) -> dict[str, int]:
    """Write the passages of files to a folder, as `stage` does; rows that cannot be used go to `rejects`."""
    found = read_all(files, layout.fields, rejects, partial(passages, layout))
    return stage(folder, chain.from_iterable(found), LICENSED if layout.license_field else STAGED, buckets)


def _write_staged(draft: Draft, plan: Plan, number: int) -> None:
    """Read a part of the files."""
    rejects = Rejects(plan.max_rejected if number == 0 else ANY_NUMBER)  # too many of the very first rows end the work
    with raw_files(plan.paths, together=False) as files:
        own = plan.files(files, number)
        check_room(own, draft.folder)
        draft.rows = staged(draft.folder, own, plan.layout, rejects, plan.buckets)
    pq.write_table(rejects.table(), draft.folder / REJECTED_FILE, compression="zstd")
    draft.counts = {"read": rejects.read, "by file": dict(rejects.read_by_file)}
    draft.details["passages"] = sum(draft.rows.values())


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
        for number in range(len(self.parts)):
            first, end = self.offsets[number], self.offsets[number + 1]
            if first < stop and end > start:
                yield from self._of_part(number, start - first, stop - first)

    def _of_part(self, number: int, start: int, stop: int) -> Iterator[pa.Table]:
        """Stream some of the passages of a part that stay, counted from its first one."""
        part = self.parts[number]
        tables = {entry.logical: entry.rows or 0 for entry in part.entries(STAGED_FILES)}
        return distinct(tables, part.path, self._repeating(number), start, stop)

    def _repeating(self, number: int) -> Ints:
        """The rows of a part that repeat an earlier text, ascending."""
        found = [np.load(bucket.verified(entry)) for bucket, entry in self._repeats[number]]
        return np.sort(np.concatenate([np.empty(0, np.int64), *found]))


def _write_shards(draft: Draft, plan: Plan, number: int) -> None:
    """Put the shards that begin in a part into the folder of the corpus, which readers see once it has a manifest."""
    kept = Kept(plan)
    first, last = (-(-int(offset) // SHARD_ROWS) for offset in kept.offsets[number : number + 2])  # rounded up
    with TemporaryDirectory(prefix="shards-", dir=draft.folder) as name:
        folder = Path(name)
        doc = first * SHARD_ROWS
        tables = kept.read(doc, min(last * SHARD_ROWS, int(kept.offsets[-1])))
        rows = write_shards(folder, "passages", numbered(tables, doc), first=first)
        entries = add_files(home(plan.root, ()), f"corpus/{plan.corpus.key}", folder, rows)
    draft.details["files"] = [entry.model_dump() for entry in entries]


def publish(plan: Plan) -> str:
    """Publish the corpus, unless it is there already, and remove the results on the way to it.

    Raises:
        InputError: too many rejected rows, or a part is not there.
        Interrupted: shards are gone that were written, after a week perhaps; repeating writes them again.
    """
    uri = produce(plan.corpus, plan.root, _write_published, plan)
    store = home(plan.root, ())
    last = plan.recipe(PART, len(plan.parts) - 1).key
    if not any(store.list(f"{PART}/{last}/")):  # it goes last
        return uri
    for kind in ON_THE_WAY:
        for number in plan.numbers(kind):
            remove(store, f"{kind}/{plan.recipe(kind, number).key}")
    return uri


def _write_published(draft: Draft, plan: Plan) -> None:
    rejects, count = Rejects(plan.max_rejected), 0
    for part in plan.all(PART):
        rejects.take(pq.read_table(part.path(REJECTED_FILE)), part.counts["by file"])
        count += part.details["passages"]
    rejects.check()
    compare_corpus(rejects.read_by_file)
    draft.published = list(_written(plan))
    draft.run |= {"parts": len(plan.parts), "parts_process_seconds": _process_seconds(plan)}
    finish(draft, rejects, count, sum(entry.rows or 0 for entry in draft.published))


def _written(plan: Plan) -> Iterator[FileEntry]:
    """List the shards, and raise Interrupted if one is gone."""
    folder, lost = f"corpus/{plan.corpus.key}", 0
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
        return round(sum(float(made.run()["process_seconds"]) for kind in ON_THE_WAY for made in plan.all(kind)), 3)
    except (InputError, KeyError):
        return None


def finish(draft: Draft, rejects: Rejects, staged: int, total: int) -> None:
    """Add the rejected rows and the counts."""
    documents = rejects.read - len(rejects)
    draft.counts = {"read": rejects.read, "documents": documents, "passages": total, "duplicates": staged - total}
    rejects.write(draft)
    draft.details["passages"] = total
