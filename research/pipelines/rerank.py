"""Reranked text (ISS): a trained model of BM25's text chooses the passages that new ones are trained on."""

from components import data
from pipelines import steps
from pipelines.form import Parallelism, Registry, RunSettings, Store
from pipelines.steps import pipeline
from research.components import reranking
from tlm.errors import InputError
from tlm.settings.options import Pods, Prices


@pipeline("tlm-rerank", "TLM with reranked text")
def build(
    machines: Parallelism,
    registry: Registry,
    report: Prices,
    run: RunSettings,
    store: Store,
    train: Pods,
    compared_with: str = "",
) -> str:
    """Train on text that a model of an earlier run chose by its influence on the task (ISS, ACL 2023).

    Args:
        compared_with: URI of the report of a run with the arm bm25. Its first model chooses; its other models are in
            the new report, too. Give the new run the same settings.
        store_root: Where that run stored its artifacts, and these are stored: s3://bucket/prefix or a folder.
    """
    if machines.data_pods > 1:
        raise InputError("pipeline 'rerank' loads no corpus; leave --data-pods out")
    root, pods = store.root, vars(train)
    settings = {"arms": "bm25", "engine": "embedded", "root": root}  # the index exists; what searches it is found there
    settings |= {"registry": registry.address, "model": registry.model}
    preflight = data.preflight(**vars(run), **settings, **vars(report), **pods)
    gpus = {"gpus": preflight.outputs["one_gpu"], "train_gpus": train.gpus}
    chosen = reranking.rerank(report=compared_with, **vars(run), **gpus, root=root).outputs
    metrics = steps.scored(chosen["Output"], train, machines, root)
    rows = data.mix(baseline=chosen["baseline"], static=chosen["models"], trained=metrics, root=root).output
    return steps.report({"baseline": chosen["baseline"], "metrics": rows}, train, report, registry, root)
