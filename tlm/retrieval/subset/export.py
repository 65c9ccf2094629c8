"""Export: write the passages that were hit as a subset ready for training, each once and filtered."""

from pathlib import Path
from tempfile import TemporaryDirectory

from tlm.artifacts.artifact import Artifact
from tlm.artifacts.produce import Draft, Recipe, produce
from tlm.errors import InputError
from tlm.options import Filters
from tlm.progress import say, track
from tlm.retrieval.subset.candidates import Candidates, queries_of, read_hits
from tlm.retrieval.subset.collect import collect, collected
from tlm.retrieval.subset.judge import REASONS, judge
from tlm.retrieval.subset.write import write_subset

VERSION = 3


def export(
    hits: str,
    *,
    filters: Filters = Filters(),
    root: str | None = None,
) -> str:
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
    corpus, task = source.input("index").input("corpus"), source.input("task") if filters.overlap else None
    # the hits alone do not decide the subset: a changed test text leaves them as they are, but changes what is removed
    inputs = {"hits": source, "corpus": corpus} | ({"task": task} if task else {})
    recipe = Recipe("subset", "export", VERSION, settings=filters.settings(), inputs=inputs)
    return produce(recipe, root, _write, source, corpus, task, filters)


def _write(draft: Draft, hits: Artifact, corpus: Artifact, task: Artifact | None, filters: Filters) -> None:
    path = hits.path("hits.parquet")
    with TemporaryDirectory(prefix="texts-", dir=draft.folder) as name:
        texts = Path(name)
        candidates = Candidates.from_hits(
            hits.uri,
            lambda: collected(texts),
            track((doc for (doc,) in read_hits(path, "doc")), "grouping hits", unit="portions"),
            read_hits(path, "doc", "rank", "score"),
        )
        if not len(candidates):
            raise InputError(f"{hits.uri} holds no hit, so there is nothing to export; look at its dropped.parquet")
        collect(corpus, candidates.docs, texts)
        like = hits.details.get("like")
        verdicts = judge(candidates, filters, {"": task} if task else {}, like=like)
        kept = verdicts.rows()
        queries = queries_of(path, candidates.docs[kept])
        draft.details = {"arm": hits.details["arm"]}
        write_subset(draft, candidates, verdicts, range(len(REASONS)), {"queries": queries})
    if like is not None:
        draft.counts["missing"] = max(0, like - len(kept))
        if len(kept) < like:
            say(f"warning: {like:,} passages were asked for, but only {len(kept):,} are left")
