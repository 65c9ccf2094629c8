"""Tiny artifacts of every kind that evaluation reads, written with `produce` directly."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tlm.artifacts.artifact import Artifact
from tlm.artifacts.produce import Draft, Recipe, produce

Row = tuple[str, str | None, str | float, str]  # text, text_pair, label or target, split


def make(kind: str, root: Path, write: Any, settings: dict[str, Any], inputs: dict[str, str] | None = None) -> str:
    """Any artifact; `inputs` are URIs by name."""
    opened = {name: Artifact.open(uri) for name, uri in (inputs or {}).items()}
    return produce(Recipe(kind, f"toy-{kind}", 1, settings, opened), str(root), write)


def save(draft: Draft, name: str, columns: dict[str, Any]) -> None:
    """A parquet file of the draft."""
    table = pa.table(columns)
    pq.write_table(table, draft.folder / name)
    draft.rows[name] = table.num_rows


def make_task(root: Path, rows: list[Row], metric: str, labels: list[str] | None, name: str = "toy") -> str:
    """A task of these rows (already in the order train, dev, test); float labels where `labels` is None."""
    texts, pairs, golds, splits = (list(column) for column in zip(*rows, strict=True))
    nothing = [None] * len(rows)
    pair = any(second is not None for second in pairs)

    def write(draft: Draft) -> None:
        columns = {
            "id": [f"e{index}" for index in range(len(rows))],
            "text": texts,
            "text_pair": pa.array(pairs, pa.string()),
            "label": pa.array(golds if labels is not None else nothing, pa.string()),
            "target": pa.array(nothing if labels is not None else golds, pa.float64()),
            "split": splits,
        }
        save(draft, "examples.parquet", columns)
        text = pa.string()
        save(draft, "rejected.parquet", {name: pa.array([], text) for name in ("source", "line", "reason", "detail")})
        save(draft, "leaks.parquet", {name: pa.array([], pa.int64()) for name in ("train", "test")})
        problem = "regression" if labels is None else "classification"
        draft.details.update(problem=problem, labels=labels or [], metric=metric, pair=pair, name=name)
        draft.counts.update({split: splits.count(split) for split in ("train", "dev", "test")}, leaks=0)

    return make("task", root, write, {"rows": [list(row) for row in rows], "name": name})


def read_json(artifact: Artifact, name: str) -> Any:
    """A JSON file of an artifact."""
    return json.loads(artifact.path(name).read_text(encoding="utf-8"))


def words(count: int, seed: int, vocabulary: str = "alpha beta gamma delta epsilon zeta eta theta") -> list[str]:
    """`count` random texts of 3-12 words."""
    random = np.random.default_rng(seed)
    known = vocabulary.split()
    return [" ".join(random.choice(known, random.integers(3, 13))) for _ in range(count)]
