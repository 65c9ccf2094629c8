"""The quick pipeline: corpus and task in, a report on models without a network out, in minutes and without torch.

It takes the parameters of the pipeline `tlm`, so that one file of parameters serves both; those of training pods have
no effect here.
"""

from components import data
from pipelines import stages
from pipelines.form.groups import Corpus, Draws, Export, Index, Prices, Registry, Store, Task, TrainingPods
from pipelines.form.options import Machines
from pipelines.pipeline import pipeline
from tlm.errors import InputError


@pipeline("tlm-shallow", "TLM without training a network")
def build(
    machines: Machines,
    corpus: Corpus,
    export: Export,
    index: Index,
    registry: Registry,
    report: Prices,
    run: Draws,
    store: Store,
    task: Task,
    train: TrainingPods,
    run_arms: str = "bm25,random,task-only",
) -> str:
    """Compare a linear model of the task with static word vectors of fetched text, and with both mixed.

    Args:
        run_arms: Texts to learn vectors from, separated by commas: bm25, random, task-only, dsir, classifier, dense,
            hybrid.
        run_overrides: Settings to change, such as retrieve.top_k=20; auto chooses K and query by the paper's rules.
        run_preset: Named settings, of which only those of the retrieval count; see `tlm show`.
        run_seeds: Seeds of random and the other arms that draw their text: so many draws, each with its own model.
    """
    if machines.nodes > 1:
        raise InputError("pipeline 'shallow' trains no network; leave --nodes out")
    root, pods = store.root, vars(train)
    preflight = data.preflight(
        **vars(run), arms=run_arms, engine=index.engine, root=root, registry=registry.address, **vars(report), **pods
    )
    corpus_uri, task_uri = stages.load(preflight, corpus, task, machines, root)
    index_uri = stages.index(corpus_uri, index, root)
    advised = data.advise(task=task_uri, corpus=corpus_uri, preset=run.preset, overrides=run.overrides).outputs
    _, static = stages.selected(index_uri, task_uri, run_arms, run.seeds, advised, export, root)
    baseline = data.baseline(task=task_uri, root=root).outputs["Output"]
    rows = data.mix(baseline=baseline, static=static, trained=[], root=root).output
    scores = {"baseline": baseline, "metrics": rows}
    return stages.report(scores, train, report, registry, root, notes=advised["reasons"])


shallow = build()
