"""The parameters that the pipelines share, in groups: the field `paths` of `corpus: Corpus` is `corpus_paths`."""

from dataclasses import dataclass, field
from typing import Any

from tlm.cluster.pods import DEFAULTS


@dataclass
class Corpus:
    """Where the corpus is and how its files are read.

    Args:
        id_field: Field of the corpus files that identifies a document; if empty, file and line do.
        paths: Files, folders or globs of the corpus, separated by commas (jsonl, csv, tsv, parquet, txt).
        source_field: Field that names a document's source; if empty, the file's name is the source.
        text_field: Field that holds the text.
        words: Maximum length of a passage, in words.
    """

    id_field: str = ""
    paths: str = "s3://tlm/corpus/"
    source_field: str = ""
    text_field: str = "text"
    words: int = 100


@dataclass
class Export:
    """What is left out of a subset.

    Args:
        near_duplicates: Remove passages that nearly repeat a better one.
        overlap: Remove passages that overlap dev or test text.
    """

    near_duplicates: bool = True
    overlap: bool = True


@dataclass
class Index:
    """Where the corpus is searched.

    Args:
        engine: elasticsearch, or embedded (a file in the store, no server).
        name: Name of the Elasticsearch index.
        vectors: Store vectors of passages in Elasticsearch, too, for the arms dense and hybrid on a large corpus.
    """

    engine: str = "elasticsearch"
    name: str = "corpus"
    vectors: bool = False


@dataclass
class Prices:
    """What the report's costs are computed from.

    Args:
        cpu_hour: Price of an hour of a CPU core, for work without a GPU; with prices, the report shows costs.
        gpu_hour: Price of an hour of a GPU, in any currency.
        grams_per_kwh: Grams of CO2 equivalents of a kilowatt-hour from your grid, used if the machines measure energy.
        kilowatt_hour: Price of a kilowatt-hour, used if the machines measure energy.
    """

    cpu_hour: float = 0.0
    gpu_hour: float = 0.0
    grams_per_kwh: float = 0.0
    kilowatt_hour: float = 0.0


@dataclass
class Registry:
    """Where the model that the report says to use is registered.

    Args:
        address: Kubeflow's Model Registry, http(s)://host:port, to register the report's model; empty for none.
        model: Name of the registered model; empty for the task's name.
    """

    address: str = ""
    model: str = ""


@dataclass
class Run:
    """Settings of model and training.

    Args:
        overrides: Settings to change, such as train.rho1=4; auto chooses K, query and rho1 by the paper's rules.
        preset: Named settings of model and training; see `tlm show`.
        seeds: Seeds, separated by commas.
    """

    overrides: str = ""
    preset: str = "pocket"
    seeds: str = "0"


@dataclass
class Draws(Run):
    """As `Run`, of a pipeline in which nothing is random but the draws of text."""

    seeds: str = "0,1,2,3,4"


@dataclass
class Store:
    """Where results go.

    Args:
        root: Where artifacts are stored: s3://bucket/prefix or a folder.
    """

    root: str = "s3://tlm/artifacts"


@dataclass
class Examples:
    """How the examples of a task are read.

    Args:
        group_field: Field that is equal for examples that are not independent; if empty, equal texts form a group.
        label_field: Field that holds the label, or the number for regression.
        metric: auto, macro_f1, micro_f1, accuracy, matthews, f1 (of two classes), pearson or spearman.
        pair_field: Field that holds the second text of a pair; empty for single texts.
        problem: classification, regression, or auto (decided by the labels).
        text_field: Field that holds the text.
    """

    group_field: str = ""
    label_field: str = "label"
    metric: str = "auto"
    pair_field: str = ""
    problem: str = "auto"
    text_field: str = "text"


@dataclass
class Task(Examples):
    """Where the task is and how its examples are read.

    Args:
        files: Folder with the files of a task given by its name, if they should not come from the Hub.
        path: Folder with train, dev and test files, one file to be split, or a name such as paper:scierc.
        unlabelled_path: Files with more texts of the task, without labels: more queries, and more text to train on.
    """

    files: str = ""
    path: str = "s3://tlm/task/"
    unlabelled_path: str = ""


@dataclass
class TrainingPods:
    """Resources of the pods that train; numbers are strings, because KFP's driver accepts nothing else there.

    Args:
        cpu: CPU limit of a training pod, 1 or more, and 2 or more for each GPU.
        gpu_type: Kubernetes resource name of the accelerator.
        gpus: Accelerators of each training pod; 0 for CPU. Each takes 32 rows of a batch or more, evaluation takes one.
        memory: Memory limit of a training pod, 2Gi or more, and 8Gi or more for each GPU.
        node_selector: Labels of the nodes to train on, as a JSON object.
        tolerations: Taints that training pods tolerate, as a JSON list of Kubernetes tolerations.
    """

    cpu: str = DEFAULTS["cpu"]
    gpu_type: str = "nvidia.com/gpu"
    gpus: str = "0"
    memory: str = DEFAULTS["memory"]
    node_selector: dict[str, str] = field(default_factory=dict)
    tolerations: list[dict[str, Any]] = field(default_factory=list)
