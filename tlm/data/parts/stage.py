"""First: read each part of the files, and keep its passages and their digests."""

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq

from tlm.artifacts.produce import Draft, finished, produce
from tlm.data.layout import STAGED, passages
from tlm.data.parts.parallel import each
from tlm.data.parts.plan import Plan
from tlm.data.reading.files import RawFile, check_room, raw_files
from tlm.data.reading.readers import read_all
from tlm.data.reading.records import REJECTED_FILE, Rejects
from tlm.data.stage import Stage
from tlm.options import Layout

PART: Final = "corpus-part"
ANY_NUMBER = 1 << 62  # of rejected rows: they are judged over all parts


def stage_parts(plan: Plan, max_rejected: int, numbers: Iterable[int]) -> None:
    """Read these parts; those that are there already are left alone."""
    each(partial(_stage, plan, max_rejected), list(numbers), "reading", "parts")


def _stage(plan: Plan, max_rejected: int, number: int) -> None:
    recipe = plan.recipe(PART, number)
    if finished(recipe, plan.root) is not None:
        return
    rejects = Rejects(max_rejected if number == 0 else ANY_NUMBER)  # too many of the very first rows end the work
    with raw_files(plan.paths, together=False) as files:
        own = plan.files(files, number)
        produce(recipe, plan.root, _write, own, plan, rejects)


def staged(folder: Path, files: Sequence[RawFile], layout: Layout, rejects: Rejects, buckets: int = 64) -> Stage:
    """Read files into a stage; rows that cannot be used go to `rejects`."""
    found = read_all(files, layout.fields, rejects, partial(passages, layout))
    return Stage(folder, chain.from_iterable(found), STAGED, buckets)


def _write(draft: Draft, files: Sequence[RawFile], plan: Plan, rejects: Rejects) -> None:
    check_room(files, draft.folder)
    stage = staged(draft.folder, files, plan.layout, rejects, plan.buckets)
    draft.rows = stage.tables
    pq.write_table(rejects.table(), draft.folder / REJECTED_FILE, compression="zstd")
    draft.counts = {"read": rejects.read, "by file": dict(rejects.read_by_file)}
    draft.details["passages"] = stage.count
