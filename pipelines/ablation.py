"""The runs of one of the paper's tables on a corpus and a task: settings × arms × seeds, with the same steps."""

from functools import cache
from typing import Any

from kfp import dsl

from components import data, paper
from pipelines import stages
from pipelines.describe import description
from pipelines.resources import TrainingPods, lifetime


@cache
def build(nodes: int) -> Any:
    """The pipeline; `nodes`: see `pipelines.tlm.build`."""

    def ablation(
        corpus_id_field: str = "",
        corpus_paths: str = "s3://tlm/corpus/",
        corpus_source_field: str = "",
        corpus_text_field: str = "text",
        corpus_words: int = 100,
        export_near_duplicates: bool = True,
        export_overlap: bool = True,
        index_engine: str = "elasticsearch",
        index_name: str = "corpus",
        paper_corpus: str = "",
        paper_models: str = "",
        paper_scale: str = "pocket",
        paper_table: str = "4",
        report_cpu_hour: float = 0.0,
        report_gpu_hour: float = 0.0,
        report_kilowatt_hour: float = 0.0,
        run_seeds: str = "0,1,2",
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
        """Run what one of the paper's tables compares, on a corpus and a task (TLM, ICML 2022); `tlm keep` keeps it.

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
            paper_corpus: C_BERT or C_RoBERTa, whichever the corpus is, where the table has both.
            paper_models: Folder with the published models that a table compares with, by name; empty for the Hub.
            paper_scale: tiny, pocket, mini (one GPU), small, medium or large (the paper's).
            paper_table: Number of the table, such as 4; `tlm paper` lists what there is.
            report_cpu_hour: Price of an hour of a CPU core, for what no GPU did; with a price the report tells money.
            report_gpu_hour: Price of an hour of a GPU, in any currency.
            report_kilowatt_hour: Price of a kilowatt-hour, where the machines measure energy.
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
        root, cells = store_root, {"table": paper_table, "scale": paper_scale, "corpus": paper_corpus}
        settings = {"preset": paper_scale, "overrides": "", "arms": "bm25", "seeds": run_seeds}
        prices = {"gpu_hour": report_gpu_hour, "cpu_hour": report_cpu_hour, "kilowatt_hour": report_kilowatt_hour}
        preflight = data.preflight(**settings, engine=index_engine, root=root, **prices)
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
        filters = {"near_duplicates": export_near_duplicates, "overlap": export_overlap}
        subsets = paper.subsets(index=index, task=task, **cells, **filters, root=root).output
        tokenizer = stages.vocabulary(preflight, corpus, task, root)
        models = paper.models(task=task, **cells, folder=paper_models, root=root).output
        made = {"tokenizer": tokenizer, "subsets": subsets, "models": models}
        plan = paper.trials(task=task, **made, **cells, seeds=run_seeds, root=root)
        return stages.runs(plan.output, task, pods, nodes, root, **prices)

    about = {"name": "tlm-paper", "display_name": "TLM, a table of the paper"}
    return dsl.pipeline(**about, description=description(ablation), pipeline_config=lifetime())(ablation)


ablation = build(1)
