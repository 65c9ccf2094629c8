"""The pipelines `tlm`, `shallow` and `predict`.

`tlm` turns a corpus and a task into models and a report, with the runs (arms × seeds) side by side. `shallow` is its
quick part: it trains no network, takes minutes, and needs torch only where a published model is named. It takes the
same parameters, so that one file of parameters serves both; those of training pods have no effect there. `predict`
labels files with a trained model; as a recurring run, only the files that are new.
"""

from typing import Any

from kfp import dsl

from components import data, training
from pipelines import steps as stages
from pipelines.form import Compared, Corpus, Draws, Index, Parallelism, Registry, Store, Task
from pipelines.steps import equip_all, pipeline
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
    """Train a text classifier from scratch on a task and the part of a corpus that is relevant to it (TLM, ICML 2022).

    Args:
        report_against: URI of an earlier report or of earlier metrics, to say what has changed since; empty for none.
    """
    if machines.nodes > 1 and not network:
        raise InputError("pipeline 'shallow' trains no network; leave --nodes out")
    root = store.root
    checked = {"engine": index.engine, "registry": registry.address, "network": network, "against": report_against}
    checked |= {"index": index.name, "model": registry.model}
    preflight = data.preflight(**vars(run), **vars(report), **vars(train), **checked, root=root)
    corpus_uri, task_uri = stages.load(preflight, corpus, task, machines, root)
    index_uri = data.index(corpus=corpus_uri, **vars(index), root=root).outputs["Output"]
    advised = data.advise(task=task_uri, corpus=corpus_uri, preset=run.preset, overrides=run.overrides).outputs
    query = {name: advised[name] for name in ("query", "top_k", "share")}
    hits = data.retrieve(index=index_uri, task=task_uri, **query, root=root).outputs["Output"]
    chosen = {"arms": preflight.outputs["texts"], "seeds": run.seeds}
    # without a hit, a run with networks ends; one without goes on with the task's text, and its report says so
    exported = data.export(hits=hits, task=task_uri, **chosen, **vars(export), network=network, root=root).outputs
    with dsl.ParallelFor(exported["Output"], name="arms") as arm:  # of drawn text, one for each seed
        selected = data.select(arm=arm, **vars(export), root=root).outputs
    baseline = data.baseline(task=task_uri, root=root).outputs["Output"]
    if network:
        tokenizer = stages.tokenizer(preflight, corpus_uri, task_uri, root)
        settings = vars(run) | {"overrides": advised["overrides"]}
        sources = {"task": task_uri, "tokenizer": tokenizer, "subsets": dsl.Collected(selected["subset"])}
        plan = data.plan(**settings, **sources, gpus=train.gpus, root=root)
        trained: Any = stages.scored(plan.output, train, machines, root)
    else:
        with dsl.If(run.published != "", name="published"):
            embedded = training.embed(task=task_uri, published=run.published, root=root)
        with dsl.Else(name="no-published"):  # no pod with torch
            none = data.no_embeddings()
        trained = dsl.OneOf(embedded.output, none.output)
    rows = data.mix(baseline=baseline, static=dsl.Collected(selected["static"]), trained=trained, root=root).output
    scores = {"baseline": baseline, "metrics": rows, "missing": exported["missing"], "notes": advised["reasons"]}
    return stages.report(scores, train, report, registry, root, against=report_against)


build = pipeline("tlm", "TLM", network=True)(steps)
SHALLOW = "Compare a linear model of the task with static word vectors of retrieved text, and with both mixed."
shallow = pipeline("tlm-shallow", "TLM without training a network", SHALLOW, {"run": Draws}, network=False)(steps)


@pipeline("tlm-predict", "TLM: label new files")
def predict(
    machines: Parallelism,
    train: Pods,
    predict_model: str,
    predict_source: str,
    predict_to: str,
    predict_at_least: float = 0.0,
    predict_keep: str = "",
    predict_likeliest: int = 0,
    predict_pair_field: str = "",
    predict_text_field: str = "text",
) -> str:
    """Label the texts of files with a trained model. Repeated, it labels only new files.

    Args:
        predict_model: URI of a report (the model that it recommends), of metrics or of a model.
        predict_source: Files, as a folder or glob, such as s3://bucket/texts/*.parquet (jsonl, csv, tsv, parquet).
        predict_to: Folder of the answers, such as s3://bucket/labels/: one file for each file that is read. A file that
            is already answered there is not predicted again.
        predict_at_least: Probability below which an answer is unsure, which the field `unsure` then says; 0 for none.
        predict_keep: Fields or columns that answers have, too, such as an id, separated by commas.
        predict_likeliest: How many labels have a probability in an answer, the likeliest first; 0: all.
        predict_pair_field: Field or column of the second text, for a task on pairs.
        predict_text_field: Field or column of the text; several, such as subject,body, are joined.
    """
    if machines != Parallelism():
        raise InputError("pipeline 'predict' predicts in one pod; leave --nodes and --data-pods out")
    texts = {"text_field": predict_text_field, "pair_field": predict_pair_field, "keep": predict_keep}
    where = {"model": predict_model, "source": predict_source, "to": predict_to}
    how = {"at_least": predict_at_least, "likeliest": predict_likeliest, "gpus": train.gpus}
    made = training.predict(**where, **texts, **how).output
    equip_all(train)
    return made
