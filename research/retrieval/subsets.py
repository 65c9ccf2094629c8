"""Subsets as sets of passages: overlap, sources, and how many examples retrieved a passage. Files are read in parts."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tlm.artifacts.artifact import Artifact, follow
from tlm.data.passages import passages, sample
from tlm.data.ranges import Ints
from tlm.data.tasks.metrics import Floats
from tlm.errors import InputError
from tlm.evaluation.origins.provenance import count_sources
from tlm.evaluation.report.preview import examples_by_query
from tlm.retrieval.retrieve import training_texts
from tlm.retrieval.selectors import log_ratios, word_shares
from tlm.settings.selectors import WITHOUT_QUERIES


def divergence(task: Floats, other: Floats) -> float:
    """The Kullback-Leibler divergence of the task's distribution from another, in nats (section 5.1 of DSIR)."""
    return float(np.sum(task * log_ratios(task, other)))


@dataclass(frozen=True)
class Subset:
    """A subset and the artifacts that it was made from.

    Attributes:
        name: Its name on the page.
        role: Its colour role.
        artifact: The `subset` artifact.
        hits: The hits; None if they are gone, as are `task` and `corpus`.
        task: The task of the hits.
        corpus: The corpus of the passages.
        docs: The passages' numbers, ascending; 8 bytes for each passage stay in memory.
        best_rank: The best rank of each passage in any query.
        asked: For how many examples, also those without labels, each passage was retrieved; zeros in a random subset.
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

    @classmethod
    def read(cls, artifact: Artifact, name: str, role: str) -> "Subset":
        """Read everything but the texts of a `subset` artifact."""
        hits = follow(artifact, "hits")
        corpus = follow(artifact, "corpus") or follow(hits, "index", "corpus")
        weights = np.zeros(0, np.int64)
        if hits is not None and artifact.details.get("arm") not in WITHOUT_QUERIES:
            examples = examples_by_query(hits)
            weights = np.zeros(max(examples, default=-1) + 1, np.int64)
            weights[list(examples)] = [len(rows) for rows in examples.values()]
        parts = [(np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int32))]
        for batch in passages(artifact, ["doc", "best_rank", "queries"]):
            parts.append(
                (batch["doc"].to_numpy(), batch["best_rank"].to_numpy(), times_asked(batch["queries"], weights))
            )
        columns = map(np.concatenate, zip(*parts, strict=True))
        return cls(name, role, artifact, hits, follow(hits, "task"), corpus, *columns)


def shared_corpus(subsets: list[Subset]) -> Artifact | None:
    """The corpus that all subsets are from; None if there is one subset and its corpus is gone.

    Raises:
        InputError: The subsets are from different corpora, or the corpus of one of several is unknown.
    """
    contents = {one.corpus.content if one.corpus else "" for one in subsets}
    if len(contents) > 1 or (len(subsets) > 1 and "" in contents):
        first, second = subsets[0], next((one for one in subsets if one.corpus != subsets[0].corpus), subsets[-1])
        raise InputError(
            f"{first.artifact.uri} and {second.artifact.uri} are not known to be from the same corpus, so their "
            "passages cannot be compared; study them one by one"
        )
    return subsets[0].corpus


def overlap(subsets: list[Subset]) -> dict[str, list[list[float]]]:
    """Shared passages of each pair: ``shared`` (number), ``jaccard`` (of both together), ``inside`` (of the row's)."""
    shared = np.array([[np.isin(a.docs, b.docs).sum() for b in subsets] for a in subsets], np.float64)
    sizes = np.array([[len(one.docs)] for one in subsets])
    return {
        "shared": shared.tolist(),
        "jaccard": (shared / np.maximum(1, sizes + sizes.T - shared)).tolist(),
        "inside": (shared / np.maximum(1, sizes)).tolist(),
    }


def sources(subsets: list[Subset], corpus: Artifact) -> list[dict[str, Any]]:
    """The passages of each source, and its share of the corpus and of each subset; the largest shares first."""
    counted = count_sources(corpus, [subset.artifact for subset in subsets])
    whole, *taken = (Counter[str]() for _ in counted)
    for counter, own in zip((whole, *taken), counted, strict=True):
        for (name, _), number in own.items():  # with any licence
            counter[name] += number
    found = [
        {
            "source": name,
            "passages": number,
            "corpus": number / whole.total(),
            "subsets": [counter[name] / max(1, len(one.docs)) for one, counter in zip(subsets, taken, strict=True)],
        }
        for name, number in whole.items()
    ]
    return sorted(found, key=lambda row: (-max(row["corpus"], *row["subsets"]), row["source"]))


def reductions(subsets: list[Subset], corpus: Artifact, most: int, seed: int) -> list[float | None]:
    """The KL reduction of each subset in nats; None if its task is gone.

    It is the divergence of the task's words and pairs of words from the corpus's, less that from the subset's (section
    5.1 there). The words of at most `most` passages of each are counted, drawn at random with `seed`.
    """

    def of_passages(artifact: Artifact) -> NDArray[np.float64]:
        return word_shares(list(sample(artifact, most, seed)))

    whole = of_passages(corpus)
    found: list[float | None] = []
    for one in subsets:
        if one.task is None:
            found.append(None)
            continue
        task = word_shares([text for _, text in training_texts(one.task)])
        found.append(divergence(task, whole) - divergence(task, of_passages(one.artifact)))
    return found


def times_asked(queries: pa.Array, weights: Ints) -> NDArray[np.int32]:
    """The number of examples behind the `queries` of each passage; `weights` has it by query."""
    if not len(weights):
        return np.zeros(len(queries), np.int32)
    rows = np.repeat(np.arange(len(queries)), pc.list_value_length(queries))
    return np.bincount(rows, weights[queries.flatten()], minlength=len(queries)).astype(np.int32)
