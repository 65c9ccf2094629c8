"""The steps that pipelines share, wired together."""

from collections.abc import Callable
from functools import cache
from typing import Any

from docstring_parser import parse
from kfp import dsl
from kfp.dsl.pipeline_context import Pipeline

from components import data, training
from pipelines.form import ONE_OF_EACH, Corpus, Index, Parallelism, Registry, Task
from pipelines.resources import equip
from tlm.cli.command import descriptions, flat
from tlm.settings.options import Filters, Pods, Prices


def pipeline(name: str, display_name: str, **given: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Turn a function into one that returns the pipeline for a number of machines.

    The arguments of the function are `machines`, those in `given`, groups of parameters, and single parameters.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @cache
        def build(machines: Parallelism = ONE_OF_EACH) -> Any:
            steps = flat(function, form=True, machines=machines, **given)
            # the form in the UI shows names only, so the description says what the parameters mean
            lines = [f"- `{parameter}`: {meaning}" for parameter, meaning in descriptions(steps).items()]
            description = "\n".join([parse(steps.__doc__ or "").short_description or "", "", "Parameters:", "", *lines])
            several = [f"{count} {what.replace('_', ' ')}" for what, count in vars(machines).items() if count > 1]
            suffix = "".join(f"-{words.replace(' ', '-')}" for words in several)
            shown = f"{display_name} on {' and '.join(several)}" if several else display_name
            about = {"name": name + suffix, "display_name": shown, "description": description}
            # no pipeline_config: KFP 2.16 does not know its fields, and then ignores limits and secrets, too
            return dsl.pipeline(**about)(steps)

        return build

    return decorate


def load(preflight: Any, files: Corpus, task: Task, machines: Parallelism, root: Any) -> tuple[Any, Any]:
    """Return the URIs of corpus and task, read after the preflight.

    The task comes first: it takes seconds, and an error in it should show before hours go into corpus and index.
    """
    task_step = data.load_task(**vars(task), root=root).after(preflight)
    return corpus(task_step, files, machines, root), task_step.outputs["Output"]


def corpus(after: Any, files: Corpus, machines: Parallelism, root: Any) -> Any:
    """Return the URI of the corpus, loaded after another step by one pod or several."""
    if machines.data_pods == 1:
        return data.load_corpus(**vars(files), root=root).after(after).outputs["Output"]
    planned = data.plan_corpus(**vars(files), pods=machines.data_pods, root=root).after(after)
    with dsl.ParallelFor(planned.output, name="corpus-parts") as pod:
        staged = data.stage_corpus(pod=pod)
    compared = data.dedup_corpus(pods=dsl.Collected(staged.output))
    with dsl.ParallelFor(compared.output, name="corpus-shards") as pod:
        written = data.write_corpus(pod=pod)
    return data.publish_corpus(pods=dsl.Collected(written.output)).outputs["Output"]


def tokenizer(preflight: Any, corpus: Any, task: Any, root: Any) -> Any:
    """Return the URI of the tokenizer that all runs share."""
    kind, size = preflight.outputs["tokenizer_kind"], preflight.outputs["vocab_size"]
    return data.tokenizer(corpus=corpus, task=task, kind=kind, vocab_size=size, root=root).output


def index(corpus: Any, settings: Index, root: Any) -> Any:
    """Return the URI of the index."""
    return data.index(corpus=corpus, **vars(settings), root=root).outputs["Output"]


def selected(
    index: Any, task: Any, arms: Any, seeds: Any, advised: dict[str, Any], filters: Filters, root: Any
) -> tuple[Any, Any]:
    """Return the URIs of the arms' subsets (a drawn one for each seed), and of the metrics of static models."""
    query = {name: advised[name] for name in ("query", "top_k", "share")}
    hits = data.retrieve(index=index, task=task, **query, root=root).outputs["Output"]
    chosen = {"arms": arms, "seeds": seeds}
    exported = data.export(hits=hits, task=task, **chosen, **vars(filters), root=root).outputs["Output"]
    with dsl.ParallelFor(exported, name="arms") as arm:
        made = data.select(arm=arm, **vars(filters), root=root).outputs
    return dsl.Collected(made["subset"]), dsl.Collected(made["static"])


def embeddings(task: Any, published: Any, root: Any) -> dsl.OneOf:
    """Return the URIs of the metrics of published models' embeddings: none, and no pod with torch, without a model."""
    with dsl.If(published != "", name="published"):
        embedded = training.embed(task=task, published=published, root=root)
    with dsl.Else(name="no-published"):
        none = data.none()
    return dsl.OneOf(embedded.output, none.output)


def report(scores: dict[str, Any], train: Pods, prices: Prices, registry: Registry, root: Any, **more: Any) -> Any:
    """Return the URI of the report on some metrics; the model it names is registered, if there is a registry."""
    made = data.report(**scores, **vars(prices), root=root, **more).outputs["Output"]
    run = {"run": dsl.PIPELINE_JOB_ID_PLACEHOLDER, "run_name": dsl.PIPELINE_JOB_NAME_PLACEHOLDER}
    with dsl.If(registry.address != "", name="registry"):
        data.register(report=made, **vars(registry), **run)
    equip_all(train)
    return made


def scored(plan: Any, train: Pods, machines: Parallelism, root: Any) -> dsl.Collected:
    """Return the URIs of the metrics of all runs of `plan`."""
    # inside the loop only the run and parameters are used: kfp.local mistakes other steps' outputs for the item
    with dsl.ParallelFor(plan, name="arms-and-seeds") as run:
        if machines.nodes == 1:
            checkpoint = training.train(run=run, gpus=train.gpus, root=root).outputs["Output"]
        else:
            checkpoint = training.train_on_nodes(run=run, nodes=machines.nodes, **vars(train), root=root).output
        model = training.finetune(checkpoint=checkpoint, run=run, gpus=train.gpus, root=root).outputs["Output"]
        metrics = training.evaluate(model=model, run=run, gpus=train.gpus, root=root).outputs["Output"]
    return dsl.Collected(metrics)


def equip_all(train: Pods) -> None:
    """Give every step of the pipeline what it needs on a cluster."""
    steps = Pipeline.get_default_pipeline().tasks
    for step in steps.values():
        equip(step, step.component_spec.name, train, steps["preflight"])
