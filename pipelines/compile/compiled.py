"""The compiled pipeline: made from the code, or read from a file."""

import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from pipelines.compile.version import version_name
from tlm.errors import InputError
from tlm.progress import say


class Compiled(NamedTuple):
    """A pipeline as Kubeflow takes it: its steps, and what they get on Kubernetes."""

    spec: dict[str, Any]
    platform: dict[str, Any]

    def document(self) -> dict[str, Any]:
        """What the API takes as the `pipeline_spec` of a run."""
        return {"pipeline_spec": self.spec, "platform_spec": self.platform} if self.platform else self.spec

    @property
    def name(self) -> str:
        """What the pipeline calls itself."""
        return str(self.spec.get("pipelineInfo", {}).get("name", "tlm"))

    def tasks(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """(name, task) of the whole pipeline, those inside loops and other groups too."""
        for component in (self.spec.get("root", {}), *self.spec.get("components", {}).values()):
            yield from component.get("dag", {}).get("tasks", {}).items()

    def disable_cache(self) -> None:
        """Turn Kubeflow's cache off in every task."""
        for _, task in self.tasks():
            task["cachingOptions"] = {}

    def steps(self) -> set[str]:
        """Names of the tasks that run in a container of their own."""
        components = self.spec.get("components", {})
        return {name for name, task in self.tasks() if "executorLabel" in components.get(_component(task), {})}


def _component(task: Mapping[str, Any]) -> str:
    return str(task.get("componentRef", {}).get("name", ""))


def warn_of_images(images: Path | None) -> None:
    """Say what an own pipeline without `images` relies on."""
    from components.base import DATA_IMAGE

    if images is None:
        say(f"without --images the pipeline names {DATA_IMAGE} and its like, which have to be there")


class Resources(NamedTuple):
    """The Kubernetes resources that hold a pipeline and a version of it, for GitOps."""

    version: str = ""  # the code's if empty
    namespace: str = ""

    def names(self, pipeline: str, display_name: str) -> dict[str, str]:
        """What kfp's `KubernetesManifestOptions` asks for.

        Raises:
            InputError: the version makes no name that Kubernetes takes.
        """
        name = f"{pipeline}-{self.version or version_name()}"
        if not re.fullmatch(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", name):
            raise InputError(
                f"'{name}' is no name for a Kubernetes resource; give --version lower-case letters, digits, - ."
            )
        names = {"pipeline_name": pipeline, "pipeline_display_name": display_name, "pipeline_version_name": name}
        return names | ({"namespace": self.namespace} if self.namespace else {})


def text_of(file: Path | None, images: Path | None, pipeline: str = "") -> str:
    """The text of a compiled pipeline: that of `file`, or this code's `pipeline` (tlm if empty) with `images`."""
    if not file:
        warn_of_images(images)
        return compile_text(images, name=pipeline or "tlm")
    for option, value in (("--images", images), ("--pipeline", pipeline)):
        if value:
            raise InputError(
                f"{option} {value}: goes with the pipelines of this code, not with --file {file}; leave one out"
            )
    return _read(file)


def compile_text(
    images: Path | None = None, resources: Resources | None = None, name: str = "tlm", nodes: int = 1
) -> str:
    """The pipeline as YAML, the same bytes each time.

    Args:
        images: File with references of the images; without it the components' own.
        resources: The Kubernetes resources to write, if not the plain pipeline.
        name: Which pipeline.
        nodes: Machines that each run's stage 1 trains on.
    """
    from kfp.compiler import Compiler
    from kfp.compiler.compiler_utils import KubernetesManifestOptions

    from pipelines.compile.images import load_images, with_images
    from pipelines.named import build

    pipeline = build(name, nodes)
    options = None
    if resources:
        info = pipeline.pipeline_spec.pipeline_info
        names = resources.names(info.name, info.display_name)
        options = KubernetesManifestOptions(**names, include_pipeline_manifest=True)
    if images:
        pipeline = with_images(pipeline, load_images(images))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pipeline.yaml"
        Compiler().compile(
            pipeline, str(path), kubernetes_manifest_options=options, kubernetes_manifest_format=bool(options)
        )
        return path.read_text(encoding="utf-8")


def read_compiled(file: Path) -> Compiled:
    """A compiled pipeline or its Kubernetes manifests.

    Raises:
        InputError: no such file, or it holds something else.
    """
    return parse(_read(file), str(file))


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: cannot be read ({error}); `python -m pipelines.run compile` makes one") from None


def parse(text: str, name: str) -> Compiled:
    """A compiled pipeline from its text; `name` is for errors."""
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
    platforms = [document for document in documents if "platforms" in document]
    return Compiled(merged[0], platforms[0] if platforms else {})


def from_api(document: Mapping[str, Any]) -> Compiled:
    """A compiled pipeline as the API gives it back."""
    if "pipeline_spec" in document:
        return Compiled(dict(document["pipeline_spec"]), dict(document.get("platform_spec") or {}))
    return Compiled(dict(document), {})


_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
