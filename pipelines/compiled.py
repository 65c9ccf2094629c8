"""The pipelines of this code by name, and compiled pipelines: compiled from the code, or read from a file."""

import copy
import json
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

from pipelines.form import ONE_OF_EACH, Parallelism
from pipelines.parameters import Parameter, declared, read_mapping
from tlm import __version__
from tlm.cli.upkeep import revision
from tlm.errors import InputError, nearest
from tlm.progress import say

if TYPE_CHECKING:
    from kfp.dsl.base_component import BaseComponent


KINDS = ("data", "train")
OTHERS = ("serve",)  # `make images` names it too; no pipeline runs in it
_REFERENCE = re.compile(
    r"([a-z0-9][\w.-]*(:\d+)?/)?[a-z0-9][\w.-]*(/[a-z0-9][\w.-]*)*"  # registry, repository
    r"(:(?P<tag>\w[\w.-]{0,127}))?(@(?P<digest>sha256:[0-9a-f]{64}))?"
)


def load_images(file: Path) -> dict[str, str]:
    """Return the references by kind, ``{"data": …, "train": …}``, from a JSON or YAML file (written by `make images`).

    The image `serve` may be there, and is left out.

    Raises:
        InputError: There is no such file, it has another key, one of the two is missing, or a reference is not exact.
    """
    images = read_mapping(file, "a mapping with 'data' and 'train', as `make images` writes it to build/images.json")
    for kind in images:
        if kind not in KINDS + OTHERS:
            raise InputError(f"{file}: '{kind}' is not one of the images{nearest(str(kind), KINDS + OTHERS)}")
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


def with_images(pipeline: "BaseComponent", images: Mapping[str, str]) -> "BaseComponent":
    """Return a copy of `pipeline` that runs in `images`, for the compiler, the API and kfp.local."""
    from google.protobuf import json_format

    from components.base import DATA_IMAGE, TRAIN_IMAGE

    own = {"data": DATA_IMAGE, "train": TRAIN_IMAGE}
    changed = copy.deepcopy(pipeline)
    text = json_format.MessageToJson(changed.pipeline_spec)
    for kind, reference in images.items():
        text = text.replace(json.dumps(own[kind]), json.dumps(reference))
    graph = changed.component_spec.implementation.graph
    graph.Clear()
    json_format.Parse(text, graph)
    return changed


MADE_BY = {"tlm": "pipelines.tlm:build", "shallow": "pipelines.tlm:shallow"}
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
    """Return the pipeline called `name` for so many machines.

    Raises:
        InputError: There is no pipeline of that name.
    """
    if name not in MADE_BY:
        raise InputError(f"pipeline '{name}' is unknown{nearest(name, MADE_BY)}")
    return resolve_name(MADE_BY[name])(machines)


def of_this_code(name: str) -> dict[str, Parameter]:
    """Return the parameters of this code's pipeline `name`. Raises InputError if there is none of that name."""
    from google.protobuf import json_format

    return declared(json_format.MessageToDict(build(name).pipeline_spec))


def warn_of_images(images: Path | None) -> None:
    """Say which images a pipeline without `images` needs."""
    from components.base import DATA_IMAGE

    if images is None:
        say(f"without --images the pipeline uses {DATA_IMAGE} and the matching train image, which must exist")


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
        warn_of_images(images)
        return compile_text(images, name=pipeline or "tlm")
    for option, value in (("--images", images), ("--pipeline", pipeline)):
        if value:
            raise InputError(f"{option} {value}: is of this code's pipelines, not of --file {file}; leave one out")
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: cannot be read ({error}); `python -m pipelines.run compile` makes one") from None


def compile_text(
    images: Path | None = None,
    name: str = "tlm",
    machines: Parallelism = ONE_OF_EACH,
    *,
    kubernetes_manifests: bool = False,
    namespace: str = "",
    version: str = "",
) -> str:
    """Return a pipeline as YAML, always with the same bytes.

    Args:
        images: File with references of the images; without it, those of the components are used.
        name: Which pipeline.
        machines: How many pods share the work of a step.
        kubernetes_manifests: Write the Kubernetes resources that hold the pipeline and a version of it, for GitOps.
        namespace: Namespace of these resources.
        version: Version of the pipeline in these resources; that of the code if empty.

    Raises:
        InputError: Kubernetes would not accept the version as part of a name.
    """
    from kfp.compiler import Compiler
    from kfp.compiler.compiler_utils import KubernetesManifestOptions

    pipeline, options = build(name, machines), None
    if kubernetes_manifests:
        info = pipeline.pipeline_spec.pipeline_info
        full = f"{info.name}-{version or version_name()}"
        if not re.fullmatch(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", full):
            advice = "give --version lower-case letters, digits, - ."
            raise InputError(f"'{full}' is no name for a Kubernetes resource; {advice}")
        names = {"pipeline_name": info.name, "pipeline_display_name": info.display_name, "pipeline_version_name": full}
        options = KubernetesManifestOptions(**names, namespace=namespace or None, include_pipeline_manifest=True)
    if images:
        pipeline = with_images(pipeline, load_images(images))
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
