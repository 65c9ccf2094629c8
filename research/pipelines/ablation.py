"""The runs of one of the paper's tables on a corpus and a task: settings × arms × seeds, with the same steps."""

from dataclasses import dataclass

from components import data
from pipelines import steps
from pipelines.form import Corpus, Index, Parallelism, Registry, Store, Task
from pipelines.steps import pipeline
from research.components.paper import models, subsets, trials
from tlm.settings.options import Filters, Pods, Prices


@dataclass
class Paper:
    """One of the paper's tables to run, at a scale.

    Args:
        corpus: Which corpus this is, C_BERT or C_RoBERTa, if the table has both.
        models: Folder with the published models that a table compares with, by name; empty for the Hub.
        scale: tiny, pocket, mini (one GPU), small, medium or large (the paper's).
        table: Number of the table, such as 4; `python -m research paper` lists what there is.
    """

    corpus: str = ""
    models: str = ""
    scale: str = "pocket"
    table: str = "4"


@pipeline("tlm-paper", "TLM, a table of the paper")
def build(
    machines: Parallelism,
    corpus: Corpus,
    export: Filters,
    index: Index,
    paper: Paper,
    registry: Registry,
    report: Prices,
    store: Store,
    task: Task,
    train: Pods,
    run_seeds: str = "0,1,2",
) -> str:
    """Run the experiments of one of the paper's tables on a corpus and a task (TLM, ICML 2022); `keep` saves them.

    Args:
        run_seeds: Seeds, separated by commas.
    """
    root, cells = store.root, {"table": paper.table, "scale": paper.scale, "corpus": paper.corpus}
    settings = {"preset": paper.scale, "overrides": "", "arms": "bm25", "seeds": run_seeds}
    checked = {"engine": index.engine, "index": index.name, "registry": registry.address, "model": registry.model}
    preflight = data.preflight(**settings, **checked, root=root, **vars(report), **vars(train))
    corpus_uri, task_uri = steps.load(preflight, corpus, task, machines, root)
    index_uri = data.index(corpus=corpus_uri, **vars(index), root=root).outputs["Output"]
    made = {
        "subsets": subsets(index=index_uri, task=task_uri, **cells, seeds=run_seeds, **vars(export), root=root).output,
        "tokenizer": steps.tokenizer(preflight, corpus_uri, task_uri, root),
        "models": models(task=task_uri, **cells, folder=paper.models, root=root).output,
    }
    plan = trials(task=task_uri, **made, **cells, seeds=run_seeds, gpus=train.gpus, root=root)
    baseline = data.baseline(task=task_uri, root=root).outputs["Output"]
    scores = {"baseline": baseline, "metrics": steps.scored(plan.output, train, machines, root)}
    return steps.report(scores, train, report, registry, root)
