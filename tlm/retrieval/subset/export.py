"""Export: write the passages that were hit as a subset ready for training, each once and filtered."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tlm.artifacts.artifact import Artifact
from tlm.artifacts.produce import Draft, Recipe, produce
from tlm.data.passages import Shards
from tlm.errors import InputError
from tlm.progress import say, track
from tlm.retrieval.select.retrieve import ARMS, RERANKED, retrieve
from tlm.retrieval.subset import judge
from tlm.retrieval.subset.judge import Verdicts
from tlm.settings.options import Filters

_BEST = [("best_rank", pa.int32()), ("best_score", pa.float32())]
SUBSET = pa.schema([("doc", pa.int64()), ("text", pa.string()), *_BEST, ("queries", pa.list_(pa.int64()))])
DROPPED = pa.schema([("doc", pa.int64()), ("reason", pa.string()), ("detail", pa.string())])


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
    shards = Shards(draft.folder, "passages")
    for texts in candidates.texts(kept):
        part = columns.slice(shards.total, len(texts))
        shards.add(part.add_column(1, "text", texts).cast(schema))
    draft.rows |= shards.close()
    removed = np.array(sorted(verdicts.details), np.int64)
    names = [judge.REASONS[reason] for reason in verdicts.reason[removed]]
    details = [verdicts.details[row] for row in removed.tolist()]
    table = pa.table([candidates.docs[removed], names, details], schema=DROPPED)
    pq.write_table(table, draft.folder / "dropped.parquet", compression="zstd", row_group_size=100_000)
    draft.rows["dropped.parquet"] = len(removed)


VERSION = 3


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
        InputError: a setting is out of range, there are no hits, or the filters leave nothing.
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
        docs = track((doc for (doc,) in judge.read_hits(path, "doc")), "grouping hits", unit="portions")
        ranked = judge.read_hits(path, "doc", "rank", "score")
        candidates = judge.Candidates(hits.uri, lambda: judge.collected(texts), *judge.by_document(docs, ranked))
        if not len(candidates):
            raise InputError(f"{hits.uri} holds no hit, so there is nothing to export; look at its dropped.parquet")
        judge.collect(corpus, candidates.docs, texts)
        like = hits.details.get("like")
        verdicts = judge.judge(candidates, filters, {"": task} if task else {}, like=like)
        kept = verdicts.rows()
        queries = judge.queries_of(path, candidates.docs[kept])
        draft.details = {"arm": hits.details["arm"]}
        write_subset(draft, verdicts, range(len(judge.REASONS)), {"queries": queries})
    if like is not None:
        draft.counts["missing"] = max(0, like - len(kept))
        if len(kept) < like:
            say(f"warning: {like:,} passages were asked for, but only {len(kept):,} are left")


TASK_ONLY = "task-only"
PLM, PUBLISHED = "plm", "published"  # the arms of published models; those of the pipelines begin so: published-NAME


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
        found = Artifact.open(self.like, "subset").input("hits")
        asked: dict[str, Any] = {name: found.details[name] for name in ("query", "top_k")} | {"seed": self.seed}
        asked |= {"share": found.details["share"]} if "share" in found.details else {}
        hits = retrieve(found.input("index").uri, self.task, arm=self.name, same_size_as=self.like, **asked, root=root)  # type: ignore[arg-type]
        return export(hits, filters=filters, root=root)


def seed_of(subset: Artifact) -> int:
    """The seed that a subset of an arm was drawn by; 0 for one that is the same with every seed."""
    return int(subset.input("hits").manifest.settings.get("seed", 0)) if "hits" in subset.manifest.inputs else 0


def further_text(arm: str) -> str:
    """The arm whose text a published model went on with, as the name of its own arm ends: ``published-NAME-bm25``."""
    return next((text for text in (TASK_ONLY, *ARMS, RERANKED) if arm.endswith(f"-{text}")), "")
