"""The TLM pipeline: corpus and task in, models and a report out, with the runs (arms × seeds) side by side.

The pipeline `shallow` is the quick part of it: it trains no network, takes minutes, and needs torch only where a
published model is named. It takes the same parameters, so that one file of parameters serves both; those of training
pods have no effect there.
"""

from typing import Any

from components import data
from pipelines import steps as stages
from pipelines.form import Compared, Corpus, Draws, Index, Parallelism, Registry, Store, Task
from pipelines.steps import pipeline
from tlm.errors import InputError
from tlm.settings.options import Filters, Pods, Prices


def steps(
    machines: Parallelism,
    network: bool,
    corpus: Corpus,
    export: Filters,
    index: Index,
    registry: Registry,
    report: Prices,
    run: Compared,
    store: Store,
    task: Task,
    train: Pods,
    report_against: str = "",
) -> str:
    """Train a text classifier from scratch on a task and the part of a corpus that matters to it (TLM, ICML 2022).

    Args:
        report_against: URI of an earlier report or of earlier metrics, to say what has changed since; empty for none.
    """
    root = store.root
    checked = {"engine": index.engine, "registry": registry.address, "network": network, "against": report_against}
    checked |= {"index": index.name, "model": registry.model}
    preflight = data.preflight(**vars(run), **vars(report), **vars(train), **checked, root=root)
    corpus_uri, task_uri = stages.load(preflight, corpus, task, machines, root)
    index_uri = data.index(corpus=corpus_uri, **vars(index), root=root).outputs["Output"]
    advised = data.advise(task=task_uri, corpus=corpus_uri, preset=run.preset, overrides=run.overrides).outputs
    texts = preflight.outputs["texts"]
    subsets, static, missing = stages.selected(index_uri, task_uri, texts, run.seeds, advised, export, network, root)
    baseline = data.baseline(task=task_uri, root=root).outputs["Output"]
    if network:
        tokenizer = stages.tokenizer(preflight, corpus_uri, task_uri, root)
        settings = vars(run) | {"overrides": advised["overrides"]}
        sources = {"task": task_uri, "tokenizer": tokenizer, "subsets": subsets}
        plan = data.plan(**settings, **sources, gpus=train.gpus, root=root)
        trained: Any = stages.scored(plan.output, train, machines, root)
    else:
        trained = stages.embeddings(task_uri, run.published, root)
    rows = data.mix(baseline=baseline, static=static, trained=trained, root=root).output
    scores = {"baseline": baseline, "metrics": rows, "missing": missing, "notes": advised["reasons"]}
    return stages.report(scores, train, report, registry, root, against=report_against)


build = pipeline("tlm", "TLM", network=True)(steps)


@pipeline("tlm-shallow", "TLM without training a network")
def shallow(
    machines: Parallelism,
    corpus: Corpus,
    export: Filters,
    index: Index,
    registry: Registry,
    report: Prices,
    run: Draws,
    store: Store,
    task: Task,
    train: Pods,
    report_against: str = "",
) -> str:
    """Compare a linear model of the task with static word vectors of retrieved text, and with both mixed.

    Args:
        report_against: URI of an earlier report or of earlier metrics, to say what has changed since; empty for none.
    """
    if machines.nodes > 1:
        raise InputError("pipeline 'shallow' trains no network; leave --nodes out")
    return steps(machines, False, corpus, export, index, registry, report, run, store, task, train, report_against)
