"""Points of our curves: ``python -m research.benchmarks.curves labels CORPUS TASK --per-class 16 --draw 3``.

A point of ``compute`` is one encoder of BM25's text. A point of ``dilution`` or ``labels`` is a linear model, static
models of BM25's text and of as much random text, and both mixed with the linear one; with --preset, also an encoder of
either text, whose seed is the draw. With --arm, a point of ``dilution`` has the text of other selectors, and is kept as
one of ``selectors``; its encoders are of those alone, as ``dilution`` has BM25's. The selector ``rerank`` asks an
encoder of BM25's text, of --preset or pocket, whose seed is the draw; ``task-only`` has the task's own text. What it
made is kept in the folder of results. CORPUS and TASK are URIs; finished steps are found.
"""

import shlex
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from research.dilute import dilute
from research.fewer_labels import fewer_labels
from research.paper.keep import keep
from research.paper.results import FOLDER
from research.rerank.reranked import reranked
from tlm.artifacts.artifact import Artifact
from tlm.cli import main
from tlm.data.passages import passages
from tlm.data.tasks.examples import examples
from tlm.evaluation.score.baseline import baseline, static
from tlm.evaluation.score.evaluate import evaluate
from tlm.evaluation.score.mix import mixtures
from tlm.retrieval.retrieve import retrieve
from tlm.retrieval.search.index import build_index
from tlm.retrieval.subset.export import TASK_ONLY, export
from tlm.settings.presets import resolve
from tlm.settings.selectors import RERANKED
from tlm.training.input.tokenizer import build_tokenizer
from tlm.training.stages import finetune, train

app = typer.Typer(help=__doc__, add_completion=False, pretty_exceptions_enable=False)


@app.callback()
def curves() -> None:
    """Make points of a curve."""


Preset = Annotated[str, typer.Option(help="Preset of encoders to train, too.")]
TopK = Annotated[int, typer.Option(help="Passages for each example.")]
RANDOM = ["random"]
JUDGE = "pocket"  # the preset of the encoder that `rerank` asks
Results = Annotated[str, typer.Option(help="Folder of the results.")]


@app.command()
def dilution(
    corpus: str,
    task: str,
    topic: Annotated[list[str], typer.Option(help="A source on topic; may be repeated.")],
    share: Annotated[float, typer.Option(help="Share of the corpus on topic; 0: as it is.")] = 0.0,
    draw: Annotated[int, typer.Option(help="Seed of the diluted corpus and of what selectors draw.")] = 0,
    arm: Annotated[list[str], typer.Option(help="A selector beside BM25; may be repeated.")] = RANDOM,
    top_k: TopK = 50,
    preset: Preset = "",
    results: Results = FOLDER,
) -> None:
    """Static models of BM25's and of other text, where this share of the corpus is on topic."""
    thinned = dilute(corpus, topic=topic, share=share, seed=draw) if share else corpus
    words = [*(word for one in topic for word in ("--topic", one)), "--share", f"{share:g}"]
    curve = "dilution" if arm == RANDOM else "selectors"
    words += [word for one in arm for word in ("--arm", one) if curve == "selectors"]
    metrics = point(thinned, task, draw, top_k, preset, arm)
    at, command = share or on_topic(corpus, topic), command_of("dilution", words, draw, top_k, preset)
    print(keep(metrics, table=curve, at=at, draw=draw, command=command, results=results))


@app.command()
def labels(
    corpus: str,
    task: str,
    per_class: Annotated[int, typer.Option(help="Labelled training examples of a class, at most; 0: all.")] = 0,
    draw: Annotated[int, typer.Option(help="Seed of the labelled examples and of the random passages.")] = 0,
    keep_texts: Annotated[bool, typer.Option(help="Keep the other training texts without their labels.")] = False,
    top_k: TopK = 50,
    preset: Preset = "",
    results: Results = FOLDER,
) -> None:
    """Static models of BM25's and of random text, where classes have so many labelled examples."""
    few = fewer_labels(task, per_class=per_class, seed=draw, keep_texts=keep_texts) if per_class else task
    words = ["--per-class", str(per_class), *(["--keep-texts"] if keep_texts else [])]
    command = command_of("labels", words, draw, top_k, preset)
    metrics = point(corpus, few, draw, top_k, preset)
    curve = "labels-and-texts" if keep_texts else "labels"
    print(keep(metrics, table=curve, at=per_class or largest(task), draw=draw, command=command, results=results))


@app.command()
def compute(
    corpus: str,
    task: str,
    steps: Annotated[int, typer.Option(help="Steps of stage 1; 0: the preset's.")] = 0,
    draw: Annotated[int, typer.Option(help="Seed of the encoder.")] = 0,
    top_k: TopK = 50,
    preset: Preset = "pocket",
    results: Results = FOLDER,
) -> None:
    """An encoder of BM25's text with so many steps of stage 1, at the FLOPs of both stages by the paper's rule."""
    command = command_of("compute", ["--steps", str(steps)], draw, top_k, preset)
    subset = export(retrieve(build_index(corpus), task, top_k=top_k))
    settings = [f"train.steps={steps}"] if steps else []
    metrics = encoder(corpus, task, subset, draw, preset, settings)
    model = Artifact.open(metrics).input("model")
    flops = sum(stage.details["cost"]["paper_flops"] for stage in (model, model.input("checkpoint")))
    print(keep([metrics], table="compute", at=float(f"{flops:.1e}"), draw=draw, command=command, results=results))


def encoder(corpus: str, task: str, subset: str, seed: int, preset: str, settings: list[str]) -> str:
    """The metrics of an encoder that is trained on a subset."""
    wanted = resolve(preset).tokenizer
    tokenizer = build_tokenizer(corpus, task, kind=wanted.kind, vocab_size=wanted.vocab_size)
    checkpoint = train(task, tokenizer=tokenizer, subset=subset, preset=preset, overrides=settings, seed=seed)
    return evaluate(finetune(checkpoint, task, preset=preset, overrides=settings), task)


def influential(corpus: str, task: str, bm25: str, seed: int, preset: str) -> str:
    """The text that an encoder of BM25's text chooses by influence."""
    return reranked([Artifact.open(encoder(corpus, task, bm25, seed, preset, []))])


def point(corpus: str, task: str, draw: int, top_k: int, preset: str, arms: Sequence[str] = RANDOM) -> list[str]:
    """The metrics of a point: the linear model, static ones of BM25's and other text, encoders, and mixtures."""
    index = build_index(corpus)
    bm25 = export(retrieve(index, task, top_k=top_k))

    def chosen(arm: Any) -> str:
        if arm == TASK_ONLY:
            return ""
        if arm == RERANKED:
            return influential(corpus, task, bm25, draw, preset or JUDGE)
        return export(retrieve(index, task, arm=arm, top_k=top_k, same_size_as=bm25, seed=draw))

    subsets = [bm25, *map(chosen, arms)]
    linear, models = baseline(task), [static(task, subset=subset) for subset in subsets]
    if preset:
        encoded = subsets if arms == RANDOM else subsets[1:]
        models += [encoder(corpus, task, subset, draw, preset, []) for subset in encoded]
    return [linear, *models, *mixtures(linear, models)]


def command_of(curve: str, words: list[str], draw: int, top_k: int, preset: str) -> str:
    """The command that makes a point again."""
    words = [curve, "CORPUS", "TASK", *words, "--draw", str(draw), "--top-k", str(top_k)]
    return f"python -m research.benchmarks.curves {shlex.join([*words, *(['--preset', preset] if preset else [])])}"


def largest(task: str) -> int:
    """The number of training examples of the largest class."""
    table = examples(Artifact.open(task, "task"))
    train = zip(table["split"].to_pylist(), table["label"].to_pylist(), strict=True)
    return max(Counter(label for split, label in train if split == "train").values())


def on_topic(corpus: str, topic: list[str]) -> float:
    """The share of the passages that come from these sources, with two digits."""
    sources = [
        source for batch in passages(Artifact.open(corpus, "corpus"), ["source"]) for source in batch[0].to_pylist()
    ]
    return round(sum(source in topic for source in sources) / len(sources), 2)


if __name__ == "__main__":
    main.main(lambda: app(sys.argv[1:]))
