"""Put the compiled pipeline into the list that people choose from in the UI."""

import hashlib
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import kfp_server_api

from pipelines.client.api import Api
from pipelines.client.faults import Conflict, NotFound
from tlm.errors import InputError


class Version(NamedTuple):
    """An uploaded version of a pipeline."""

    pipeline_id: str
    version_id: str


def upload(api: Api, text: str, *, name: str, version: str) -> Version:
    """Make the pipeline `name` if there is none, and `version` of it if there is none; both may be there already.

    Raises:
        InputError: the version is there with another content, or the API refuses it.
    """
    pipeline = find_pipeline(api, name) or _make(api, name)
    if not pipeline:
        raise InputError(f"the pipeline '{name}' exists but is not shown to us: give another --name")
    mark = f"sha256 {hashlib.sha256(text.encode()).hexdigest()}"
    found = find_version(api, pipeline, version)
    if not found:
        try:
            found = _send(api, text, pipeline, version, mark)
        except Conflict:  # another one was quicker, or our first try had arrived
            found = find_version(api, pipeline, version)
    else:
        sys.stderr.write(f"version {version} is there already\n")
    if not found:
        raise InputError(f"version {version} of '{name}' exists but is not listed: give another --version")
    if found.description and found.description != mark:
        raise InputError(f"version {version} of '{name}' has another content: commit, or give another --version")
    return Version(pipeline, str(found.pipeline_version_id))


def find_pipeline(api: Api, name: str) -> str:
    """ID of the pipeline of this name; empty if there is none."""
    scope = {"namespace": api.namespace} if api.namespace else {}
    try:
        return str(api.call(api.pipelines.pipeline_service_get_pipeline_by_name, name, **scope).pipeline_id)
    except NotFound:
        return ""


def find_version(api: Api, pipeline_id: str, name: str) -> Any:
    """The version of this name; None if there is none."""
    versions = api.pipelines.pipeline_service_list_pipeline_versions
    found = api.named(lambda **options: versions(pipeline_id, **options), "pipeline_versions", name)
    return found[0] if found else None


def _make(api: Api, name: str) -> str:
    """A pipeline without a version: KFP's own upload would name the first version as the pipeline."""
    new = kfp_server_api.V2beta1Pipeline(name=name, display_name=name, namespace=api.namespace or None)
    try:
        made = api.call(api.pipelines.pipeline_service_create_pipeline, new)
    except Conflict:
        return find_pipeline(api, name)
    sys.stderr.write(f"made the pipeline '{name}'\n")
    return str(made.pipeline_id)


def _send(api: Api, text: str, pipeline: str, version: str, mark: str) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "pipeline.yaml"
        file.write_text(text, encoding="utf-8")
        options = {"name": version, "display_name": version, "pipelineid": pipeline, "description": mark}
        return api.call(api.uploads.upload_pipeline_version, str(file), **options)
