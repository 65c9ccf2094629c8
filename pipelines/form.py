"""Parameters and command-line options in groups: the field `paths` of `corpus: Corpus` is `corpus_paths`."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from typer import Option

from tlm.settings.options import NOT_NEGATIVE, Fields, Layout, Problem


@dataclass
class Parameters:
    """Values of the pipeline's parameters.

    Args:
        params: YAML file with parameters; samples are in pipelines/params.
        changes: A parameter; may be repeated.
    """

    params: Path | None = None
    changes: Annotated[list[str], Option("--set", metavar="NAME=VALUE")] = field(default_factory=list)


@dataclass
class PipelineFile:
    """A compiled pipeline, or one of this code.

    Args:
        file: A compiled pipeline; without it, one of this code.
        pipeline: Without --file: tlm; shallow: no neural network, in minutes; predict: label new files; rerank: text by
            influence; ablation: a table of the paper; multitask: several tasks.
            [default: tlm]
        images: File with the images to run in, as `make images` writes it.
    """

    file: Path | None = None
    pipeline: str = ""
    images: Path | None = None


@dataclass(frozen=True)
class Parallelism:
    """Numbers of pods that share the work of a step.

    Args:
        nodes: Machines for each stage 1; more than one needs Kubeflow Trainer.
        data_pods: Pods that load the corpus, each with all of its cores; pays off from about 10 GB.
    """

    nodes: Annotated[int, Option(min=1)] = 1
    data_pods: Annotated[int, Option(min=1, max=64)] = 1


ONE_OF_EACH = Parallelism()


@dataclass
class Connection:
    """The address of Kubeflow Pipelines, and the rights to use it.

    Args:
        host: Address of Kubeflow Pipelines, http://… or https://…; not needed inside a cluster.
        ui_host: Address for links, if it differs from --host.
        namespace: Namespace of the runs, where Kubeflow has several users.
        token_file: File with a bearer token, read again for each call; without it, the variable KFP_EXISTING_TOKEN
            is the token.
        ca_file: Certificates to trust, for an https:// address with a private CA.
        call_timeout: Seconds to wait for one answer.
    """

    host: Annotated[str, Option(metavar="URL", envvar="KF_PIPELINES_ENDPOINT")] = ""
    ui_host: Annotated[str, Option(metavar="URL", envvar="KF_PIPELINES_UI_ENDPOINT")] = ""
    namespace: str = ""
    token_file: Annotated[Path | None, Option(envvar="KF_PIPELINES_SA_TOKEN_PATH")] = None
    ca_file: Annotated[Path | None, Option(exists=True)] = None
    call_timeout: Annotated[float, Option(min=0.1)] = 30.0


@dataclass
class RunOptions:
    """Settings of a run on Kubeflow.

    Args:
        experiment: Experiment to run in; created if it does not exist.
        pipeline_root: Where Kubeflow keeps its own artifacts, such as s3://bucket/kfp; by default, Kubeflow decides.
        service_account: Kubernetes service account of the pods, tlm-runner in our manifests; by default Kubeflow's own.
    """

    experiment: Annotated[str, Option(envvar="KF_PIPELINES_DEFAULT_EXPERIMENT_NAME")] = "tlm"
    pipeline_root: str = ""
    service_account: str = ""


@dataclass
class Waiting:
    """Times of waiting for a run.

    Args:
        timeout: Seconds to wait for the end of the run.
        poll_seconds: Seconds between two requests for the state of the run.
    """

    timeout: Annotated[float, Option(min=0)] = 86_400.0
    poll_seconds: Annotated[float, Option(min=0.01)] = 10.0


@dataclass(frozen=True)
class Corpus(Layout):
    """The corpus: its place, and how to read its files.

    Args:
        paths: Files, folders or globs of the corpus, separated by commas (jsonl, csv, tsv, parquet, txt;
            .md and .rst by a glob).
    """

    paths: str = "s3://tlm/corpus/"


@dataclass
class Index:
    """The search engine.

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
    """The registry for the model that the report recommends.

    Args:
        address: Kubeflow's Model Registry, http(s)://host:port, to register the recommended model; empty for none.
        model: Name of the registered model; empty for the task's name.
    """

    address: str = ""
    model: str = ""


@dataclass
class RunSettings:
    """Settings of model and training.

    Args:
        overrides: Settings to change, separated by spaces, such as train.rho1=4 train.steps=4000; auto chooses K, query
            and rho1 by the paper's rules.
        preset: Named settings of model and training; see `tlm show`.
        seeds: Seeds, separated by commas.
    """

    overrides: str = ""
    preset: str = "pocket"
    seeds: str = "0"


@dataclass
class Compared(RunSettings):
    """Settings of model and training, and what is compared.

    Args:
        arms: Arms to train, separated by commas: bm25, random, task-only, dsir, classifier, dense, hybrid; and of
            published models: embeddings, published (stage 2 alone), published-bm25 and so on (stage 1, too).
        overrides: Settings to change, separated by spaces, such as train.rho1=4 train.steps=4000; auto chooses K, query
            and rho1 by the paper's rules. Of published models, only model.max_length, model.cut and model.spans_first
            change.
        published: Published models to compare with, separated by commas: folders, s3://… or names on the Hugging Face
            Hub; if run_arms names none of their arms, embeddings and published are added.
        published_preset: Named settings of published models; empty for finetune-published (stage 2 alone) and adapt
            (both stages).
    """

    arms: str = "bm25"
    published: str = ""
    published_preset: str = ""


@dataclass
class Draws(Compared):
    """Settings of a pipeline in which nothing is random but the draws of text.

    Args:
        arms: Texts to learn vectors from, separated by commas: bm25, random, task-only, dsir, classifier, dense,
            hybrid; embeddings is added if run_published names a model.
        overrides: Settings to change, separated by spaces, such as retrieve.top_k=20; auto chooses K and query by the
            paper's rules.
        preset: Named settings; only those of the retrieval have an effect here; see `tlm show`.
        published: Published models whose embeddings to compare with, separated by commas: folders, s3://… or names on
            the Hugging Face Hub.
        published_preset: No effect here: nothing is trained.
        seeds: Seeds of random and the other arms that draw their text, separated by commas; each is a draw and a model.
    """

    arms: str = "bm25,random,task-only"
    seeds: str = "0,1,2,3,4"


@dataclass
class Store:
    """The place of all results.

    Args:
        root: Where artifacts are stored: s3://bucket/prefix or a folder.
    """

    root: str = "s3://tlm/artifacts"


@dataclass(frozen=True)
class Examples(Problem, Fields):
    """Settings for reading the examples of a task."""


@dataclass(frozen=True)
class Task(Examples):
    """The task: its place, and how to read its examples.

    Args:
        files: Folder with the files of a task given by its name; empty downloads them from the Hub, but not in pods.
        max_rejected: Unusable rows to set aside before the step stops; 0.1 % of all rows are always allowed, but no
            more than a tenth of dev or test.
        path: Folder with train, dev and test files, one file to be split, or a name such as paper:scierc.
        unlabelled_path: Files with more texts of the task, without labels: more queries, and more text to train on.
    """

    files: str = ""
    max_rejected: Annotated[int, NOT_NEGATIVE] = 10
    path: str = "s3://tlm/task/"
    unlabelled_path: str = ""
