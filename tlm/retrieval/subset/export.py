"""Subsets ready for training: `export` writes passages that were hit, `import_subset` passages that others selected."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from tlm.artifacts.artifact import Artifact, home
from tlm.artifacts.produce import Draft, Recipe, produce
from tlm.data.corpus.staging import repeats_in, stage
from tlm.data.parallel import each
from tlm.data.passages import GROUP_ROWS, SEVERAL, shard_passages, shards, write_shards
from tlm.data.ranges import Ints, offsets_of
from tlm.data.reading.files import RawFile, check_room, raw_files
from tlm.data.reading.readers import check, read_all
from tlm.data.reading.records import BadRow, Record, Rejects, text_of
from tlm.data.registry import subset_address
from tlm.errors import NothingLeft
from tlm.progress import say, track
from tlm.retrieval.retrieve import retrieve
from tlm.retrieval.subset import judge
from tlm.retrieval.subset.judge import Candidates, Verdicts
from tlm.settings.options import Filters, names_in
from tlm.settings.selectors import RERANKED, RETRIEVED

VERSION, OF_IMPORT = 5, 5

HITS_AT_ONCE = 1 << 20
_BEST = [("best_rank", pa.int32()), ("best_score", pa.float32())]
SUBSET = pa.schema([("doc", pa.int64()), ("text", pa.string()), *_BEST, ("queries", pa.list_(pa.int64()))])
DROPPED = pa.schema([("doc", pa.int64()), ("reason", pa.string()), ("detail", pa.string())])
TEXTS = pa.schema([("doc", pa.int64()), ("text", pa.string())])
STAGED = pa.schema([("doc", pa.int64()), ("text", pa.string()), ("rank", pa.int32())])

Column = npt.NDArray[Any]


def export(hits: str, *, filters: Filters = Filters(), root: str | None = None) -> str:
    """Export the passages that were hit as a subset ready for training.

    Args:
        hits: URI of the hits.
        filters: What is left out.
        root: Store to write to, which holds all inputs; by default TLM_ROOT, else the store of the inputs.

    Returns:
        The URI of the subset: ``passages-*.parquet`` (doc, text, best_rank, best_score, queries) ordered by doc, and
        ``dropped.parquet`` (doc, reason, detail). Of random hits only as many are kept as the BM25 subset has; the
        others are counted as "surplus".

    Raises:
        InputError: a setting is out of range; NothingLeft: there are no hits, or the filters leave nothing.
    """
    source = Artifact.open(hits, "hits")
    # the hits alone do not decide the subset: a changed test text leaves them as they are, but changes what is removed
    task = {"task": source.input("task")} if filters.overlap else {}
    inputs = {"hits": source, "corpus": source.input("index").input("corpus"), **task}
    recipe = Recipe("subset", "export", VERSION, settings=filters.settings(), inputs=inputs)
    return produce(recipe, root, _write, filters, **inputs)


def _write(draft: Draft, filters: Filters, hits: Artifact, corpus: Artifact, task: Artifact | None = None) -> None:
    path = hits.path("hits.parquet")
    with TemporaryDirectory(prefix="texts-", dir=draft.folder) as name:
        texts = Path(name)
        ranked = track(read_hits(path, "doc", "rank", "score"), "grouping hits", unit="portions")
        docs, ranks, scores = by_document(ranked)
        candidates = Candidates(hits.uri, lambda: collected(sorted(texts.iterdir())), docs, ranks, scores)
        if not len(candidates):
            advice = "use a corpus in the language of the task, another query, or no arm that retrieves"
            raise NothingLeft(f"{hits.uri} holds no hit: no passage has a word of the queries; {advice}")
        collect(corpus, docs, texts)
        like = hits.details.get("like")
        verdicts = judge.judge(candidates, filters, {"": task} if task else {}, like=like)
        kept = verdicts.rows()
        queries = queries_of(path, candidates.docs[kept])
        draft.details = {"arm": hits.details["arm"]}
        write_subset(draft, verdicts, range(len(judge.REASONS)), {"queries": queries})
    if like is not None:
        draft.counts["missing"] = max(0, like - len(kept))
        if len(kept) < like:
            say(f"warning: {like:,} passages were asked for, but only {len(kept):,} are left")


def by_document(hits: Iterable[tuple[Column, ...]]) -> tuple[Column, ...]:
    """Group hits by document. Returns the documents, ascending, and for each its best rank and best score.

    Args:
        hits: Document, rank and score, in portions. Memory grows with the distinct documents, not with the hits.
    """
    best: tuple[Column, ...] = judge.NO_ROWS, np.zeros(0, np.int32), np.zeros(0, np.float32)
    for portion in hits:
        docs, ranks, scores = (np.concatenate(both) for both in zip(best, portion, strict=True))
        order = np.argsort(docs, kind="stable")  # fast, because all but the portion is in order
        first = np.flatnonzero(np.diff(docs[order], prepend=-1))
        best = docs[order[first]], np.minimum.reduceat(ranks[order], first), np.maximum.reduceat(scores[order], first)
    return best


def read_hits(hits: Path, *names: str) -> Iterator[tuple[Column, ...]]:
    """Read columns of hits.parquet in portions."""
    with pq.ParquetFile(hits) as file:
        for batch in file.iter_batches(HITS_AT_ONCE, columns=list(names)):
            yield tuple(batch.column(name).to_numpy() for name in names)


def queries_of(hits: Path, docs: Ints) -> pa.Array:
    """List the queries that hit each of `docs` (ascending), in ascending order."""
    rows, queries = [np.zeros(0, np.int32)], [np.zeros(0, np.int32)]
    for doc, query in read_hits(hits, "doc", "query"):
        nearest = np.minimum(np.searchsorted(docs, doc), len(docs) - 1)
        wanted = docs[nearest] == doc
        rows.append(nearest[wanted].astype(np.int32))
        queries.append(query[wanted].astype(np.int32))
    return grouped(np.concatenate(rows), np.concatenate(queries), len(docs))  # hits are ordered by query


def grouped(rows: npt.NDArray[np.integer], values: Column, size: int) -> pa.Array:
    """Group values by the row each belongs to: a list for each of `size` rows, values in their given order."""
    offsets = offsets_of(np.bincount(rows, minlength=size))
    return pa.LargeListArray.from_arrays(offsets, pa.array(values[np.argsort(rows, kind="stable")]))


def collect(corpus: Artifact, docs: Ints, folder: Path) -> None:
    """Write the texts of `docs` (ascending) to files in `folder`, for `collected` to read."""
    ends = np.searchsorted(docs, offsets_of(np.array([entry.rows or 0 for entry in shards(corpus)])))
    wanted = [(number, docs[start:stop]) for number, (start, stop) in enumerate(pairwise(ends)) if start < stop]
    each(partial(_collect, corpus.uri, folder), wanted, "reading passages", "shards", least=SEVERAL)


def collected(paths: Iterable[Path]) -> Iterator[pa.RecordBatch]:
    """Read ``doc`` and ``text`` from files, one after the other."""
    for path in paths:
        with pq.ParquetFile(path) as texts:
            yield from texts.iter_batches(GROUP_ROWS, columns=TEXTS.names)


def _collect(uri: str, folder: Path, wanted: tuple[int, Ints]) -> None:
    number, docs = wanted
    with pq.ParquetWriter(folder / f"texts-{number:07d}.parquet", TEXTS, compression="lz4") as texts:
        for batch in judge.of_docs(shard_passages(uri, number, TEXTS.names), docs):
            texts.write_batch(batch)


def write_subset(
    draft: Draft, verdicts: Verdicts, reasons: Sequence[int], lists: Mapping[str, pa.Array], schema: pa.Schema = SUBSET
) -> None:
    """Write ``passages-*.parquet`` and ``dropped.parquet`` into the draft, with their counts.

    Args:
        draft: The subset.
        verdicts: Which passages are kept, and why the others are not.
        reasons: The verdicts that this step can give, `KEPT` included; all are counted, even those of no passage.
        lists: Further columns of the kept passages: the queries that found them, and the like.
        schema: The columns of the kept passages.
    """
    candidates, kept = verdicts.candidates, verdicts.rows()
    draft.counts |= {"candidates": len(candidates)}
    draft.counts |= {judge.REASONS[reason]: len(verdicts.rows(reason)) for reason in reasons}
    draft.details["passages"] = len(kept)
    columns = pa.table({"doc": candidates.docs[kept], **candidates.best(kept), **lists})
    tables = (table.cast(schema) for table in _with_texts(columns, candidates.texts(kept)))
    draft.rows |= write_shards(draft.folder, "passages", tables)
    removed = np.array(sorted(verdicts.details), np.int64)
    names = [judge.REASONS[reason] for reason in verdicts.reason[removed]]
    details = [verdicts.details[row] for row in removed.tolist()]
    table = pa.table([candidates.docs[removed], names, details], schema=DROPPED)
    pq.write_table(table, draft.folder / "dropped.parquet", compression="zstd", row_group_size=100_000)
    draft.rows["dropped.parquet"] = len(removed)


def _with_texts(columns: pa.Table, texts: Iterable[pa.Array]) -> Iterator[pa.Table]:
    """Yield the rows of a table in portions, with their texts as second column."""
    start = 0
    for portion in texts:
        yield columns.slice(start, len(portion)).add_column(1, "text", portion)
        start += len(portion)


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
        task: URI of the task; passages that overlap its dev and test texts are removed.
        text_field: Field or column with the text. A column "rank", counted from 0, becomes the best rank.
        filters: What is left out.
        near_duplicates: Remove passages that nearly repeat a better one; takes memory for the words of all passages.
        max_rejected: Unusable rows to set aside before the command stops; 0.1 % of all rows are always allowed.
        root: Store to write to, which holds the task; by default TLM_ROOT, else that of the task, else ./artifacts.

    Returns:
        The URI of the subset: as `export` writes it, but ``doc`` is the row of the file, from 0, ``queries`` are empty,
        and scores and missing ranks are null. ``rejected.parquet`` has the unusable rows.

    Raises:
        InputError: a setting is out of range, a file or field cannot be read, too many bad rows, or nothing is left.
    """
    # to save memory, texts go to disk first and are judged in portions; only near-duplicates need the words of all
    filters = replace(filters, overlap=bool(task) and filters.overlap)
    protects = Artifact.open(task, "task") if filters.overlap else None
    inputs = {"task": protects} if protects else {}
    root = home(root, inputs.values()).root
    if not protects:
        say("import-subset: passages that contain dev or test texts are not removed, because no --task is given")
    rejects = Rejects(max_rejected)
    with raw_files([subset_address(path)]) as files:
        for file in files:
            file.extra = ("rank",)
            check(file, names_in(text_field), text_field)
        named = [[file.name, file.digest()] for file in files]
        settings = {**filters.settings(), "text_field": text_field, "files": named}
        recipe = Recipe("subset", "import-subset", OF_IMPORT, settings, inputs)
        return produce(recipe, root, _write_imported, files, text_field, protects, filters, rejects)


def _write_imported(
    draft: Draft, files: list[RawFile], field: str, task: Artifact | None, filters: Filters, rejects: Rejects
) -> None:
    check_room(files, draft.folder)
    with TemporaryDirectory(prefix="staging-", dir=draft.folder) as staging:
        folder = Path(staging)
        rows = read_all(files, names_in(field), rejects, lambda _, row: (rejects.read - 1, *_passage(row, field)))
        paths = [folder / name for name in stage(folder, rows, STAGED)]
        rejects.check()
        numbers = pa.concat_tables(pq.read_table(path, columns=["doc", "rank"]) for path in paths)
        docs, ranks = numbers["doc"].to_numpy(), numbers["rank"].to_numpy()
        no_scores = np.full(len(numbers), judge.NO_SCORE, np.float32)
        candidates = Candidates(files[0].where, lambda: collected(paths), docs, ranks, no_scores)
        verdicts = judge.judge(candidates, filters, {"": task} if task else {}, repeats=repeats_in(folder))
        no_queries = pa.array([[]] * len(verdicts.rows()), pa.list_(pa.int64()))
        draft.details = {"arm": "bm25", "provenance": "imported"}
        write_subset(draft, verdicts, range(judge.SURPLUS), {"queries": no_queries})
    draft.counts["candidates"] = rejects.read
    rejects.write(draft)


def _passage(row: Record, field: str) -> tuple[str, int]:
    """Text and rank of a row (from 1, `judge.NO_RANK` if it has none). Raises BadRow if it is unusable."""
    rank = str(row.values.get("rank", "")).removesuffix(".0")  # pandas writes floats where a number is missing
    if rank.isdecimal() and len(rank) > 9:
        raise BadRow("rank too large", f"field 'rank' is {rank[:20]}")
    return text_of(row.values, field), int(rank) + 1 if rank.isdecimal() else judge.NO_RANK


TASK_ONLY = "task-only"
PUBLISHED = "published"  # the arms of published models begin so: published-NAME, published-NAME-bm25


class Selection(NamedTuple):
    """An arm, and the artifacts by which its text is chosen. `str` writes it as a URL query for a step of a pipeline.

    Attributes:
        name: bm25, task-only, or another arm of `retrieve`.
        task: URI of the task.
        like: URI of BM25's subset.
        seed: Seed of what is drawn; 0 for an arm that has the same text with every seed.
    """

    name: str
    task: str
    like: str
    seed: int = 0

    def __str__(self) -> str:
        return urlencode(self._asdict())

    @classmethod
    def parse(cls, text: str) -> "Selection":
        """Return the arm that `str` wrote as `text`."""
        values = dict(parse_qsl(text, keep_blank_values=True, strict_parsing=True))
        return cls(**{**values, "seed": int(values["seed"])})  # type: ignore[arg-type]

    def subset(self, filters: Filters = Filters(), root: str | None = None) -> str:
        """Return the URI of the subset, chosen and filtered as BM25's was, and as large; "" for task-only.

        Args:
            filters: Those of BM25's subset.
            root: Store to write to, which holds all inputs; by default TLM_ROOT, else the store of the inputs.
        """
        if self.name in ("bm25", TASK_ONLY):
            return self.like if self.name == "bm25" else ""
        of_bm25 = Artifact.open(self.like, "subset").input("hits")
        asked: dict[str, Any] = {"arm": self.name, "same_size_as": self.like, "seed": self.seed}
        asked |= {name: of_bm25.details[name] for name in ("query", "top_k", "share") if name in of_bm25.details}
        hits = retrieve(of_bm25.input("index").uri, self.task, **asked, root=root)
        return export(hits, filters=filters, root=root)


def seed_of(subset: Artifact) -> int:
    """The seed that a subset of an arm was drawn by; 0 for one that is the same with every seed."""
    return int(subset.input("hits").manifest.settings.get("seed", 0)) if "hits" in subset.manifest.inputs else 0


def further_text(arm: str) -> str:
    """The arm whose text a published model went on with, as the name of its own arm ends: ``published-NAME-bm25``."""
    return next((text for text in (TASK_ONLY, *RETRIEVED, RERANKED) if arm.endswith(f"-{text}")), "")
