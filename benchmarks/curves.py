"""Points of our curves: ``python -m benchmarks.curves dilution CORPUS TASK --topic SOURCE … --share 0.02 --draw 3``.

Each point is a linear model, static models of BM25's text and of as much random text, and both mixed with the linear
one. What it made is kept in the folder of results. CORPUS and TASK are URIs; finished steps are found.
"""

import shlex
import sys
from typing import Annotated

import typer

from tlm import cli
from tlm.artifacts.artifact import Artifact
from tlm.data.corpus import passages
from tlm.data.dilute import dilute
from tlm.evaluation.mixture.rows import mixtures
from tlm.evaluation.score.baseline import baseline, static
from tlm.paper.keep import keep
from tlm.paper.results import FOLDER
from tlm.retrieval.search.index import build_index
from tlm.retrieval.search.retrieve import retrieve
from tlm.retrieval.subset.export import export

app = typer.Typer(help=__doc__, add_completion=False, pretty_exceptions_enable=False)


@app.callback()
def curves() -> None:
    """Make points of a curve."""


@app.command()
def dilution(
    corpus: str,
    task: str,
    topic: Annotated[list[str], typer.Option(help="A source on topic; may be repeated.")],
    share: Annotated[float, typer.Option(help="Share of the corpus on topic; 0: as it is.")] = 0.0,
    draw: Annotated[int, typer.Option(help="Seed of the diluted corpus and of the random passages.")] = 0,
    top_k: Annotated[int, typer.Option(help="Passages for each example.")] = 50,
    results: Annotated[str, typer.Option(help="Folder of the results.")] = FOLDER,
) -> None:
    """Static models of BM25's and of random text, where this share of the corpus is on topic."""
    thinned = dilute(corpus, topic=topic, share=share, seed=draw) if share else corpus
    index = build_index(thinned)
    bm25 = export(retrieve(index, task, top_k=top_k))
    random = export(retrieve(index, task, arm="random", like=bm25, seed=draw))
    linear, vectors = baseline(task), [static(task, subset=subset) for subset in (bm25, random)]
    metrics = [linear, *vectors, *mixtures(linear, vectors)]
    words = ["dilution", "CORPUS", "TASK", *(word for one in topic for word in ("--topic", one))]
    words += ["--share", f"{share:g}", "--draw", str(draw), "--top-k", str(top_k)]
    command = f"python -m benchmarks.curves {shlex.join(words)}"
    print(
        keep(
            metrics, table="dilution", at=share or on_topic(corpus, topic), draw=draw, command=command, results=results
        )
    )


def on_topic(corpus: str, topic: list[str]) -> float:
    """The share of the passages that come from these sources, with two digits."""
    sources = [
        source for batch in passages(Artifact.open(corpus, "corpus"), ["source"]) for source in batch[0].to_pylist()
    ]
    return round(sum(source in topic for source in sources) / len(sources), 2)


if __name__ == "__main__":
    cli.main(lambda: app(sys.argv[1:]))
