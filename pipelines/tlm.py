"""The TLM pipeline: corpus and task in, models and a report out, with the runs (arms × seeds) side by side."""

from components import data
from pipelines import stages
from pipelines.groups import Corpus, Export, Index, Prices, Run, Store, Task, TrainingPods
from pipelines.pipeline import pipeline


@pipeline("tlm", "TLM")
def build(
    nodes: int,
    corpus: Corpus,
    export: Export,
    index: Index,
    report: Prices,
    run: Run,
    store: Store,
    task: Task,
    train: TrainingPods,
    run_arms: str = "bm25",
) -> str:
    """Train a text classifier from scratch on a task and the part of a corpus that matters to it (TLM, ICML 2022).

    Args:
        run_arms: Arms to train, separated by commas: bm25, random, task-only.
    """
    root = store.root
    preflight = data.preflight(**vars(run), arms=run_arms, engine=index.engine, root=root, **vars(report))
    corpus_uri, task_uri = stages.load(preflight, corpus, task, root)
    index_uri = data.index(corpus=corpus_uri, **vars(index), root=root).outputs["Output"]
    advised = data.advise(task=task_uri, corpus=corpus_uri, preset=run.preset, overrides=run.overrides).outputs
    query = {name: advised[name] for name in ("query", "top_k")}
    hits = data.retrieve(index=index_uri, task=task_uri, **query, root=root).outputs["Output"]
    bm25 = data.export(hits=hits, **vars(export), root=root).outputs["Output"]
    sample = data.random_subset(index=index_uri, task=task_uri, like=bm25, arms=run_arms, **vars(export), root=root)
    subsets = {"subset": bm25, "random_subset": sample.output}
    trained = stages.tokenizer(preflight, corpus_uri, task_uri, root)
    tokenizer = data.tokenize(task=task_uri, **subsets, tokenizer=trained, root=root).output
    settings = vars(run) | {"arms": run_arms, "overrides": advised["overrides"]}
    plan = data.plan(**settings, task=task_uri, tokenizer=tokenizer, **subsets)
    return stages.runs(plan.output, task_uri, train, nodes, root, notes=advised["reasons"], **vars(report))


tlm = build()
