"""The TLM pipeline: corpus and task in, models and a report out, with the runs (arms × seeds) side by side.

The pipeline `shallow` is the quick part of it: it trains no network, takes minutes, and needs torch only where a
published model is named. It takes the same parameters, so that one file of parameters serves both; those of training
pods have no effect there.
"""

from typing import Any

from components import data
from pipelines import steps as stages
from pipelines.form import Corpus, Draws, Index, Parallelism, Registry, RunSettings, Store, Task
from pipelines.steps import pipeline
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
    run: RunSettings,
    store: Store,
    task: Task,
    train: Pods,
    report_against: str = "",
    run_arms: str = "bm25",
    run_published: str = "",
    run_published_preset: str = "",
) -> str:
    """Train a text classifier from scratch on a task and the part of a corpus that matters to it (TLM, ICML 2022).

    Args:
        report_against: URI of an earlier report or of earlier metrics, to say what has changed since; empty for none.
        run_arms: Arms to train, separated by commas: bm25, random, task-only, dsir, classifier, dense, hybrid; and of
            published models: embeddings, published (stage 2 alone), published-bm25 and so on (stage 1, too).
        run_overrides: Settings to change, such as train.rho1=4; auto chooses K, query and rho1 by the paper's rules.
            Of published models, only model.max_length, model.cut and model.spans_first change.
        run_published: Published models to compare with, separated by commas: folders, s3://… or names on the Hugging
            Face Hub; if run_arms names none of their arms, embeddings and published are added.
        run_published_preset: Named settings of published models; empty for finetune-published (stage 2 alone) and
            adapt (both stages).
    """
    root, given = store.root, {"published": run_published, "published_preset": run_published_preset}
    checked = {**vars(report), **vars(train), **given, "network": network, "against": report_against}
    preflight = data.preflight(
        **vars(run), arms=run_arms, engine=index.engine, root=root, registry=registry.address, **checked
    )
    corpus_uri, task_uri = stages.load(preflight, corpus, task, machines, root)
    index_uri = stages.index(corpus_uri, index, root)
    advised = data.advise(task=task_uri, corpus=corpus_uri, preset=run.preset, overrides=run.overrides).outputs
    texts = preflight.outputs["texts"]
    subsets, static = stages.selected(index_uri, task_uri, texts, run.seeds, advised, export, root)
    baseline = data.baseline(task=task_uri, root=root).outputs["Output"]
    if network:
        tokenizer = stages.tokenizer(preflight, corpus_uri, task_uri, root)
        settings = vars(run) | {"arms": run_arms, "overrides": advised["overrides"]}
        plan = data.plan(**settings, **given, task=task_uri, tokenizer=tokenizer, subsets=subsets, root=root)
        trained: Any = stages.scored(plan.output, train, machines, root)
    else:
        trained = stages.embeddings(task_uri, run_published, root)
    rows = data.mix(baseline=baseline, static=static, trained=trained, root=root).output
    scores = {"baseline": baseline, "metrics": rows}
    return stages.report(scores, train, report, registry, root, notes=advised["reasons"], against=report_against)


build = pipeline("tlm", "TLM", network=True)(steps)
tlm = build()


@pipeline("tlm-shallow", "TLM without training a network")
def shallow(
    machines: Parallelism,
    corpus: Corpus,
    export: Filters,
    index: Index,
    registry: Registry,
    report: Prices,
    run: Draws,
    store: Store,
    task: Task,
    train: Pods,
    report_against: str = "",
    run_arms: str = "bm25,random,task-only",
    run_published: str = "",
    run_published_preset: str = "",
) -> str:
    """Compare a linear model of the task with static word vectors of retrieved text, and with both mixed.

    Args:
        report_against: URI of an earlier report or of earlier metrics, to say what has changed since; empty for none.
        run_arms: Texts to learn vectors from, separated by commas: bm25, random, task-only, dsir, classifier, dense,
            hybrid; embeddings is added if run_published names a model.
        run_overrides: Settings to change, such as retrieve.top_k=20; auto chooses K and query by the paper's rules.
        run_preset: Named settings; only those of the retrieval have an effect here; see `tlm show`.
        run_published: Published models whose embeddings to compare with, separated by commas: folders, s3://… or names
            on the Hugging Face Hub.
        run_published_preset: No effect here: nothing is trained.
        run_seeds: Seeds of random and the other arms that draw their text: so many draws, each with its own model.
    """
    if machines.nodes > 1:
        raise InputError("pipeline 'shallow' trains no network; leave --nodes out")
    arms = {"run_arms": run_arms, "run_published": run_published, "run_published_preset": run_published_preset}
    more = {"report_against": report_against, **arms}
    return steps(machines, False, corpus, export, index, registry, report, run, store, task, train, **more)
