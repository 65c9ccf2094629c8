"""What the pipelines begin and end with: from files to corpus, task and tokenizer; from a plan of runs to a report."""

from typing import Any

from kfp import dsl
from kfp.dsl.pipeline_context import Pipeline

from components import data, training, trainjob
from pipelines.groups import Corpus, Task, TrainingPods
from pipelines.resources import equip


def load(preflight: Any, corpus: Corpus, task: Task, root: Any) -> tuple[Any, Any]:
    """Return the URIs of corpus and task, read after the preflight.

    The task comes first: it takes seconds, and an error in it should show before hours go into corpus and index.
    """
    task_step = data.load_task(**vars(task), root=root).after(preflight)
    corpus_step = data.load_corpus(**vars(corpus), root=root).after(task_step)
    return corpus_step.outputs["Output"], task_step.outputs["Output"]


def tokenizer(preflight: Any, corpus: Any, task: Any, root: Any) -> Any:
    """Return the URI of the tokenizer that all runs share."""
    kind, size = preflight.outputs["tokenizer_kind"], preflight.outputs["vocab_size"]
    return data.tokenizer(corpus=corpus, task=task, kind=kind, vocab_size=size, root=root).output


def runs(plan: Any, task: Any, train: TrainingPods, nodes: int, root: Any, **shown: Any) -> Any:
    """Return the URI of the report on the baseline and all runs of `plan`; `shown` are prices and notes for it."""
    baseline = training.baseline(task=task, root=root).outputs["Output"]
    metrics = scored(plan, train, nodes, root)
    report = data.report(baseline=baseline, metrics=metrics, root=root, **shown).outputs["Output"]
    equip_all(train)
    return report


def scored(plan: Any, train: TrainingPods, nodes: int, root: Any) -> dsl.Collected:
    """Return the URIs of the metrics of all runs of `plan`."""
    # inside the loop only the run and parameters are used: kfp.local mistakes other steps' outputs for the item
    with dsl.ParallelFor(plan, name="arms-and-seeds") as run:
        if nodes == 1:
            checkpoint = training.train(run=run, gpus=train.gpus, root=root).outputs["Output"]
        else:
            checkpoint = trainjob.train_on_nodes(run=run, nodes=nodes, **vars(train), root=root).output
        model = training.finetune(checkpoint=checkpoint, run=run, gpus=train.gpus, root=root).outputs["Output"]
        metrics = training.evaluate(model=model, run=run, root=root).outputs["Output"]
    return dsl.Collected(metrics)


def equip_all(train: TrainingPods) -> None:
    """Give every step of the pipeline what it needs on a cluster."""
    for step in Pipeline.get_default_pipeline().tasks.values():
        equip(step, step.component_spec.name, train)
