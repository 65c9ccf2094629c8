"""The TLM pipeline: corpus and task in, models and a report out; arms × seeds side by side."""

from functools import cache
from typing import Any

from kfp import dsl

from components import data
from pipelines import stages
from pipelines.describe import description
from pipelines.resources import TrainingPods, lifetime


@cache
def build(nodes: int) -> Any:
    """The pipeline; with more than one node, stage 1 of each run is a TrainJob of Kubeflow Trainer on so many."""

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
        report_cpu_hour: float = 0.0,
        report_gpu_hour: float = 0.0,
        report_kilowatt_hour: float = 0.0,
        run_arms: str = "bm25",
        run_overrides: str = "",
        run_preset: str = "pocket",
        run_seeds: str = "0",
        store_root: str = "s3://tlm/artifacts",
        task_files: str = "",
        task_group_field: str = "",
        task_label_field: str = "label",
        task_metric: str = "auto",
        task_pair_field: str = "",
        task_path: str = "s3://tlm/task/",
        task_problem: str = "auto",
        task_text_field: str = "text",
        train_cpu: str = "4",
        train_gpu_type: str = "nvidia.com/gpu",
        train_gpus: str = "0",
        train_memory: str = "16Gi",
        train_node_selector: dict = {},  # type: ignore[type-arg]  # noqa: B006  # kfp copies it
        train_tolerations: list = [],  # type: ignore[type-arg]  # noqa: B006
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
            report_cpu_hour: Price of an hour of a CPU core, for what no GPU did; with a price the report tells money.
            report_gpu_hour: Price of an hour of a GPU, in any currency.
            report_kilowatt_hour: Price of a kilowatt-hour, where the machines measure energy.
            run_arms: Arms to train, separated by commas: bm25, random, task-only.
            run_overrides: Settings to change, such as train.rho1=4; auto: K, query and rho1 by the paper's rules.
            run_preset: Named settings of model and training; see `tlm show`.
            run_seeds: Seeds, separated by commas.
            store_root: Where artifacts are kept: s3://bucket/prefix or a folder.
            task_files: Folder with the files of a task given by its name, where they should not come from the Hub.
            task_group_field: Field that examples share which are not independent; empty: equal texts tell.
            task_label_field: Field that holds the label, or the number for regression.
            task_metric: auto, macro_f1, micro_f1, accuracy, matthews, f1 (of two classes), pearson or spearman.
            task_pair_field: Field that holds the second text of a pair; empty for single texts.
            task_path: Folder with train, dev and test files, one file to be split, or a name such as paper:scierc.
            task_problem: classification, regression, or auto: as the labels are.
            task_text_field: Field that holds the text.
            train_cpu: Most CPUs a training pod may use, 1 or more.
            train_gpu_type: Resource name of the accelerator.
            train_gpus: Accelerators of each training pod; it trains on all of them. 0 for CPU.
            train_memory: Most memory a training pod may use, 2Gi or more.
            train_node_selector: Labels of the nodes to train on, as a JSON object.
            train_tolerations: Taints that training pods tolerate, as a JSON list of Kubernetes tolerations.

        Returns:
            URI of the report.
        """
        pods = TrainingPods(train_cpu, train_memory, train_gpus, train_gpu_type, train_node_selector, train_tolerations)
        root, method = store_root, {"preset": run_preset, "overrides": run_overrides}
        prices = {"gpu_hour": report_gpu_hour, "cpu_hour": report_cpu_hour, "kilowatt_hour": report_kilowatt_hour}
        arms = {"arms": run_arms, "seeds": run_seeds}
        preflight = data.preflight(**method, **arms, engine=index_engine, root=root, **prices)
        corpus_fields = {"id_field": corpus_id_field, "text_field": corpus_text_field, "words": corpus_words}
        task_fields = {"text_field": task_text_field, "pair_field": task_pair_field}
        task_fields |= {"label_field": task_label_field, "group_field": task_group_field}
        corpus, task = stages.load(
            preflight,
            {"paths": corpus_paths, "source_field": corpus_source_field, **corpus_fields},
            {"path": task_path, "metric": task_metric, "problem": task_problem, "files": task_files, **task_fields},
            root,
        )
        index = data.index(corpus=corpus, engine=index_engine, name=index_name, root=root).outputs["Output"]
        advised = data.advise(task=task, corpus=corpus, **method).outputs
        query = {name: advised[name] for name in ("query", "top_k")}
        hits = data.retrieve(index=index, task=task, **query, root=root).outputs["Output"]
        filters = {"near_duplicates": export_near_duplicates, "overlap": export_overlap, "root": root}
        bm25 = data.export(hits=hits, **filters).outputs["Output"]
        random = data.random_subset(index=index, task=task, like=bm25, arms=run_arms, **filters).output
        subsets = {"subset": bm25, "random_subset": random}
        trained = stages.vocabulary(preflight, corpus, task, root)
        tokenizer = data.tokenize(task=task, **subsets, tokenizer=trained, root=root).output
        method["overrides"] = advised["overrides"]
        plan = data.plan(**arms, task=task, tokenizer=tokenizer, **subsets, **method)
        return stages.runs(plan.output, task, pods, nodes, root, notes=advised["reasons"], **prices)

    about = {"name": "tlm", "display_name": "TLM"}
    if nodes > 1:
        about = {"name": f"tlm-{nodes}-nodes", "display_name": f"TLM on {nodes} nodes"}
    return dsl.pipeline(**about, description=description(tlm), pipeline_config=lifetime())(tlm)


tlm = build(1)
