"""Multi-task TLM: several tasks train one encoder on one subset, compared with each task alone at equal compute."""

from kfp import dsl

from components import data
from pipelines import steps
from pipelines.form import Corpus, Examples, Index, Parallelism, RunSettings, Store
from pipelines.steps import pipeline
from research.components import multitask
from tlm.errors import InputError
from tlm.settings.options import Filters, Pods, Prices


@pipeline("tlm-multitask", "TLM for several tasks")
def build(
    machines: Parallelism,
    corpus: Corpus,
    export: Filters,
    index: Index,
    report: Prices,
    run: RunSettings,
    store: Store,
    task: Examples,
    train: Pods,
    task_paths: str = "s3://tlm/task/",
) -> str:
    """Train one encoder for several tasks together, and each task alone, at equal total compute (ours, after TLM).

    Args:
        export_overlap: Remove passages that overlap dev or test text of any of the tasks.
        run_overrides: Settings that replace the preset's, separated by spaces; numbers of steps are for one task alone.
        task_label_field: Field that holds the label, or the number for regression; the same for all tasks.
        task_paths: The tasks, separated by commas: folders with train, dev and test files, or names.
    """
    if machines.nodes > 1:
        raise InputError("pipeline 'multitask' trains each stage 1 on one machine; leave --nodes out")
    root = store.root
    checked = {"arms": "bm25", "engine": index.engine, "index": index.name, "root": root}
    preflight = data.preflight(**vars(run), **checked, **vars(report), **vars(train))
    settings = preflight.outputs
    loaded = multitask.load_tasks(paths=task_paths, **vars(task), overrides=run.overrides, root=root).after(preflight)
    corpus_uri = steps.corpus(loaded, corpus, machines, root)
    tasks = loaded.output
    index_uri = data.index(corpus=corpus_uri, **vars(index), root=root).outputs["Output"]
    preset = {"preset": run.preset, "overrides": run.overrides}
    subsets = multitask.task_subsets(index=index_uri, tasks=tasks, **preset, **vars(export), root=root).output
    vocabulary = {"kind": settings["tokenizer_kind"], "vocab_size": settings["vocab_size"]}
    tokenizer = multitask.shared_tokenizer(corpus=corpus_uri, tasks=tasks, **vocabulary, root=root).output
    sources = {"tasks": tasks, "tokenizer": tokenizer, "subsets": subsets}
    together = multitask.plan_together(**vars(run), **sources, root=root).output
    with dsl.ParallelFor(together, name="seeds-together") as item:
        checkpoint = multitask.train_multitask(run=item, gpus=train.gpus, root=root).outputs["Output"]
    made = {"together": together, "checkpoints": dsl.Collected(checkpoint)}
    apart = multitask.plan_apart(**made, subsets=subsets, overrides=run.overrides, gpus=train.gpus).output
    with dsl.ParallelFor(tasks, name="baselines") as item:
        baseline = data.baseline(task=item, root=root).outputs["Output"]
    scores = {"baselines": dsl.Collected(baseline), "metrics": steps.scored(apart, train, machines, root)}
    made_report = multitask.report_tasks(**scores, **vars(report), root=root).outputs["Output"]
    steps.equip_all(train)
    return made_report
