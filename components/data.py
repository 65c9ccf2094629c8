"""Components of the data image (without torch): from files to a subset and its tokens, shallow models, the report."""

from typing import NamedTuple

from kfp.dsl import HTML, Artifact, Markdown, Metrics, Output

from components.base import DATA_IMAGE, component


@component(DATA_IMAGE)
def plan_corpus(
    paths: str, text_field: str, id_field: str, source_field: str, license_field: str, words: int, pods: int, root: str
) -> list[str]:
    """Check and hash the files of a general corpus, and list the pods that read them."""
    from tlm.data.corpus.load import plan_corpus
    from tlm.settings.options import Layout

    layout = Layout(text_field, id_field, source_field, license_field, words)
    return plan_corpus([*map(str.strip, paths.split(","))], layout=layout, pods=pods, root=root)


@component(DATA_IMAGE)
def stage_corpus(pod: str) -> str:
    """Read a pod's parts of the files and split them into passages."""
    from tlm.data.corpus.load import stage_corpus

    return stage_corpus(pod)


@component(DATA_IMAGE)
def dedup_corpus(pods: list[str]) -> list[str]:
    """Find the passages that repeat an earlier one of any part."""
    from tlm.data.corpus.load import dedup_corpus

    return dedup_corpus(pods)


@component(DATA_IMAGE)
def write_corpus(pod: str) -> str:
    """Write the passages of a pod's parts that stay."""
    from tlm.data.corpus.load import write_corpus

    return write_corpus(pod)


@component(DATA_IMAGE)
def publish_corpus(pods: list[str], counts: Output[Metrics]) -> str:
    """Publish the corpus."""
    from tlm.data.corpus.load import publish_corpus
    from tlm.evaluation.report.kfp import log_counts

    return log_counts(publish_corpus(pods), counts)


@component(DATA_IMAGE)
def preflight(
    preset: str,
    overrides: str,
    arms: str,
    seeds: str,
    engine: str,
    root: str,
    gpu_hour: float,
    cpu_hour: float,
    kilowatt_hour: float,
    grams_per_kwh: float,
    cpu: str,
    gpu_type: str,
    gpus: str,
    memory: str,
    node_selector: dict[str, str],
    tolerations: list[dict[str, str]],
    registry: str = "",
    published: str = "",
    published_preset: str = "",
    network: bool = True,
    against: str = "",
    index: str = "",
    model: str = "",
) -> NamedTuple(  # type: ignore[valid-type]
    "Settings", [("tokenizer_kind", str), ("vocab_size", int), ("texts", str), ("one_gpu", str)]
):
    """Check settings, models, prices, training pods, store, disk, Elasticsearch and model registry before any work."""
    from tlm.runs.plan import settings
    from tlm.runs.preflight import check_run
    from tlm.settings.options import Pods, Prices

    Prices(gpu_hour, cpu_hour, kilowatt_hour, grams_per_kwh)
    pods = Pods(cpu, gpu_type, gpus, memory, node_selector, tolerations)
    check_run(pods, engine, registry, root, against, network, index, model)
    return settings(preset, overrides.split(), arms, seeds, gpus, published, published_preset, network)


@component(DATA_IMAGE)
def load_corpus(
    paths: str,
    text_field: str,
    id_field: str,
    source_field: str,
    license_field: str,
    words: int,
    root: str,
    counts: Output[Metrics],
) -> str:
    """Read a general corpus from files and split it into passages."""
    from tlm.data.corpus.load import load_corpus
    from tlm.evaluation.report.kfp import log_counts
    from tlm.settings.options import Layout

    layout = Layout(text_field, id_field, source_field, license_field, words)
    return log_counts(load_corpus([*map(str.strip, paths.split(","))], layout=layout, root=root), counts)


@component(DATA_IMAGE)
def load_task(
    path: str,
    text_field: str,
    pair_field: str,
    label_field: str,
    label_separator: str,
    group_field: str,
    metric: str,
    problem: str,
    files: str,
    unlabelled_path: str,
    max_rejected: int,
    root: str,
    counts: Output[Metrics],
) -> str:
    """Read a labelled task (train, dev, test)."""
    from tlm.data.tasks.task import load_task
    from tlm.evaluation.report.kfp import log_counts
    from tlm.settings.options import Fields, Problem

    fields = Fields(text_field, pair_field, label_field, label_separator, group_field=group_field)
    more = {"problem": Problem(metric, problem), "unlabelled": unlabelled_path, "files": files, "root": root}
    return log_counts(load_task(path, fields=fields, max_rejected=max_rejected, **more), counts)


@component(DATA_IMAGE)
def advise(task: str, corpus: str, preset: str, overrides: str) -> NamedTuple(  # type: ignore[valid-type]
    "Advised", [("top_k", int), ("query", str), ("share", str), ("overrides", str), ("reasons", str)]
):
    """Choose the settings that overrides leave open (auto): K, query and rho1 by the paper's rules, with reasons."""
    from tlm.runs.plan import advised

    return advised(task, preset, overrides.split(), corpus)


@component(DATA_IMAGE)
def index(corpus: str, engine: str, name: str, vectors: bool, root: str, counts: Output[Metrics]) -> str:
    """Index the corpus for BM25, and by vectors if asked to."""
    from tlm.evaluation.report.kfp import log_counts
    from tlm.retrieval.search.index import build_index

    return log_counts(build_index(corpus, engine=engine, name=name, vectors=vectors, root=root), counts)


@component(DATA_IMAGE)
def retrieve(index: str, task: str, query: str, top_k: int, share: str, root: str, counts: Output[Metrics]) -> str:
    """Query the index with every training example."""
    from tlm.evaluation.report.kfp import log_counts
    from tlm.retrieval.retrieve import retrieve

    return log_counts(retrieve(index, task, query=query, top_k=top_k, share=share, root=root), counts)


@component(DATA_IMAGE)
def export(
    hits: str,
    task: str,
    arms: str,
    seeds: str,
    near_duplicates: bool,
    overlap: bool,
    network: bool,
    root: str,
    counts: Output[Metrics],
    dataset_card: Output[Markdown],
) -> NamedTuple("Exported", [("Output", list[str]), ("missing", str)]):  # type: ignore[valid-type]
    """Export the hits as a subset, without near-duplicates and dev or test text; list arms and draws for `select`."""
    from tlm.evaluation.report.kfp import log_counts, write_dataset_card
    from tlm.runs.plan import arms_of, exported
    from tlm.settings.options import Filters

    subset, missing = exported(hits, Filters(near_duplicates, overlap), root, required=network)
    write_dataset_card(log_counts(subset, counts), dataset_card.path, missing)
    return arms_of(arms, seeds, task, subset), missing


@component(DATA_IMAGE)
def select(
    arm: str,
    near_duplicates: bool,
    overlap: bool,
    root: str,
    counts: Output[Metrics],
) -> NamedTuple("Selected", [("subset", str), ("static", str)]):  # type: ignore[valid-type]
    """Choose or draw an arm's text, as much as BM25 found; train and score a linear model of static word vectors."""
    from tlm.evaluation.report.kfp import log_counts
    from tlm.evaluation.score.baseline import select
    from tlm.settings.options import Filters

    subset, scored = select(arm, Filters(near_duplicates, overlap), root)
    log_counts(subset or scored, counts)
    return subset, scored


@component(DATA_IMAGE)
def tokenizer(corpus: str, task: str, kind: str, vocab_size: int, root: str) -> str:
    """Train one tokenizer for all arms, on a sample of the corpus and the train split."""
    from tlm.training.input.tokenizer import build_tokenizer

    return build_tokenizer(corpus, task, kind=kind, vocab_size=vocab_size, root=root)


@component(DATA_IMAGE)
def plan(
    arms: str,
    seeds: str,
    task: str,
    tokenizer: str,
    subsets: list[str],
    preset: str,
    overrides: str,
    gpus: str,
    root: str,
    published: str = "",
    published_preset: str = "",
) -> list[dict[str, str]]:
    """List the runs (arms × seeds), each with all that the steps inside the loop need; tokenize their texts once."""
    from tlm.runs.plan import on_pods, plan, tokenize_runs

    how = {"preset": preset, "overrides": overrides, "published": published, "published_preset": published_preset}
    runs = plan(arms, seeds, task=task, tokenizer=tokenizer, subsets=subsets, **how)
    tokenize_runs(runs, root)
    return on_pods(runs, gpus)


@component(DATA_IMAGE)
def baseline(task: str, root: str, metrics: Output[Metrics]) -> str:
    """Train and score the baseline: a linear model of words, characters and marked spans."""
    from tlm.evaluation.report.kfp import log_scores
    from tlm.evaluation.score.baseline import baseline

    return log_scores(baseline(task, root=root), metrics)


@component(DATA_IMAGE)
def no_embeddings() -> list[str]:
    """List no models, where none is asked for."""
    return []


@component(DATA_IMAGE)
def mix(baseline: str, static: list[str], trained: list[str], root: str) -> list[str]:
    """Mix each model with the linear model, and a network also with the static model of its text; list them all."""
    from tlm.evaluation.score.mix import mixtures

    models = [one for one in (*static, *trained) if one]
    return [*models, *mixtures(baseline, models, root=root)]


@component(DATA_IMAGE)
def report(
    baseline: str,
    metrics: list[str],
    root: str,
    report: Output[HTML],
    summary: Output[Markdown],
    notebook: Output[Artifact],
    gpu_hour: float,
    cpu_hour: float,
    kilowatt_hour: float,
    grams_per_kwh: float,
    missing: str = "",
    notes: str = "",
    against: str = "",
) -> str:
    """Compare models with the baseline, with costs, curves and retrieved text."""
    from tlm.evaluation.report.kfp import write_report
    from tlm.evaluation.report.report import report as make_report
    from tlm.settings.options import Prices

    more = {"notes": [*missing.splitlines(), *notes.splitlines()], "against": against}
    prices = Prices(gpu_hour, cpu_hour, kilowatt_hour, grams_per_kwh)
    uri = make_report([baseline, *metrics], prices=prices, **more, root=root)
    return write_report(uri, report.path, summary.path, notebook.path)


@component(DATA_IMAGE)
def register(report: str, address: str, model: str, run: str, run_name: str) -> str:
    """Tell Kubeflow's Model Registry of the model that the report says to use."""
    from tlm.runs.registry import register

    return register(report, address=address, name=model, run=run, run_name=run_name)
