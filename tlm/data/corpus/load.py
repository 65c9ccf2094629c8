"""The corpus: documents from any source, normalised, cut into passages, each distinct text once."""

import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tlm.artifacts.artifact import Artifact
from tlm.artifacts.produce import Draft, finished, produce
from tlm.data.corpus.plan import PART, Plan, make_plan, part_size
from tlm.data.corpus.publish import finish, publish, write_shards
from tlm.data.corpus.staging import dedup_buckets, distinct, stage_parts, staged
from tlm.data.passages import Shards, numbered
from tlm.data.reading.files import Piece, RawFile, check_room, raw_files
from tlm.data.reading.records import Rejects
from tlm.data.registry import compare_corpus, corpus_addresses
from tlm.errors import InputError
from tlm.progress import track
from tlm.settings.options import Layout, Range

SMALLEST = 64 << 20  # bytes of text in a part; less does not justify a process


def load_corpus(paths: list[str], *, layout: Layout = Layout(), max_rejected: int = 10, root: str | None = None) -> str:
    """Load a corpus: normalise documents, cut them into passages and keep each text once.

    Several large files are loaded in parts on all cores, and a repetition finds the parts that were finished. Memory
    does not grow with the corpus. Two passages are the same text if they are equal in Unicode NFC, ignoring
    case and white space; the first is kept. Ids need not be unique: they name rows of the raw files.

    Args:
        paths: Files, folders, globs, s3:// or hf:// addresses; jsonl, csv, tsv, parquet or txt, also .gz and .zst;
            paper:bert or paper:roberta for Hub data sets that resemble the corpora of the paper.
        layout: How documents are read and cut.
        max_rejected: Unusable rows to set aside before the step stops; 0.1 % of all rows are always allowed.
        root: Store to write to; by default TLM_ROOT, else ./artifacts.

    Returns:
        URI of the corpus: passages (doc, id, text, source) in parquet shards, and the rejected rows.

    Raises:
        InputError: a setting out of range, an unreadable file, a missing field, too many bad rows.
    """
    rejects = Rejects(max_rejected)
    addresses = corpus_addresses(paths)
    with raw_files(addresses, together=False) as files:
        plan = make_plan(addresses, root, layout, files, part_size(files, SMALLEST))
        if len(plan.parts) == 1:
            return produce(plan.corpus, root, _write, files, layout, rejects)
    try:
        stage_parts(plan, max_rejected, plan.numbers(PART))
        dedup_buckets(plan)
        write_shards(plan, plan.numbers(PART))
        return publish(plan, max_rejected)  # which also removes what was on the way, after a kill perhaps
    except (InputError, OSError):
        made = finished(plan.corpus, root)  # by an equal command beside this one, which then removed the parts
        if made is None:
            raise
        return made


def _write(draft: Draft, files: Sequence[RawFile], layout: Layout, rejects: Rejects) -> None:
    """Load files that are one part only, without anything on the way that others could go on with."""
    check_room(files, draft.folder)
    with TemporaryDirectory(prefix="staging-", dir=draft.folder) as staging:
        stage = staged(Path(staging), files, layout, rejects)
        rejects.check()
        compare_corpus(rejects.read_by_file)
        shards = Shards(draft.folder, "passages")
        for table in track(distinct(stage.tables, stage.path, stage.repeated()), "writing", None, "tables"):
            shards.add(numbered(table, shards.total))
        draft.rows = shards.close()
    finish(draft, rejects, stage.count, sum(draft.rows.values()))


PLAN: Final = "corpus-plan"
MAX_REJECTED = 10  # as in load_corpus


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
    Range("1 or more", 1).check("pods", pods)
    addresses = corpus_addresses(list(paths))
    with raw_files(addresses, together=False) as files:
        plan = make_plan(addresses, root, layout, files, part_size(files, least))

    def write(draft: Draft) -> None:
        draft.details = {"settings": plan.settings, "parts": [list(part) for part in plan.parts]}
        draft.details["buckets"] = plan.buckets
        draft.details["pieces"] = [[number, *found] for number, found in plan.pieces.items()]

    uri = produce(plan.recipe(PLAN, 0), root, write)
    return [json.dumps({"plan": uri, "paths": addresses, "pod": pod, "pods": pods}) for pod in range(pods)]


def stage_corpus(pod: str) -> str:
    """Read the pod's parts of the files. Returns the item."""
    plan, own = _opened(pod)
    stage_parts(plan, MAX_REJECTED, own)
    return pod


def dedup_corpus(pods: list[str]) -> list[str]:
    """Find the passages that repeat an earlier one, over all parts. Returns the items."""
    dedup_buckets(_opened(pods[0])[0])
    return pods


def write_corpus(pod: str) -> str:
    """Write the shards that begin in the pod's parts. Returns the item."""
    write_shards(*_opened(pod))
    return pod


def publish_corpus(pods: list[str]) -> str:
    """Publish the corpus, and return its URI."""
    return publish(_opened(pods[0])[0], MAX_REJECTED)


def _opened(pod: str) -> tuple[Plan, range]:
    """The plan of an item, and the numbers of the pod's parts."""
    item = json.loads(pod)
    artifact = Artifact.open(item["plan"], PLAN)
    details = artifact.details
    parts = tuple((start, stop) for start, stop in details["parts"])
    pieces = {number: [Piece(*values) for values in found] for number, *found in details["pieces"]}
    plan = Plan(tuple(item["paths"]), artifact.store.root, details["settings"], parts, details["buckets"], pieces)
    return plan, range(item["pod"], len(parts), item["pods"])
