"""Import: make a subset that others selected, such as the authors' published ones, ready for training like our own.

To save memory, the texts are first written to disk, then judged in portions, and the kept ones are written as
shards. Only the near-duplicates filter needs the words of all passages at once.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tlm.artifacts.artifact import Artifact, home
from tlm.artifacts.produce import Draft, Recipe, produce
from tlm.data.corpus.staging import Stage
from tlm.data.reading.files import RawFile, check_room, raw_files
from tlm.data.reading.readers import check, read_all
from tlm.data.reading.records import BadRow, Record, Rejects, text_of
from tlm.data.registry import subset_address
from tlm.progress import say
from tlm.retrieval.subset.export import write_subset
from tlm.retrieval.subset.judge import NO_RANK, NO_SCORE, SURPLUS, Candidates, judge
from tlm.settings.options import Filters

VERSION = 3
STAGED = pa.schema([("doc", pa.int64()), ("text", pa.string()), ("rank", pa.int32())])


def import_subset(
    path: str,
    *,
    task: str = "",
    text_field: str = "text",
    filters: Filters = Filters(near_duplicates=False),
    max_rejected: int = 10,
    root: str | None = None,
) -> str:
    """Import passages that others selected for a task, as a subset ready for training.

    Texts are normalised (Unicode NFC) and equal ones kept once. With a task, passages that overlap its dev or test
    texts are removed and reported as `export` does. The arm is "bm25", its provenance "imported".

    Args:
        path: File with a row for each passage (csv, jsonl, parquet …), folder, glob, s3:// or hf:// address; or
            paper:scierc/small and the like, for what the authors of the paper published.
        task: URI of the task whose dev and test texts are protected.
        text_field: Field or column with the text. A column "rank", counted from 0, becomes the best rank.
        filters: What is left out.
        near_duplicates: Remove passages that nearly repeat a better one; takes memory for the words of all passages.
        max_rejected: Unusable rows to tolerate (they are set aside with a reason); 0.1 % are always tolerated.
        root: Store to write to, which holds the task; by default TLM_ROOT, else that of the task, else ./artifacts.

    Returns:
        The URI of the subset: as `export` writes it, but ``doc`` is the row of the file, from 0, ``queries`` are empty,
        and scores and missing ranks are null. ``rejected.parquet`` has the unusable rows.

    Raises:
        InputError: a setting is out of range, a file or field cannot be read, too many bad rows, or nothing is left.
    """
    filters = replace(filters, overlap=bool(task) and filters.overlap)
    protects = Artifact.open(task, "task") if filters.overlap else None
    inputs = {"task": protects} if protects else {}
    root = home(root, inputs.values()).root
    if not protects:
        say("import: dev and test texts in these passages, if there are any, stay: they are not looked for")
    rejects = Rejects(max_rejected)
    with raw_files([subset_address(path)]) as files:
        for file in files:
            file.extra = ("rank",)
            check(file, [text_field])
        named = [[file.name, file.digest()] for file in files]
        settings = {**filters.settings(), "text_field": text_field, "files": named}
        recipe = Recipe("subset", "import-subset", VERSION, settings, inputs)
        return produce(recipe, root, _write, files, text_field, protects, filters, rejects)


def _write(
    draft: Draft, files: list[RawFile], field: str, task: Artifact | None, filters: Filters, rejects: Rejects
) -> None:
    check_room(files, draft.folder)
    with TemporaryDirectory(prefix="staging-", dir=draft.folder) as staging:
        rows = read_all(files, [field], rejects, lambda _, row: (rejects.read - 1, *_passage(row, field)))
        stage = Stage(Path(staging), rows, STAGED)
        rejects.check()
        candidates = _candidates(files[0].where, stage)
        verdicts = judge(candidates, filters, {"": task} if task else {}, repeats=stage.repeated())
        no_queries = pa.array([[]] * len(verdicts.rows()), pa.list_(pa.int64()))
        draft.details = {"arm": "bm25", "provenance": "imported"}
        write_subset(draft, verdicts, range(SURPLUS), {"queries": no_queries})
    draft.counts["candidates"] = rejects.read
    rejects.write(draft)


def _candidates(source: str, stage: Stage) -> Candidates:
    """The passages on disk, in the order of the files."""

    def batches() -> Iterator[pa.RecordBatch]:
        return (batch for path in paths for batch in pq.ParquetFile(path).iter_batches())

    paths = [stage.path(name) for name in stage.tables]
    numbers = pa.concat_tables(pq.read_table(path, columns=["doc", "rank"]) for path in paths)
    docs, ranks = numbers["doc"].to_numpy(), numbers["rank"].to_numpy()
    return Candidates(source, batches, docs, ranks, np.full(stage.count, NO_SCORE, np.float32))


def _passage(row: Record, field: str) -> tuple[str, int]:
    """Text and rank of a row (from 1, `NO_RANK` if it has none). Raises BadRow if it is unusable."""
    value = row.values.get("rank", "")
    if isinstance(value, float) and value.is_integer():  # pandas makes floats of numbers where one is missing
        value = int(value)
    rank = str(value)
    if rank.isdecimal() and len(rank) > 9:
        raise BadRow("rank too large", f"field 'rank' is {rank[:20]}")
    return text_of(row.values, field), int(rank) + 1 if rank.isdecimal() else NO_RANK
