"""The parameters that the pipelines share, in groups: the field `paths` of `corpus: Corpus` is `corpus_paths`."""

from dataclasses import dataclass

from tlm.options import Fields, Layout, Problem


@dataclass(frozen=True)
class Corpus(Layout):
    """Where the corpus is and how its files are read.

    Args:
        paths: Files, folders or globs of the corpus, separated by commas (jsonl, csv, tsv, parquet, txt).
    """

    paths: str = "s3://tlm/corpus/"


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


@dataclass(frozen=True)
class Examples(Problem, Fields):
    """How the examples of a task are read."""


@dataclass(frozen=True)
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
