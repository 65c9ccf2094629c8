"""What the pipelines begin and end with: from files to an index; arms × seeds to metrics and a report."""

from typing import Any

from kfp import dsl
from kfp.dsl.pipeline_context import Pipeline

from components import data, training, trainjob
from pipelines.resources import TrainingPods, equip


def load(preflight: Any, corpus: dict[str, Any], task: dict[str, Any], root: Any) -> tuple[Any, Any]:
    """URIs of the corpus and the task, read once the preflight is done.

    The task comes first: it takes seconds, and a fault in it should show before hours go into corpus and index.
    """
    task_step = data.load_task(**task, root=root).after(preflight)
    corpus_step = data.load_corpus(**corpus, root=root).after(task_step)
    return corpus_step.outputs["Output"], task_step.outputs["Output"]


def vocabulary(preflight: Any, corpus: Any, task: Any, root: Any) -> Any:
    """URI of the tokenizer that all runs share."""
    settings = preflight.outputs
    kind, size = settings["tokenizer_kind"], settings["vocab_size"]
    return data.tokenizer(corpus=corpus, task=task, kind=kind, vocab_size=size, root=root).output


def runs(plan: Any, task: Any, pods: TrainingPods, nodes: int, root: Any, **shown: Any) -> Any:
    """URI of the report over all runs of `plan`, beside the baseline; `shown` are prices and notes for it."""
    baseline = training.baseline(task=task, root=root).outputs["Output"]
    metrics = dsl.Collected(scored(plan, pods, nodes, root))
    report = data.report(baseline=baseline, metrics=metrics, root=root, **shown).outputs["Output"]
    equip_all(pods)
    return report


def scored(plan: Any, pods: TrainingPods, nodes: int, root: Any) -> Any:
    """URI of the metrics of each run of `plan`, inside the loop over them."""
    # inside the loop only the run and parameters are used: kfp.local mistakes other steps' outputs for the item
    with dsl.ParallelFor(plan, name="arms-and-seeds") as run:
        checkpoint = _stage1(nodes, pods, run=run, root=root)
        stage2 = training.finetune(checkpoint=checkpoint, run=run, gpus=pods.gpus, root=root)
        return training.evaluate(model=stage2.outputs["Output"], run=run, root=root).outputs["Output"]


def equip_all(pods: TrainingPods) -> None:
    """Give every step of the pipeline what it needs on a cluster."""
    for step in Pipeline.get_default_pipeline().tasks.values():
        equip(step, step.component_spec.name, pods)


def _stage1(nodes: int, pods: TrainingPods, **settings: Any) -> Any:
    """URI of the checkpoint."""
    if nodes == 1:
        return training.train(gpus=pods.gpus, **settings).outputs["Output"]
    return trainjob.train_on_nodes(nodes=nodes, **pods._asdict(), **settings).output
