"""The labelled examples behind queries."""

from collections.abc import Mapping
from typing import Any

import pyarrow.parquet as pq

from tlm.artifacts.artifact import Artifact


def examples_by_query(hits: Artifact) -> dict[int, list[int]]:
    """The examples behind each query, as rows of the task; examples with the same text share a query."""
    table = pq.read_table(hits.path("queries.parquet"), columns=["query", "examples"], partitioning=None)
    return dict(zip(table["query"].to_pylist(), table["examples"].to_pylist(), strict=True))


def whole_text(row: Mapping[str, Any]) -> str:
    """The text of an example, or both texts of a pair."""
    return " ⁄ ".join(part for part in (row["text"], row["text_pair"]) if part)
