"""Read the references of a pipeline's two images from a file, and put them into it."""

import copy
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.form.parameters import read_mapping
from tlm.errors import InputError, nearest

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
