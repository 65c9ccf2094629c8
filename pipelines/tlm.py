"""The TLM pipeline: corpus and task in, models and a report out; arms × seeds side by side."""

from kfp import dsl
from kfp.dsl.pipeline_context import Pipeline

from components import data, training


def _without_kfp_cache() -> None:
    """Our own keys find finished work; a hit of KFP's cache could return the URI of an artifact that is gone."""
    for step in Pipeline.get_default_pipeline().tasks.values():
        step.set_caching_options(False)


@dsl.pipeline(name="tlm", display_name="TLM")
def tlm(
    corpus_id_field: str = "",
    corpus_paths: str = "s3://tlm/corpus/",
    corpus_source_field: str = "",
    corpus_text_field: str = "text",
    corpus_words: int = 100,
    export_near_duplicates: bool = True,
    export_overlap: bool = True,
    index_engine: str = "elasticsearch",
    index_name: str = "corpus",
    run_arms: str = "bm25",
    run_overrides: str = "",
    run_preset: str = "pocket",
    run_seeds: str = "0",
    store_root: str = "s3://tlm/artifacts",
    task_label_field: str = "label",
    task_metric: str = "auto",
    task_pair_field: str = "",
    task_path: str = "s3://tlm/task/",
    task_text_field: str = "text",
) -> str:
    """Train a text classifier from scratch on a task and the part of a corpus that matters to it (TLM, ICML 2022).

    Args:
        corpus_id_field: Field of the corpus files that identifies a document; empty for file and line.
        corpus_paths: Files, folders or globs of the corpus, separated by commas (jsonl, csv, tsv, parquet, txt).
        corpus_source_field: Field that names a document's source; empty for the file's name.
        corpus_text_field: Field that holds the text.
        corpus_words: Longest passage, in words.
        export_near_duplicates: Remove passages that nearly repeat a better one.
        export_overlap: Remove passages that overlap dev or test text.
        index_engine: elasticsearch, or embedded (a file in the store, no server).
        index_name: Name of the Elasticsearch index.
        run_arms: Arms to train, separated by commas: bm25, random, task-only.
        run_overrides: Settings that replace the preset's, separated by spaces, such as train.rho1=4.
        run_preset: Named settings of model and training; see `tlm show`.
        run_seeds: Seeds, separated by commas.
        store_root: Where artifacts are kept: s3://bucket/prefix or a folder.
        task_label_field: Field that holds the label, or the number for regression.
        task_metric: auto, macro_f1, micro_f1, accuracy, matthews, pearson or spearman.
        task_pair_field: Field that holds the second text of a pair; empty for single texts.
        task_path: Folder with train, dev and test files, or one file to be split.
        task_text_field: Field that holds the text.

    Returns:
        URI of the report.
    """
    root = store_root
    settings = data.settings(preset=run_preset, overrides=run_overrides, arms=run_arms, seeds=run_seeds)
    corpus = data.load_corpus(
        paths=corpus_paths,
        text_field=corpus_text_field,
        id_field=corpus_id_field,
        source_field=corpus_source_field,
        words=corpus_words,
        root=root,
    ).after(settings)
    task = data.load_task(
        path=task_path,
        text_field=task_text_field,
        pair_field=task_pair_field,
        label_field=task_label_field,
        metric=task_metric,
        root=root,
    ).after(settings)
    index = data.index(corpus=corpus.output, engine=index_engine, name=index_name, root=root)
    flat = settings.outputs
    hits = data.retrieve(index=index.output, task=task.output, query=flat["query"], top_k=flat["top_k"], root=root)
    filters = {"near_duplicates": export_near_duplicates, "overlap": export_overlap}
    subset = data.export(hits=hits.output, **filters, root=root).outputs["Output"]
    control = data.random_subset(
        index=index.output, task=task.output, like=subset, arms=run_arms, **filters, root=root
    ).output
    trained = data.tokenizer(
        corpus=corpus.output,
        task=task.output,
        kind=flat["tokenizer_kind"],
        vocab_size=flat["vocab_size"],
        root=root,
    )
    tokenizer = data.tokenize(
        task=task.output, subset=subset, random_subset=control, tokenizer=trained.output, root=root
    ).output
    yardstick = training.baseline(task=task.output, root=root)
    plan = data.plan(
        arms=run_arms, seeds=run_seeds, task=task.output, tokenizer=tokenizer, subset=subset, random_subset=control
    )
    method = {"preset": run_preset, "overrides": run_overrides, "root": root}
    # inside the loop only the run and parameters are used: kfp.local mistakes other steps' outputs for the item
    with dsl.ParallelFor(plan.output, name="arms-and-seeds") as run:
        checkpoint = training.train(run=run, **method)
        model = training.finetune(checkpoint=checkpoint.output, run=run, **method)
        metrics = training.evaluate(model=model.outputs["Output"], run=run, root=root)
    report = data.report(
        baseline=yardstick.outputs["Output"], metrics=dsl.Collected(metrics.outputs["Output"]), root=root
    )
    _without_kfp_cache()
    return report.outputs["Output"]
