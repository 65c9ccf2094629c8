"""Pipelines, compiled from this code or read from a file, and the values of their parameters, checked before a run."""

import copy
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

from pipelines.form import ONE_OF_EACH, Compared, Corpus, Index, Parallelism, Task
from tlm import __version__
from tlm.artifacts.produce import revision
from tlm.errors import InputError, nearest, with_article
from tlm.progress import say
from tlm.runs.pods import check_pods
from tlm.runs.registry import check_address
from tlm.settings.options import NOT_NEGATIVE, PROBABILITY, Filters, Pods, Prices
from tlm.training.input.located import is_hub_name

if TYPE_CHECKING:
    from kfp.dsl.base_component import BaseComponent


KINDS = ("data", "train")
_REFERENCE = re.compile(
    r"([a-z0-9][\w.-]*(:\d+)?/)?[a-z0-9][\w.-]*(/[a-z0-9][\w.-]*)*"  # registry, repository
    r"(:(?P<tag>\w[\w.-]{0,127}))?(@(?P<digest>sha256:[0-9a-f]{64}))?"
)


def load_images(file: Path) -> dict[str, str]:
    """Return the references by kind, ``{"data": …, "train": …}``, from a JSON or YAML file (written by `make images`).

    Others, such as `serve`, may be there, and are left out.

    Raises:
        InputError: There is no such file, one of the two is missing, or a reference is not exact.
    """
    images = read_mapping(file, "a mapping with 'data' and 'train', as `make images` writes it to build/images.json")
    for kind in KINDS:
        if kind not in images:
            raise InputError(f"{file}: the image '{kind}' is missing; expected both 'data' and 'train'")
        if fault := reference_fault(images[kind]):
            raise InputError(f"{file}: image '{kind}': {fault}")
    return {kind: images[kind] for kind in KINDS}


def reference_fault(reference: Any) -> str:
    """Return why `reference` may mean different images over time; empty if it has an exact tag or a digest."""
    match = _REFERENCE.fullmatch(reference) if isinstance(reference, str) else None
    if not match:
        return f"{reference!r} is no image reference; write repository:tag or repository@sha256:digest"
    if match["digest"] or match["tag"] not in (None, "latest"):
        return ""
    return f"'{reference}' is :latest, which can change; give an exact tag or a digest"


def use_images(pipeline: "BaseComponent", file: Path) -> None:
    """Let `pipeline` run in the images of a file, for the compiler, the API and kfp.local. Raises as `load_images`."""
    from components.base import DATA_IMAGE, TRAIN_IMAGE

    images = load_images(file)
    reference_of = {DATA_IMAGE: images["data"], TRAIN_IMAGE: images["train"]}
    for executor in pipeline.pipeline_spec.deployment_spec["executors"].values():
        container = executor["container"]
        container["image"] = reference_of[container["image"]]


def fit_kfp_2_15(pipeline: "BaseComponent") -> None:
    """Make `pipeline` fit Kubeflow Pipelines 2.15: without security contexts, and without names of loops.

    It refuses the former, and does not find what a loop returns if that has another name than its task.
    """
    for executor in pipeline.platform_spec.platforms["kubernetes"].deployment_spec.executors.values():
        executor.fields.pop("securityContext", None)
    for name, task in tasks_in(pipeline):
        task.task_info.name = name


def tasks_in(pipeline: "BaseComponent") -> Iterator[tuple[str, Any]]:
    """Yield the name and the settings of each task, as `Compiled.tasks` does of a compiled pipeline."""
    for component in (pipeline.pipeline_spec.root, *pipeline.pipeline_spec.components.values()):
        yield from component.dag.tasks.items()


# Parameters that are paths or URIs.
_LOCATIONS = (
    "store_root", "corpus_paths", "task_path", "task_paths", "task_files", "task_unlabelled_path", "run_published",
    "paper_models", "report_against", "compared_with", "predict_model", "predict_source", "predict_to",
)  # fmt: skip
# Passwords in URLs, AWS access keys, tokens of the Hugging Face Hub; and variables whose values are secret.
_SECRET = re.compile(r"://[^\s/]*:[^/]*@|://[^\s:/@]*:\S*@|\b(AKIA|ASIA)[A-Z0-9]{16}\b|\bhf_[A-Za-z0-9]{30,}")
_SHORTEST_SECRET = 8  # characters; a test server's password is often a word, which parameters contain, too
_SECRETS = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "HF_TOKEN", "KFP_EXISTING_TOKEN")
_GROUPS = {"corpus": Corpus, "export": Filters, "index": Index, "report": Prices, "run": Compared, "task": Task}
_GROUPS |= {"train": Pods}
_TYPES = {"NUMBER_INTEGER": int, "NUMBER_DOUBLE": float, "STRING": str, "BOOLEAN": bool, "LIST": list, "STRUCT": dict}


class Parameter(NamedTuple):
    """A parameter as a compiled pipeline declares it."""

    type: type
    required: bool


def declared(spec: Mapping[str, Any]) -> dict[str, Parameter]:
    """Return the parameters of a compiled pipeline by name."""
    inputs = spec.get("root", {}).get("inputDefinitions", {}).get("parameters", {})
    return {
        name: Parameter(_TYPES.get(entry.get("parameterType"), object), not entry.get("isOptional"))
        for name, entry in inputs.items()
    }


def read_parameters(params: Path | None, changes: Sequence[str], known: Mapping[str, Parameter]) -> dict[str, Any]:
    """Return the values of parameters by name: those in `params`, replaced by `changes` (``name=value``).

    Args:
        params: YAML file with lines ``name: value``.
        changes: Single parameters; values of parameters that are not text are read as YAML.
        known: The parameters of the pipeline.

    Raises:
        InputError: There is no such file, it is no YAML mapping, or a parameter is unknown, missing or of another type.
    """
    given: dict[str, tuple[Any, str]] = {}  # by name: the value, and where it stands, for errors
    if params:
        read = read_mapping(params, "lines of the form 'parameter: value', as in pipelines/params")
        given = {str(name): (value, f"{params}: parameter '{name}'") for name, value in read.items()}
    for change in changes:
        name, separator, text = change.partition("=")
        if not separator:
            raise InputError(f"--set {change}: expected name=value")
        is_text = name in known and known[name].type is str
        given[name] = (text if is_text else _read_yaml(text, f"--set {change}"), f"parameter '{name}'")
    checked = {name: _checked(name, value, known, where) for name, (value, where) in given.items()}
    missing = [name for name, parameter in known.items() if parameter.required and checked.get(name, "") == ""]
    if missing:
        options = " ".join(f"--set {name}=…" for name in missing)
        raise InputError(f"missing, without a default: {', '.join(missing)}; give {options}")
    groups = {prefix: _group(prefix, kind, checked) for prefix, kind in _GROUPS.items()}
    check_pods(groups["train"])
    _check_names(groups["run"], groups["index"], groups["task"], checked.get("registry_model", ""))
    PROBABILITY.check("predict_at_least", checked.get("predict_at_least", 0))
    NOT_NEGATIVE.check("predict_likeliest", checked.get("predict_likeliest", 0))
    if address := checked.get("registry_address"):
        check_address(address)
    return checked


def _check_names(run: Compared, index: Index, task: Task, model: str) -> None:
    """Raise InputError for names that the first two steps would refuse, in pods that have to start for that."""
    from tlm.data.registry import task_entry
    from tlm.data.tasks.task import check_problem
    from tlm.runs.plan import check_settings
    from tlm.runs.preflight import check_names

    check_settings(**vars(run) | {"overrides": run.overrides.split()}, network=True)
    check_names(index.engine, index.name, model)
    check_problem(task)
    task_entry(task.path)


def _group(prefix: str, kind: type, values: Mapping[str, Any]) -> Any:
    """Return the values of a group of parameters. Raises InputError for one that is out of its range."""
    given = {one.name: values[f"{prefix}_{one.name}"] for one in fields(kind) if f"{prefix}_{one.name}" in values}
    try:
        return kind(**given)
    except InputError as error:
        raise InputError(f"{prefix}_{error}") from None


def read_mapping(file: Path, expected: str) -> dict[Any, Any]:
    """Return the mapping in `file`; `expected` says in errors what it should contain, and how to get one.

    Raises:
        InputError: The file cannot be read, is no YAML, holds something else than a mapping, or has a key twice.
    """
    text = _read(file, f"expected {expected}")
    values = _read_yaml(text, str(file))
    if not isinstance(values, dict):
        raise InputError(f"{file}: expected {expected}, found {with_article(type(values).__name__)}")
    mapping: Any = yaml.compose(text, yaml.SafeLoader)
    seen = set()
    for key, _ in mapping.value:
        if key.value in seen:  # of which YAML takes the last one without a word
            place = f"{file}, line {key.start_mark.line + 1}"
            raise InputError(f"{place}: '{key.value}' for the second time; keep one line")
        seen.add(key.value)
    return values


def check_reachable(values: Mapping[str, Any], where: str = "pods", schemes: str = "[a-z0-9]+:") -> None:
    """Raise InputError for a parameter that names a file of this machine, which steps in pods or containers lack."""
    for name in _LOCATIONS:
        for place in map(str.strip, str(values.get(name, "")).split(",")):
            if place and not re.match(schemes, place) and not (name == "run_published" and is_hub_name(place)):
                raise InputError(f"parameter '{name}': {where} do not see '{place}' of this machine; give s3://…")


def _read(file: Path, advice: str) -> str:
    """Return the text of a file; `advice` is for the error."""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: cannot be read ({error}); {advice}") from None


def _read_yaml(text: str, where: str) -> Any:
    """Return the value of a text in YAML or JSON (which is YAML too); `where` is for the error."""
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InputError(f"{where}: not valid YAML or JSON: {' '.join(str(error).split())}") from None


def _has_secret(text: str) -> bool:
    known = (os.environ.get(name, "") for name in _SECRETS)
    return bool(_SECRET.search(text)) or any(len(one) >= _SHORTEST_SECRET and one in text for one in known)


def _checked(name: str, value: Any, known: Mapping[str, Parameter], where: str) -> Any:
    if name not in known:
        raise InputError(f"{where} is not known{nearest(name, known)}")
    expected = known[name].type
    if _has_secret(str(value)):
        advice = "take it out: keys come from the environment, on Kubernetes from secrets"
        raise InputError(f"{where} has a password, key or token in it, and everybody sees parameters; {advice}")
    if value is None:
        raise InputError(f"{where} has no value; leave it out, or write '' for an empty text")
    if expected is float and type(value) is int:
        value = float(value)
    if expected is not object and type(value) is not expected:
        written = f"'{','.join(map(str, value))}'" if isinstance(value, list) else "it"  # 1_0 was read as 10
        found, advice = with_article(type(value).__name__), f"; write {written} in quotes" if expected is str else ""
        raise InputError(f"{where}: {value!r} is {found}, expected {expected.__name__}{advice}")
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        raise InputError(f"{where}: {value!r} cannot be written as JSON; write plain values") from None
    return value


MADE_BY = {"tlm": "pipelines.tlm:build", "shallow": "pipelines.tlm:shallow", "predict": "pipelines.tlm:predict"}
MADE_BY |= {name: f"research.pipelines.{name}:build" for name in ("rerank", "ablation", "multitask")}


class Compiled(NamedTuple):
    """A pipeline as Kubeflow takes it: the pipeline, and the settings of its steps on Kubernetes."""

    spec: dict[str, Any]
    platform: dict[str, Any]

    def document(self) -> dict[str, Any]:
        """Return what the API takes as the `pipeline_spec` of a run."""
        return {"pipeline_spec": self.spec, "platform_spec": self.platform} if self.platform else self.spec

    @property
    def name(self) -> str:
        """The name in the pipeline itself."""
        return str(self.spec.get("pipelineInfo", {}).get("name", "tlm"))

    def tasks(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the name and the settings of each task, including those inside loops and other groups."""
        for component in (self.spec.get("root", {}), *self.spec.get("components", {}).values()):
            yield from component.get("dag", {}).get("tasks", {}).items()

    def disable_cache(self) -> None:
        """Turn Kubeflow's cache off in every task."""
        for _, task in self.tasks():
            task["cachingOptions"] = {}


def build(name: str, machines: Parallelism = ONE_OF_EACH) -> Any:
    """Return a copy of the pipeline called `name` for so many machines, which the caller may change.

    Raises:
        InputError: There is no pipeline of that name.
    """
    if name not in MADE_BY:
        raise InputError(f"pipeline '{name}' is unknown{nearest(name, MADE_BY)}")
    return copy.deepcopy(resolve_name(MADE_BY[name])(machines))


def of_this_code(name: str) -> dict[str, Parameter]:
    """Return the parameters of this code's pipeline `name`. Raises InputError if there is none of that name."""
    from google.protobuf import json_format

    return declared(json_format.MessageToDict(build(name).pipeline_spec))


def version_name() -> str:
    """Return ``<version>-<short revision>`` of this code, followed by ``-dirty`` if files differ from the commit.

    Raises:
        InputError: This is no git checkout.
    """
    found = revision()
    if not found:
        raise InputError("the git revision cannot be read here: name the version with --version")
    return f"{__version__}-{found}"


def text_of(file: Path | None, images: Path | None = None, pipeline: str = "") -> str:
    """Return the text of a compiled pipeline: of `file`, or of this code's `pipeline` (tlm if empty) with `images`."""
    if not file:
        return compile_text(images, name=pipeline or "tlm")
    for option, value in (("--images", images), ("--pipeline", pipeline)):
        if value:
            raise InputError(f"{option} {value} is for this code's pipelines, not for --file {file}; leave one out")
    return _read(file, "`python -m pipelines.run compile` makes one")


def compile_text(
    images: Path | None = None,
    name: str = "tlm",
    machines: Parallelism = ONE_OF_EACH,
    *,
    kubernetes_manifests: bool = False,
    namespace: str = "",
    version: str = "",
    kfp_2_15: bool = False,
) -> str:
    """Return a pipeline as YAML, always with the same bytes.

    Args:
        images: File with references of the images; without it, those of the components are used.
        name: Which pipeline.
        machines: How many pods share the work of a step.
        kubernetes_manifests: Write the Kubernetes resources that hold the pipeline and a version of it, for GitOps.
        namespace: Namespace of these resources.
        version: Version of the pipeline in these resources; that of the code if empty.
        kfp_2_15: Make it fit Kubeflow Pipelines 2.15.

    Raises:
        InputError: Kubernetes would not accept the version as part of a name.
    """
    from kfp.compiler import Compiler
    from kfp.compiler.compiler_utils import KubernetesManifestOptions

    from components.base import DATA_IMAGE

    pipeline, options = build(name, machines), None
    if kfp_2_15:
        fit_kfp_2_15(pipeline)
    if kubernetes_manifests:
        info = pipeline.pipeline_spec.pipeline_info
        full = f"{info.name}-{version or version_name()}"
        if not re.fullmatch(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", full):
            advice = "give --version lower-case letters, digits, - ."
            raise InputError(f"'{full}' is no name for a Kubernetes resource; {advice}")
        names = {"pipeline_name": info.name, "pipeline_display_name": info.display_name, "pipeline_version_name": full}
        options = KubernetesManifestOptions(**names, namespace=namespace or None, include_pipeline_manifest=True)
    if images:
        use_images(pipeline, images)
    else:
        say(f"without --images the pipeline uses {DATA_IMAGE} and the matching train image, which must exist")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pipeline.yaml"
        manifests = {"kubernetes_manifest_options": options, "kubernetes_manifest_format": kubernetes_manifests}
        Compiler().compile(pipeline, str(path), **manifests)
        return path.read_text(encoding="utf-8")


def parse(text: str, name: object = None) -> Compiled:
    """Parse the text of a compiled pipeline or of its Kubernetes manifests; `name` is for errors.

    Raises:
        InputError: It is something else.
    """
    try:
        documents = [document for document in yaml.load_all(text, _LOADER) if isinstance(document, dict)]
    except yaml.YAMLError as error:
        raise InputError(f"{name}: not valid YAML: {' '.join(str(error).split())}") from None
    for document in documents:
        if document.get("kind") == "PipelineVersion":
            version = document.get("spec", {})
            return Compiled(version.get("pipelineSpec", {}), version.get("platformSpec", {}))
    merged = [document for document in documents if "deploymentSpec" in document and "root" in document]
    if len(merged) != 1:
        raise InputError(f"{name}: found no compiled pipeline; `python -m pipelines.run compile` makes one")
    return Compiled(merged[0], next((document for document in documents if "platforms" in document), {}))


_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
