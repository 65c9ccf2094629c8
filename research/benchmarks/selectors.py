"""The cost of each selector, and the distance of its text from the task's (`TLM_DEV_DATA`)."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from research.benchmarks.curves import JUDGE, influential
from research.benchmarks.measure import Stopwatch
from research.benchmarks.row import Result, Row, limit
from research.benchmarks.training_data import dev_data, mixed_corpus
from tlm.artifacts.artifact import Artifact
from tlm.data.passages import passages

TOPIC = ("acl_full", "acl_abs", "arxiv_cs", "cs_acm", "cs_inspec", "cs_web", "theses")  # sources of the mixed corpus
CASES = (("scierc", 0.0), ("scierc", 0.1), ("scierc", 0.02), ("acl-arc", 0.0))  # task, share on topic; 0: as it is
OTHERS: tuple[Any, ...] = ("random", "dsir", "classifier", "dense", "hybrid")


def run(quick: bool) -> list[Result]:
    """CPU time of choosing as many passages as BM25's, for each task and share."""
    data = dev_data(quick)
    with tempfile.TemporaryDirectory() as root:
        corpus = mixed_corpus(data, root)
        return [result for task, share in CASES for result in of_task(corpus, data / task, share, root)]


def of_task(corpus: str, task: Path, share: float, root: str, judge: str = JUDGE) -> list[Result]:
    """The selectors on one task, where this share of the corpus is on topic; `judge`: preset of `rerank`'s encoder."""
    from research.dilute import dilute
    from research.retrieval.step import retrieval_study
    from tlm.data.tasks.task import load_task
    from tlm.retrieval.retrieve import retrieve
    from tlm.retrieval.search.index import build_index
    from tlm.retrieval.subset.export import export

    if share:
        corpus = dilute(corpus, topic=list(TOPIC), share=share)
    index, labelled = build_index(corpus), load_task(str(task), root=root)
    subsets: list[str] = []
    taken: list[float] = []
    for arm in ("bm25", *OTHERS):
        with Stopwatch() as watch:
            hits = retrieve(index, labelled, arm=arm, same_size_as=subsets[0] if subsets else "")
        taken.append(watch.cost().cpu)
        subsets.append(export(hits))
    with Stopwatch() as watch:
        subsets.append(influential(corpus, labelled, subsets[0], 0, judge))
    taken.append(watch.cost().cpu)
    study = Artifact.open(retrieval_study(subsets)).json("study.json")
    whole = on_topic(corpus)
    results = []
    for number, (subset, one) in enumerate(zip(subsets, study["subsets"], strict=True)):
        chosen = docs(subset)
        told = f"{len(chosen):,} passages; KL reduction {one['kl_reduction']:.3f} nats"
        told += f"; {whole[chosen].mean():.0%} on topic (corpus: {whole.mean():.0%}); {overlap(study, number)}"
        label = f"{task.name}, {whole.mean():.0%} on topic, {one['arm']}"
        results.append(limit(label, taken[number], "CPU s", note=f"{told}."))
    return results


def overlap(study: dict[str, Any], number: int) -> str:
    """The share of each other subset that is in this one; together, these are the whole matrix."""
    shares = [
        f"{study['overlap']['inside'][other][number]:.0%} of {one['arm']}'s"
        for other, one in enumerate(study["subsets"])
        if other != number
    ]
    return f"it has {', '.join(shares)} passages"


def on_topic(corpus: str) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Whether each passage of a corpus comes from a source on topic."""
    found = [batch.column("source").to_numpy(False) for batch in passages(Artifact.open(corpus), ["source"])]
    return np.isin(np.concatenate(found).astype(str), TOPIC)


def docs(subset: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The numbers of a subset's passages."""
    return np.concatenate([batch.column("doc").to_numpy() for batch in passages(Artifact.open(subset), ["doc"])])


ROW = Row(
    name="selectors",
    stage="ways to choose text",
    against="–",
    target="for information",
    what="Each selector chooses as many passages as BM25's subset has (K = 50), if its search finds that many, out of "
    "a real mixed corpus of 320,000 passages, for two real tasks. `dense` does not at 10 and 2 % on topic, where "
    "five times K is not deep enough. On topic are sources of computer science. Only choosing is timed: the "
    "index is there already, and the filters of `export` come afterwards. The KL reduction says by how much nearer the "
    "words and pairs of words of the subset are to those of the task than the corpus's are. The time "
    "of `rerank` includes the training of the encoder that it asks (both stages of the preset `pocket`), the deeper "
    "search and the filters.",
    run=run,
    packages=("numpy", "scikit-learn", "scipy", "torch"),
)
