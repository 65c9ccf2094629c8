"""The corpus: documents from any source, normalised, cut into passages, each distinct text once."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tlm.artifacts.produce import Draft, finished, produce
from tlm.data.parts.dedup import dedup_buckets
from tlm.data.parts.plan import Plan, make_plan, part_size
from tlm.data.parts.publish import finish, publish
from tlm.data.parts.shards import write_shards
from tlm.data.parts.stage import stage_parts, staged
from tlm.data.reading.files import RawFile, check_room, raw_files
from tlm.data.reading.records import Rejects
from tlm.data.registry import compare_corpus, corpus_addresses
from tlm.data.shards import Shards, numbered
from tlm.data.stage import distinct
from tlm.errors import InputError
from tlm.options import Layout
from tlm.progress import track

SMALLEST = 64 << 20  # bytes of text in a part; less is not worth a process


def load_corpus(
    paths: list[str],
    *,
    layout: Layout = Layout(),
    max_rejected: int = 10,
    root: str | None = None,
) -> str:
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
    if finished(plan.corpus, root) is not None:  # what was on the way may be there still, after a kill
        return publish(plan, max_rejected)
    try:
        return _in_parts(plan, max_rejected)
    except (InputError, OSError):
        made = finished(plan.corpus, root)  # by an equal command beside this one, which then removed the parts
        if made is None:
            raise
        return made


def _in_parts(plan: Plan, max_rejected: int) -> str:
    numbers = range(len(plan.parts))
    stage_parts(plan, max_rejected, numbers)
    dedup_buckets(plan, range(plan.buckets))
    write_shards(plan, numbers)
    return publish(plan, max_rejected)


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
