"""Write a subset: the passages that were kept, in shards, and a table of those that were removed."""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tlm.artifacts.produce import Draft
from tlm.data.shards import Shards
from tlm.retrieval.subset.candidates import NO_RANK, NO_SCORE, Candidates
from tlm.retrieval.subset.judge import REASONS, Verdicts

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


def write_subset(
    draft: Draft,
    candidates: Candidates,
    verdicts: Verdicts,
    reasons: Sequence[int],
    lists: Mapping[str, pa.Array],
    schema: pa.Schema = SUBSET,
) -> None:
    """Write ``passages-*.parquet`` and ``dropped.parquet`` into the draft, with their counts.

    Args:
        draft: The subset.
        candidates: All passages that were judged.
        verdicts: Which of them are kept, and why the others are not.
        reasons: The verdicts that this step can give, `KEPT` included; all are counted, even those of no passage.
        lists: Further columns of the kept passages: the queries that found them, and the like.
        schema: The columns of the kept passages.
    """
    kept = verdicts.rows()
    draft.counts |= {"candidates": len(candidates)}
    draft.counts |= {REASONS[reason]: len(verdicts.rows(reason)) for reason in reasons}
    draft.details["passages"] = len(kept)
    rank, score = candidates.best_rank[kept], candidates.best_score[kept]
    best = {"best_rank": pa.array(rank, mask=rank == NO_RANK), "best_score": pa.array(score, mask=score == NO_SCORE)}
    columns = pa.table({"doc": candidates.docs[kept], **best, **lists})
    shards = Shards(draft.folder, "passages")
    for texts in candidates.texts(kept):
        part = columns.slice(shards.total, len(texts))
        shards.add(part.add_column(1, "text", texts).cast(schema))
    draft.rows |= shards.close()
    removed = np.array(sorted(verdicts.details), np.int64)
    names = [REASONS[reason] for reason in verdicts.reason[removed]]
    details = [verdicts.details[row] for row in removed.tolist()]
    table = pa.table([candidates.docs[removed], names, details], schema=DROPPED)
    pq.write_table(table, draft.folder / "dropped.parquet", compression="zstd", row_group_size=100_000)
    draft.rows["dropped.parquet"] = len(removed)
