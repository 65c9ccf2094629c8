"""Add a compiled pipeline to the list of pipelines in the UI."""

import hashlib
import tempfile
from pathlib import Path
from typing import Any

from pipelines.client.api import Api
from pipelines.client.errors import ApiError
from pipelines.compile.compiled import parse
from tlm.errors import InputError
from tlm.progress import say


def upload(api: Api, text: str, *, name: str, version: str) -> Any:
    """Return `version` of the pipeline `name`; each is created if it does not exist.

    Raises:
        InputError: The version exists with other content, or the API refuses it.
    """
    pipeline = api.find_or_create(lambda: find_pipeline(api, name), lambda: _create(api, name, text))
    mark = f"sha256 {hashlib.sha256(text.encode()).hexdigest()}"

    def find() -> Any:
        found = find_version(api, pipeline, version)
        if found:
            say(f"version {version} already exists")
        return found

    found = api.find_or_create(find, lambda: _send(api, text, pipeline, version, mark))
    if found.description and found.description != mark:
        raise InputError(f"version {version} of '{name}' has another content: commit, or give another --version")
    return found


def find_pipeline(api: Api, name: str) -> str:
    """Return the ID of the pipeline of this name; empty if there is none."""
    try:
        return str(api.client.pipelines.pipeline_service_get_pipeline_by_name(name, **api.scope).pipeline_id)
    except ApiError as error:
        if error.status != 404:
            raise
        return ""


def find_version(api: Api, pipeline_id: str, name: str) -> Any:
    """Return the version of this name; None if there is none."""
    found = api.named(api.client.list_pipeline_versions, "pipeline_versions", name, pipeline_id=pipeline_id)
    return found[0] if found else None


def _create(api: Api, name: str, text: str) -> str:
    """Create a pipeline without a version: KFP's own upload would give the first version the pipeline's name.

    KFP does not read the description of the compiled pipeline. Its page has room for a few lines.
    """
    about = parse(text).spec.get("pipelineInfo", {}).get("description", "").partition("\n\n")[0]
    description = f"{about} *Pipeline Spec* says what the parameters mean.".strip()
    new = {"name": name, "display_name": name, "description": description, **api.scope}
    made = api.client.pipelines.pipeline_service_create_pipeline(new)
    say(f"created the pipeline '{name}'")
    return str(made.pipeline_id)


def _send(api: Api, text: str, pipeline_id: str, version: str, mark: str) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "pipeline.yaml"
        file.write_text(text, encoding="utf-8")
        options = {"name": version, "display_name": version, "pipelineid": pipeline_id, "description": mark}
        return api.client.pipeline_uploads.upload_pipeline_version(str(file), **options)
