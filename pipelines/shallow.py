"""The quick pipeline: corpus and task in, a report on models without a network out, in minutes and without torch.

It takes the parameters of the pipeline `tlm`, so that one file of parameters serves both; those of training pods have
no effect here.
"""

from pipelines.form import Corpus, Draws, Index, Machines, Registry, Store, Task
from pipelines.steps import pipeline
from pipelines.tlm import steps
from tlm.errors import InputError
from tlm.settings.options import Filters, Pods, Prices


@pipeline("tlm-shallow", "TLM without training a network")
def build(
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
        run_preset: Named settings, of which only those of the retrieval count; see `tlm show`.
        run_seeds: Seeds of random and the other arms that draw their text: so many draws, each with its own model.
    """
    if machines.nodes > 1:
        raise InputError("pipeline 'shallow' trains no network; leave --nodes out")
    return steps(machines, False, corpus, export, index, registry, report, run, store, task, train, run_arms)


shallow = build()
