"""The step `dilute`: the same corpus with less text on a topic, to measure what retrieval gains."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tlm.artifacts.artifact import Artifact
from tlm.artifacts.produce import Draft, Recipe, produce
from tlm.data.passages import numbered, passages, write_shards
from tlm.errors import InputError, nearest
from tlm.settings.options import NOT_NEGATIVE

VERSION = 1


def dilute(corpus: str, *, topic: list[str], share: float, seed: int = 0, root: str | None = None) -> str:
    """Thin out the passages of some sources, so that they have a given share of all passages.

    All passages of the other sources stay, so that corpora of several shares have the same general part. With the same
    seed, a smaller share is a part of a larger one.

    Args:
        corpus: URI of the corpus, loaded with a source field.
        topic: The sources to thin out.
        share: The share of all passages that they will have: 0 or more, and less than now.
        seed: Which of their passages stay.
        root: Store to write to, which holds the corpus; by default TLM_ROOT, else the store of the corpus.

    Returns:
        URI of the new corpus. Its counts say how many passages of each kind it has.

    Raises:
        InputError: a source is unknown, or the corpus has too few passages on the topic or no others.
    """
    given = Artifact.open(corpus, "corpus")
    NOT_NEGATIVE.check("seed", seed)
    if not topic:
        raise InputError("topic is empty; give the sources to thin out")
    if not 0 <= share < 1:
        raise InputError(f"share is {share}; expected 0 or more, and less than 1")
    settings = {"topic": sorted(set(topic)), "share": share, "seed": seed}
    recipe = Recipe("corpus", "dilute", VERSION, settings, {"corpus": given})
    return produce(recipe, root, _write, given, settings)


def _write(draft: Draft, corpus: Artifact, settings: dict[str, Any]) -> None:
    on_topic = _on_topic(corpus, settings["topic"])
    stays = ~on_topic
    count = _wanted(int(on_topic.sum()), int(stays.sum()), settings["share"])
    order = np.random.default_rng(settings["seed"]).permutation(np.flatnonzero(on_topic))
    stays[order[:count]] = True
    draft.rows = write_shards(draft.folder, "passages", numbered(_chosen(corpus, stays)))
    draft.counts = {"passages": int(stays.sum()), "on topic": count, "general": int((~on_topic).sum())}
    draft.details["passages"] = draft.counts["passages"]


def _chosen(corpus: Artifact, stays: NDArray[np.bool_]) -> Iterator[pa.Table]:
    """The passages that stay, without their numbers."""
    for batch in passages(corpus):
        yield pa.Table.from_batches([batch]).filter(pa.array(stays[: len(batch)])).drop_columns("doc")
        stays = stays[len(batch) :]


def _on_topic(corpus: Artifact, topic: Sequence[str]) -> NDArray[np.bool_]:
    """Whether each passage is from one of the sources. Raises InputError if there is no such source."""
    sources = pa.chunked_array([batch.column("source") for batch in passages(corpus, ["source"])], pa.string())
    known = sorted(pc.unique(sources).to_pylist())
    for one in topic:
        if one not in known:
            raise InputError(f"{corpus.uri} has no source '{one}'{nearest(one, known)}")
    return pc.is_in(sources, pa.array(topic)).to_numpy()  # type: ignore[no-any-return]


def _wanted(there: int, general: int, share: float) -> int:
    """The number of passages on the topic that has that share. Raises InputError if there are fewer."""
    if not general:
        raise InputError("all passages are from the sources of the topic; leave out some of these")
    count = round(general * share / (1 - share))
    if count > there:
        most = there / (there + general)
        raise InputError(f"share is {share}, but only {most:.2%} of the passages are on the topic; expected less")
    return count
