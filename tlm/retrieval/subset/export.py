"""Export: the passages that were hit, once each and without what would spoil the comparison, ready for training."""

from collections.abc import Iterator
from dataclasses import asdict

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tlm.artifacts.artifact import Artifact
from tlm.artifacts.produce import Draft, Recipe, produce
from tlm.data.corpus import passages
from tlm.data.shards import Shards
from tlm.errors import InputError
from tlm.progress import say, track
from tlm.retrieval.subset.judge import KEPT, NEAR_DUPLICATE, REASONS, SURPLUS, TOO_SHORT, Filters, Verdicts, judge
from tlm.retrieval.subset.ngrams import Ints
from tlm.retrieval.subset.union import Union, queries_of, union_of

VERSION = 2
SUBSET = pa.schema(
    [
        ("doc", pa.int64()),
        ("text", pa.string()),
        ("best_rank", pa.int32()),
        ("best_score", pa.float32()),
        ("queries", pa.list_(pa.int64())),
    ]
)
DROPPED = pa.schema([("doc", pa.int64()), ("reason", pa.string()), ("detail", pa.string())])


def export(
    hits: str,
    *,
    near_duplicates: bool = True,
    overlap: bool = True,
    jaccard: float = 0.8,
    overlap_share: float = 0.3,
    passage_share: float = 0.5,
    ngram: int = 8,
    min_words: int = 5,
    root: str | None = None,
) -> str:
    """Export the passages that were hit as a subset ready for training, with who asked for them and what was removed.

    Args:
        hits: URI of the hits.
        near_duplicates: Remove passages that nearly repeat a better one (by best rank, then score, then document).
        overlap: Remove passages that overlap dev or test texts of the task.
        jaccard: Near-duplicates have at least this Jaccard similarity of their sets of word 5-grams.
        overlap_share: A passage overlaps a text if it has at least this share of the text's n-grams.
        passage_share: It also does if at least this share of its own n-grams is in the text, as in a long text's part.
        ngram: Words in such an n-gram; a text or passage with fewer (but 3 or more) must occur whole.
        min_words: Remove passages with fewer words.
        root: Store to write to, which holds all inputs; by default TLM_ROOT, else the store of the inputs.

    Returns:
        The URI of the subset: ``passages-*.parquet`` (doc, text, best_rank, best_score, queries) ordered by doc, and
        ``dropped.parquet`` (doc, reason, detail). Of random hits only as many are kept as the subset they are to be
        like has; the others are counted as "surplus".

    Raises:
        InputError: a setting is out of range, there are no hits, or the filters leave nothing.
    """
    filters = Filters.of(
        near_duplicates=near_duplicates,
        overlap=overlap,
        jaccard=jaccard,
        overlap_share=overlap_share,
        passage_share=passage_share,
        ngram=ngram,
        min_words=min_words,
    )
    source = Artifact.open(hits, "hits")
    corpus, task = source.input("index").input("corpus"), source.input("task") if overlap else None
    # equal hits may come from other texts: a changed test text changes no hit, but what must go
    inputs = {"hits": source, "corpus": corpus} | ({"task": task} if task else {})
    recipe = Recipe("subset", "export", VERSION, settings=asdict(filters), inputs=inputs)
    return produce(recipe, root, lambda draft: _write(draft, source, corpus, task, filters))


def _write(draft: Draft, hits: Artifact, corpus: Artifact, task: Artifact | None, filters: Filters) -> None:
    union = union_of(hits.path("hits.parquet"))
    if not len(union):
        raise InputError(f"{hits.uri} holds no hit, so there is nothing to export; look at its dropped.parquet")
    like = hits.details.get("like")
    texts = (text for table in read_passages(corpus, union.docs) for text in table["text"].to_pylist())
    verdicts = judge(texts, union.best_first(), task, filters, like)
    _count(draft, hits, verdicts, like)
    _write_kept(draft, hits, corpus, union, verdicts.rows())
    write_dropped(draft, union, verdicts)


def _count(draft: Draft, hits: Artifact, verdicts: Verdicts, like: int | None) -> None:
    counts = {reason: len(verdicts.rows(number)) for number, reason in enumerate(REASONS)}
    kept = counts[REASONS[KEPT]]
    if not kept:
        removed = ", ".join(f"{reason} {count:,}" for reason, count in counts.items() if count)
        raise InputError(f"the filters leave none of the {len(verdicts.reason):,} passages of {hits.uri} ({removed})")
    draft.counts = {"candidates": len(verdicts.reason), **counts}
    if like is not None:
        draft.counts["missing"] = max(0, like - kept)
        if kept < like:
            say(f"warning: {like:,} passages were asked for, and only {kept:,} are left")
    draft.details = {"arm": hits.details["arm"], "passages": kept}


def _write_kept(draft: Draft, hits: Artifact, corpus: Artifact, union: Union, rows: Ints) -> None:
    docs = union.docs[rows]
    queries, offsets = queries_of(hits.path("hits.parquet"), docs)
    shards = Shards(draft.folder, "passages")
    for table in read_passages(corpus, docs):
        part = slice(shards.total, shards.total + table.num_rows)
        ends = offsets[part.start : part.stop + 1]
        asked = pa.ListArray.from_arrays(pa.array(ends - ends[0], pa.int32()), queries[ends[0] : ends[-1]])
        best = union.best_rank[rows[part]], union.best_score[rows[part]]
        shards.add(pa.table([docs[part], table["text"], *best, asked], schema=SUBSET))
    draft.rows |= shards.close()


def write_dropped(draft: Draft, union: Union, verdicts: Verdicts) -> None:
    """Write dropped.parquet: each passage that is not kept (surplus ones aside), why, and in detail."""
    rows = np.flatnonzero((verdicts.reason != KEPT) & (verdicts.reason != SURPLUS))
    reasons = [REASONS[reason] for reason in verdicts.reason[rows]]
    details = [_detail(union, verdicts, row) for row in rows.tolist()]
    table = pa.table([union.docs[rows], reasons, details], schema=DROPPED)
    pq.write_table(table, draft.folder / "dropped.parquet", compression="zstd", row_group_size=100_000)
    draft.rows["dropped.parquet"] = len(rows)


def _detail(union: Union, verdicts: Verdicts, row: int) -> str:
    about, degree = int(verdicts.about[row]), verdicts.degree[row]
    if verdicts.reason[row] == TOO_SHORT:
        return f"{about} words"
    if verdicts.reason[row] == NEAR_DUPLICATE and about < 0:
        return "the same text as an earlier passage"
    if verdicts.reason[row] == NEAR_DUPLICATE:
        return f"Jaccard {degree:.2f} with doc {union.docs[about]}"
    return verdicts.overlap(row)


def read_passages(corpus: Artifact, docs: Ints) -> Iterator[pa.Table]:
    """The passages `docs` (ascending) of the corpus, in portions; of most corpora only a small part."""
    for batch in track(passages(corpus, ["doc", "text"]), "reading the corpus", unit="portions"):
        here = batch.column("doc").to_numpy()
        start, stop = np.searchsorted(docs, [here[0], here[-1] + 1]) if len(here) else (0, 0)
        if start < stop:
            yield pa.Table.from_batches([batch]).take(pa.array(np.searchsorted(here, docs[start:stop])))
