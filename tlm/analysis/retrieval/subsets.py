"""Subsets as sets of passages: what they share, what they take from where, who asked for them. All shard by shard."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tlm.artifacts.artifact import Artifact
from tlm.errors import InputError
from tlm.evaluation.report.lineage import Lineage

AT_ONCE = 1 << 16
PASSAGES = "passages-*.parquet"

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Subset:
    """A subset with where it came from; what is gone is None.

    Attributes:
        docs: Its passages, ascending. 8 bytes for each is all that stays in memory.
        best_rank: The best rank that any query gave each.
        asked: By how many labelled examples each was asked for; zeros in a random subset.
    """

    name: str
    role: str
    artifact: Artifact
    hits: Artifact | None
    task: Artifact | None
    corpus: Artifact | None
    docs: Ints
    best_rank: NDArray[np.int32]
    asked: NDArray[np.int32]

    @property
    def arm(self) -> str:
        """``bm25`` or ``random``."""
        return str(self.artifact.details.get("arm", ""))

    @classmethod
    def read(cls, artifact: Artifact, name: str, role: str, lineage: Lineage) -> "Subset":
        """Read a `subset` artifact: of its passages everything but the texts."""
        hits = lineage.follow(artifact, "hits")
        corpus = lineage.follow(artifact, "corpus") or lineage.follow(hits, "index", "corpus")
        weights = None if hits is None or artifact.details.get("arm") == "random" else examples_of(hits)
        docs, ranks, asked = [np.zeros(0, np.int64)], [np.zeros(0, np.int32)], [np.zeros(0, np.int32)]
        for batch in rows(artifact, ["doc", "best_rank", "queries"]):
            docs.append(batch.column("doc").to_numpy())
            ranks.append(batch.column("best_rank").to_numpy())
            asked.append(_asked(batch.column("queries"), weights))
        task = lineage.follow(hits, "task")
        columns = np.concatenate(docs), np.concatenate(ranks), np.concatenate(asked)
        return cls(name, role, artifact, hits, task, corpus, *columns)


def rows(artifact: Artifact, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """The passages of a subset or corpus in order, in portions; only `columns` are read."""
    for entry in artifact.entries(PASSAGES):
        with pq.ParquetFile(artifact.verified(entry)) as file:
            yield from file.iter_batches(AT_ONCE, columns=columns)


def examples_of(hits: Artifact) -> Ints:
    """How many labelled examples stand behind each query; a text that several examples share is one query."""
    table = pq.read_table(hits.path("queries.parquet"), columns=["query", "examples"], partitioning=None)
    queries = table["query"].to_numpy()
    counts = np.zeros(max(0, int(queries.max(initial=-1))) + 1, np.int64)
    counts[np.maximum(queries, 0)] = pc.list_value_length(table["examples"]).to_numpy()
    return counts


def _asked(queries: pa.Array, weights: Ints | None) -> NDArray[np.int32]:
    lengths = pc.fill_null(pc.list_value_length(queries), 0).to_numpy(zero_copy_only=False)
    if weights is None:
        return np.zeros(len(lengths), np.int32)
    flat = queries.flatten().to_numpy(zero_copy_only=False)
    row = np.repeat(np.arange(len(lengths)), lengths)
    return np.bincount(row, weights[flat], minlength=len(lengths)).astype(np.int32)


def shared_corpus(subsets: list[Subset]) -> Artifact | None:
    """The corpus that all of them are from; None where it is gone (of a single subset only).

    Raises:
        InputError: they are from different corpora, or of one of several it is not known.
    """
    contents = {one.corpus.content if one.corpus else "" for one in subsets}
    if len(contents) > 1 or (len(subsets) > 1 and "" in contents):
        first, second = subsets[0], next((one for one in subsets if one.corpus != subsets[0].corpus), subsets[-1])
        raise InputError(
            f"{first.artifact.uri} and {second.artifact.uri} are not known to be from the same corpus, so their "
            "passages cannot be told to be the same; study them one by one"
        )
    return subsets[0].corpus


def overlap(subsets: list[Subset]) -> dict[str, list[list[float]]]:
    """Shared passages of each pair: ``shared`` (number), ``jaccard`` (of both together), ``inside`` (of the row's)."""
    shared = [[_common(a.docs, b.docs) for b in subsets] for a in subsets]
    sizes = [len(one.docs) for one in subsets]
    pairs = [[(row, column) for column in range(len(subsets))] for row in range(len(subsets))]
    return {
        "shared": [[float(value) for value in line] for line in shared],
        "jaccard": [[shared[r][c] / max(1, sizes[r] + sizes[c] - shared[r][c]) for r, c in line] for line in pairs],
        "inside": [[shared[r][c] / max(1, sizes[r]) for r, c in line] for line in pairs],
    }


def _common(a: Ints, b: Ints) -> int:
    """How many values two ascending arrays without repetitions share."""
    if not len(b):
        return 0
    return int((b[np.minimum(np.searchsorted(b, a), len(b) - 1)] == a).sum())


def sources(subsets: list[Subset], corpus: Artifact) -> list[dict[str, Any]]:
    """For each source of the corpus: its passages, its share of the corpus and of each subset; the largest first."""
    whole: dict[str, int] = {}
    taken: list[dict[str, int]] = [{} for _ in subsets]
    for batch in rows(corpus, ["doc", "source"]):
        docs, names = batch.column("doc").to_numpy(), pc.dictionary_encode(batch.column("source"))
        labels, codes = names.dictionary.to_pylist(), names.indices.to_numpy()
        _count(whole, labels, codes)
        for subset, into in zip(subsets, taken, strict=True):
            start, stop = np.searchsorted(subset.docs, [docs[0], docs[-1] + 1]) if len(docs) else (0, 0)
            _count(into, labels, codes[np.searchsorted(docs, subset.docs[start:stop])])
    total = sum(whole.values())
    found = [
        {
            "source": str(name),
            "passages": whole[name],
            "corpus": whole[name] / total,
            "subsets": [into.get(name, 0) / max(1, len(one.docs)) for one, into in zip(subsets, taken, strict=True)],
        }
        for name in whole
    ]
    return sorted(found, key=lambda row: (-max(row["corpus"], *row["subsets"]), row["source"]))


def _count(into: dict[str, int], labels: list[str], codes: NDArray[Any]) -> None:
    for code, number in enumerate(np.bincount(codes, minlength=len(labels)).tolist()):
        if number:
            into[labels[code]] = into.get(labels[code], 0) + number
