"""Components of multi-task TLM: steps that tasks share, steps for each task, and their reports."""

from kfp.dsl import HTML, Markdown, Metrics, Output

from components.base import DATA_IMAGE, TRAIN_IMAGE, component


@component(DATA_IMAGE)
def load_tasks(
    paths: str,
    text_field: str,
    pair_field: str,
    label_field: str,
    label_separator: str,
    group_field: str,
    metric: str,
    problem: str,
    overrides: str,
    root: str,
) -> list[str]:
    """Read several labelled tasks (train, dev, test), after refusing settings that tasks cannot share."""
    from research.multitask.plan import load_together
    from tlm.settings.options import Fields, Problem

    fields = Fields(text_field, pair_field, label_field, label_separator, group_field=group_field)
    return load_together(paths.split(","), overrides.split(), fields, Problem(metric, problem), root)


@component(DATA_IMAGE)
def task_subsets(
    index: str, tasks: list[str], preset: str, overrides: str, near_duplicates: bool, overlap: bool, root: str
) -> list[str]:
    """Retrieve and export a subset for each task; the first subset is their union, without dev or test text of any."""
    from research.multitask.merge import task_subsets
    from tlm.settings.options import Filters
    from tlm.settings.presets import resolve

    asked, filters = resolve(preset, overrides.split()).retrieve, Filters(near_duplicates, overlap)
    return task_subsets(index, tasks, filters, query=asked.query, top_k=asked.top_k, root=root)


@component(DATA_IMAGE)
def shared_tokenizer(corpus: str, tasks: list[str], kind: str, vocab_size: int, root: str) -> str:
    """Train one tokenizer on a sample of the corpus and the train splits of all tasks."""
    from tlm.training.input.tokenizer import build_tokenizer

    settings = {"kind": kind, "vocab_size": vocab_size, "more_tasks": tasks[1:]}
    return build_tokenizer(corpus, tasks[0], **settings, root=root)


@component(DATA_IMAGE)
def plan_together(
    seeds: str, tasks: list[str], tokenizer: str, subsets: list[str], preset: str, overrides: str, root: str
) -> list[str]:
    """List the runs of stage 1 for all tasks together, one for each seed, and tokenize all texts once."""
    from research.multitask.plan import plan_together
    from tlm.training.input.tokenize import tokenize_all

    tokenize_all([*tasks, *subsets], tokenizer, preset=preset, overrides=overrides.split(), root=root)
    sources = {"tasks": tasks, "tokenizer": tokenizer, "subset": subsets[0]}
    return plan_together(seeds, **sources, preset=preset, overrides=overrides)


@component(TRAIN_IMAGE)
def train_multitask(run: str, gpus: str, root: str, cost: Output[Metrics]) -> str:
    """Stage 1: train one encoder for all tasks, with a classification head for each."""
    from research.multitask.train import train_multitask
    from tlm.evaluation.report.kfp import log_counts
    from tlm.runs.plan import PlannedRun

    arm = PlannedRun.parse(run)
    return log_counts(train_multitask(arm.tasks(), **arm.inputs(), **arm.on(gpus), root=root), cost)


@component(DATA_IMAGE)
def plan_apart(
    together: list[str], checkpoints: list[str], subsets: list[str], overrides: str, gpus: str
) -> list[dict[str, str]]:
    """List two runs for each task and seed: the task alone, and stage 2 of the encoder trained on all tasks."""
    from research.multitask.plan import plan_apart
    from tlm.runs.plan import on_pods

    return on_pods(plan_apart(together, checkpoints, subsets=subsets[1:], overrides=overrides), gpus)


@component(DATA_IMAGE)
def report_tasks(
    baselines: list[str],
    metrics: list[str],
    gpu_hour: float,
    cpu_hour: float,
    kilowatt_hour: float,
    grams_per_kwh: float,
    root: str,
    report: Output[HTML],
    summary: Output[Markdown],
) -> str:
    """Write a report for each task, and one that compares training alone and together across the tasks."""
    from research.multitask.report import report_multitask
    from tlm.evaluation.report.kfp import write_report
    from tlm.settings.options import Prices

    prices = Prices(gpu_hour, cpu_hour, kilowatt_hour, grams_per_kwh)
    uri = report_multitask([*baselines, *metrics], prices=prices, root=root)
    return write_report(uri, report.path, summary.path)
