"""The TLM pipeline: corpus and task in, models and a report out, with the runs (arms × seeds) side by side.

The pipeline `shallow` is the quick part of it: models without a network, in minutes and without torch. It takes the
same parameters, so that one file of parameters serves both; those of training pods have no effect there.
"""

from typing import Any

from components import data
from pipelines import steps as stages
from pipelines.form import Corpus, Draws, Index, Machines, Registry, Run, Store, Task
from pipelines.steps import pipeline
from tlm.errors import InputError
from tlm.settings.options import Filters, Pods, Prices


def steps(
    machines: Machines,
    network: bool,
    corpus: Corpus,
    export: Filters,
    index: Index,
    registry: Registry,
    report: Prices,
    run: Run,
    store: Store,
    task: Task,
    train: Pods,
    run_arms: str = "bm25",
) -> str:
    """Train a text classifier from scratch on a task and the part of a corpus that matters to it (TLM, ICML 2022).

    Args:
        run_arms: Arms to train, separated by commas: bm25, random, task-only, dsir, classifier, dense, hybrid.
    """
    root, pods = store.root, vars(train)
    preflight = data.preflight(
        **vars(run), arms=run_arms, engine=index.engine, root=root, registry=registry.address, **vars(report), **pods
    )
    corpus_uri, task_uri = stages.load(preflight, corpus, task, machines, root)
    index_uri = stages.index(corpus_uri, index, root)
    advised = data.advise(task=task_uri, corpus=corpus_uri, preset=run.preset, overrides=run.overrides).outputs
    subsets, static = stages.selected(index_uri, task_uri, run_arms, run.seeds, advised, export, root)
    baseline = data.baseline(task=task_uri, root=root).outputs["Output"]
    trained: Any = []
    if network:
        tokenizer = stages.tokenizer(preflight, corpus_uri, task_uri, root)
        settings = vars(run) | {"arms": run_arms, "overrides": advised["overrides"]}
        plan = data.plan(**settings, task=task_uri, tokenizer=tokenizer, subsets=subsets, root=root)
        trained = stages.scored(plan.output, train, machines, root)
    rows = data.mix(baseline=baseline, static=static, trained=trained, root=root).output
    scores = {"baseline": baseline, "metrics": rows}
    return stages.report(scores, train, report, registry, root, notes=advised["reasons"])


build = pipeline("tlm", "TLM", network=True)(steps)
tlm = build()


@pipeline("tlm-shallow", "TLM without training a network")
def shallow(
    machines: Machines,
    corpus: Corpus,
    export: Filters,
    index: Index,
    registry: Registry,
    report: Prices,
    run: Draws,
    store: Store,
    task: Task,
    train: Pods,
    run_arms: str = "bm25,random,task-only",
) -> str:
    """Compare a linear model of the task with static word vectors of retrieved text, and with both mixed.

    Args:
        run_arms: Texts to learn vectors from, separated by commas: bm25, random, task-only, dsir, classifier, dense,
            hybrid.
        run_overrides: Settings to change, such as retrieve.top_k=20; auto chooses K and query by the paper's rules.
        run_preset: Named settings; only those of the retrieval have an effect here; see `tlm show`.
        run_seeds: Seeds of random and the other arms that draw their text: so many draws, each with its own model.
    """
    if machines.nodes > 1:
        raise InputError("pipeline 'shallow' trains no network; leave --nodes out")
    return steps(machines, False, corpus, export, index, registry, report, run, store, task, train, run_arms)
