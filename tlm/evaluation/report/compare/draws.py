"""Which text of a run was drawn: another seed would have given it another one, and another score."""

from collections.abc import Iterator

from tlm.artifacts.artifact import Artifact
from tlm.evaluation.report.lineage import Lineage
from tlm.retrieval.select.selectors import draws


def drawn(metrics: Artifact, lineage: Lineage) -> frozenset[str]:
    """The contents of the subsets that were drawn, of those that a model or the members of a mixture learned from."""
    return frozenset(subset.content for subset in _subsets(metrics, lineage) if _by_chance(subset, lineage))


def learned_from(model: Artifact | None, checkpoint: Artifact | None, lineage: Lineage) -> Artifact | None:
    """The subset that stage 1, or a static model, was trained on; None if there is none, or it is gone."""
    return lineage.follow(checkpoint, "subset_tokens", "data") or lineage.follow(model, "subset")


def repeats(runs: int, draws: int, *, alike: bool) -> str:
    """What the models of an arm differ in: ``5 draws``, ``3 seeds``, ``3 seeds and draws``, ``3 seeds of one draw``.

    Args:
        runs: How many there are.
        draws: How many texts were drawn for them; 0 if none was.
        alike: Whether training gives the same with every seed, so that only the draws differ.
    """
    seeds = f"{runs} seeds" if runs > 1 else "one seed"
    drawn = f"{draws} draws" if draws > 1 else "one draw"
    if draws and alike:
        return drawn
    if draws == runs:
        return f"{seeds} and draw{'s' if draws > 1 else ''}"
    return f"{seeds} of {drawn}" if draws else seeds


def _subsets(metrics: Artifact, lineage: Lineage) -> Iterator[Artifact]:
    model = lineage.follow(metrics, "model")
    checkpoint = lineage.follow(model, "checkpoint") or lineage.follow(metrics, "checkpoint")
    if found := learned_from(model, checkpoint, lineage):
        yield found
    for name in model.manifest.inputs if model is not None else ():
        if name.startswith("metrics-") and (member := lineage.follow(model, name)):  # of a mixture
            yield from _subsets(member, lineage)


def _by_chance(subset: Artifact, lineage: Lineage) -> bool:
    """Whether another seed would have given another subset; where that cannot be found out any more, it would."""
    hits, corpus = lineage.follow(subset, "hits"), lineage.follow(subset, "corpus")
    index = lineage.follow(hits, "index")
    corpus = corpus or lineage.follow(index, "corpus")
    if corpus is None:
        return draws(subset.details["arm"])
    vectors = bool(index is not None and index.details.get("vectors"))
    vectors |= bool(hits is not None and hits.manifest.settings.get("embedder"))
    return draws(subset.details["arm"], corpus.details["passages"], vectors=vectors)
