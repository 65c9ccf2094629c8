"""How much closer the words of a subset are to the task's than those of the corpus (DSIR, arXiv 2302.03169)."""

from tlm.analysis.retrieval.subsets import Subset
from tlm.artifacts.artifact import Artifact
from tlm.data.corpus_reader import sample
from tlm.retrieval.search.retrieve import training_texts
from tlm.retrieval.select.dsir import Shares, divergence, shares


def reductions(subsets: list[Subset], corpus: Artifact, most: int, seed: int) -> list[float | None]:
    """The KL reduction of each subset in nats; None if its task is gone.

    It is the divergence of the task's words and pairs of words from the corpus's, less that from the subset's (section
    5.1 there). The words of at most `most` passages of each are counted, drawn at random with `seed`.
    """

    def of_passages(artifact: Artifact) -> Shares:
        return shares(list(sample(artifact, most, seed)))

    whole = of_passages(corpus)
    found: list[float | None] = []
    for one in subsets:
        if one.task is None:
            found.append(None)
            continue
        task = shares([text for _, text in training_texts(one.task)])
        found.append(divergence(task, whole) - divergence(task, of_passages(one.artifact)))
    return found
