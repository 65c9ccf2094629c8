"""Multi-task TLM: several tasks train one encoder on one subset, beside each task's own run at equal total compute."""

from functools import cache
from typing import Any

from kfp import dsl

from components import data, multitask, training
from pipelines import stages
from pipelines.describe import description
from pipelines.resources import TrainingPods, lifetime
from tlm.errors import InputError


@cache
def build(nodes: int) -> Any:
    """The pipeline. Raises InputError for more than one of `nodes`: a stage 1 for several tasks takes one machine."""
    if nodes > 1:
        raise InputError(f"pipeline 'multitask' trains each stage 1 on one machine, not on {nodes}; leave --nodes out")

    def together(
        corpus_id_field: str = "",
        corpus_paths: str = "s3://tlm/corpus/",
        corpus_source_field: str = "",
        corpus_text_field: str = "text",
        corpus_words: int = 100,
        export_near_duplicates: bool = True,
        export_overlap: bool = True,
        index_engine: str = "elasticsearch",
        index_name: str = "corpus",
        report_cpu_hour: float = 0.0,
        report_gpu_hour: float = 0.0,
        report_kilowatt_hour: float = 0.0,
        run_overrides: str = "",
        run_preset: str = "pocket",
        run_seeds: str = "0",
        store_root: str = "s3://tlm/artifacts",
        task_group_field: str = "",
        task_label_field: str = "label",
        task_metric: str = "auto",
        task_pair_field: str = "",
        task_paths: str = "s3://tlm/task/",
        task_problem: str = "auto",
        task_text_field: str = "text",
        train_cpu: str = "4",
        train_gpu_type: str = "nvidia.com/gpu",
        train_gpus: str = "0",
        train_memory: str = "16Gi",
        train_node_selector: dict = {},  # type: ignore[type-arg]  # noqa: B006  # kfp copies it
        train_tolerations: list = [],  # type: ignore[type-arg]  # noqa: B006
    ) -> str:
        """Train one encoder for several tasks together, and each task alone, at equal total compute (ours, after TLM).

        Args:
            corpus_id_field: Field of the corpus files that identifies a document; empty for file and line.
            corpus_paths: Files, folders or globs of the corpus, separated by commas (jsonl, csv, tsv, parquet, txt).
            corpus_source_field: Field that names a document's source; empty for the file's name.
            corpus_text_field: Field that holds the text.
            corpus_words: Longest passage, in words.
            export_near_duplicates: Remove passages that nearly repeat a better one.
            export_overlap: Remove passages that overlap dev or test text of any of the tasks.
            index_engine: elasticsearch, or embedded (a file in the store, no server).
            index_name: Name of the Elasticsearch index.
            report_cpu_hour: Price of an hour of a CPU core, for what no GPU did; with a price the report tells money.
            report_gpu_hour: Price of an hour of a GPU, in any currency.
            report_kilowatt_hour: Price of a kilowatt-hour, where the machines measure energy.
            run_overrides: Settings that replace the preset's, separated by spaces; steps are those of a task alone.
            run_preset: Named settings of model and training; see `tlm show`.
            run_seeds: Seeds, separated by commas.
            store_root: Where artifacts are kept: s3://bucket/prefix or a folder.
            task_group_field: Field that examples share which are not independent; empty: equal texts tell.
            task_label_field: Field that holds the label, or the number for regression; the same for all tasks.
            task_metric: auto, macro_f1, micro_f1, accuracy, matthews, f1 (of two classes), pearson or spearman.
            task_pair_field: Field that holds the second text of a pair; empty for single texts.
            task_paths: The tasks, separated by commas: folders with train, dev and test files, or names.
            task_problem: classification, regression, or auto: as the labels are.
            task_text_field: Field that holds the text.
            train_cpu: Most CPUs a training pod may use, 1 or more.
            train_gpu_type: Resource name of the accelerator.
            train_gpus: Accelerators of each training pod; it trains on all of them. 0 for CPU.
            train_memory: Most memory a training pod may use, 2Gi or more.
            train_node_selector: Labels of the nodes to train on, as a JSON object.
            train_tolerations: Taints that training pods tolerate, as a JSON list of Kubernetes tolerations.

        Returns:
            URI of the report in which the tasks stand side by side.
        """
        pods = TrainingPods(train_cpu, train_memory, train_gpus, train_gpu_type, train_node_selector, train_tolerations)
        root, method = store_root, {"preset": run_preset, "overrides": run_overrides}
        prices = {"gpu_hour": report_gpu_hour, "cpu_hour": report_cpu_hour, "kilowatt_hour": report_kilowatt_hour}
        preflight = data.preflight(**method, arms="bm25", seeds=run_seeds, engine=index_engine, root=root, **prices)
        settings = preflight.outputs
        corpus_fields = {"id_field": corpus_id_field, "text_field": corpus_text_field, "words": corpus_words}
        task_fields = {"text_field": task_text_field, "pair_field": task_pair_field}
        task_fields |= {"label_field": task_label_field, "group_field": task_group_field}
        read = {"paths": corpus_paths, "source_field": corpus_source_field, **corpus_fields}
        labelled = {"paths": task_paths, "metric": task_metric, "problem": task_problem, **task_fields}
        tasks = multitask.load_tasks(**labelled, overrides=run_overrides, root=root).after(preflight)
        corpus = data.load_corpus(**read, root=root).after(tasks).outputs["Output"]  # see stages.load
        tasks = tasks.output
        index = data.index(corpus=corpus, engine=index_engine, name=index_name, root=root).outputs["Output"]
        query = {name: settings[name] for name in ("query", "top_k")}
        filters = {"near_duplicates": export_near_duplicates, "overlap": export_overlap}
        subsets = multitask.task_subsets(index=index, tasks=tasks, **query, **filters, root=root).output
        vocabulary = {"kind": settings["tokenizer_kind"], "vocab_size": settings["vocab_size"]}
        tokenizer = multitask.shared_tokenizer(corpus=corpus, tasks=tasks, **vocabulary, root=root).output
        sources = {"tasks": tasks, "tokenizer": tokenizer, "subsets": subsets}
        plan = multitask.plan_together(seeds=run_seeds, **sources, **method, root=root).output
        with dsl.ParallelFor(plan, name="seeds-together") as run:
            checkpoint = multitask.train_multitask(run=run, gpus=pods.gpus, root=root).outputs["Output"]
        made = {"together": plan, "checkpoints": dsl.Collected(checkpoint)}
        apart = multitask.plan_apart(**made, subsets=subsets, overrides=run_overrides).output
        with dsl.ParallelFor(tasks, name="baselines") as task:
            baseline = training.baseline(task=task, root=root).outputs["Output"]
        metrics = stages.scored(apart, pods, nodes, root)
        scores = {"baselines": dsl.Collected(baseline), "metrics": dsl.Collected(metrics)}
        report = multitask.report_tasks(**scores, **prices, root=root).outputs["Output"]
        stages.equip_all(pods)
        return report

    about = {"name": "tlm-multitask", "display_name": "TLM for several tasks"}
    return dsl.pipeline(**about, description=description(together), pipeline_config=lifetime())(together)


together = build(1)
