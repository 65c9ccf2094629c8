"""The step `register`: tell Kubeflow's Model Registry of a report's best model."""

import json
from pathlib import Path
from typing import Any

from tlm.artifacts.artifact import Artifact
from tlm.cluster.registry import Registry
from tlm.errors import InputError
from tlm.evaluation.mixture.members import model_of
from tlm.evaluation.pages.text import visible
from tlm.evaluation.predict.onnx import ONNX
from tlm.evaluation.report.lineage import Lineage
from tlm.evaluation.report.runs import Group, Run, grouped
from tlm.progress import say
from tlm.serving.server.serve import VERSION_DIGITS
from tlm.shallow.folder import CONFIG, FAMILY

LONGEST_NAME = 200  # the registry's column has 255 characters, and it puts the parent's ID before a name
FOLDER = "model"  # of every artifact that predicts


def register(report: str, *, address: str, name: str = "", run: str = "", run_name: str = "") -> str:
    """Register the model that a report calls the best by dev; of its seeds, the one that is best on dev.

    The version's name is the beginning of the model's content. A model that is registered already is found, and nothing
    there is changed; what an interrupted call left undone is done by the next.

    Args:
        report: URI of the report.
        address: Address of the registry, http(s)://host:port.
        name: Name of the registered model; by default the task's.
        run: ID of the pipeline run, if it was one.
        run_name: Name of the pipeline run.

    Returns:
        The address of the model's version in the registry.

    Raises:
        InputError: there is no such report, its best model is gone, or the registry refuses it.
        Interrupted: the registry does not answer, or fails.
    """
    registry = Registry(address)
    found = Artifact.open(report, "report")
    if found.manifest.step != "report":
        raise InputError(f"{report} is on several tasks; give the report of one task")
    told = json.loads(found.path("report.json").read_text(encoding="utf-8"))
    group, best = _best(found, told["best"]["name"])
    model = model_of(best.artifact)
    if model is None:
        raise InputError(f"{report}: '{group.name}' is of imported predictions, so there is no model to register")
    name = _checked_name(name or visible(best.values["task"], 80))
    about = _about(found, group, best, model) | {"description": told["findings"][0]}
    source = {"modelSourceId": run, "modelSourceName": run_name}
    source = {"modelSourceKind": "kfp", "modelSourceClass": "pipelinerun", **source} if run else {}
    version = _entered(registry, name, model, about, _file_facts(model) | source)
    return f"{registry.url}/model_versions/{version['id']}"


def _best(report: Artifact, name: str) -> tuple[Group, Run]:
    """The group that the report calls the best, and its best seed on dev; the lowest of equal ones."""
    lineage = Lineage()
    runs = [Run.read(report.input(metrics), lineage) for metrics in report.manifest.inputs]
    for group in grouped(runs):
        if group.name == name:
            return group, max(group.runs, key=lambda run: float(run.values["dev"]))
    raise InputError(
        f"{report.uri}: its best model, '{name}', is not told apart any more from others, because what they were made "
        "from is gone; make the report again"
    )


def _about(report: Artifact, group: Group, best: Run, model: Artifact) -> dict[str, Any]:
    """What the registry shows of the version: its custom properties."""
    corpora = [one.uri for one in best.artifact.lineage() if one.manifest.kind == "corpus"]
    values: dict[str, Any] = {
        "model": model.uri,
        "content": model.content,
        "report": report.uri,
        "task": visible(best.values["task"], 80),
        "corpus": corpora[0] if corpora else "",  # the linear model has none
        "arm": group.name,
        "seed": int(best.values["seed"]),
        "metric": str(best.values["metric"]),
        "dev": float(best.values["dev"]),
        "test": float(best.values["test"]),
        "tlm": model.manifest.tool,
    }
    return {"customProperties": {key: _typed(value) for key, value in values.items() if value != ""}}


def _file_facts(model: Artifact) -> dict[str, str]:
    """Where the model's folder is, and what can read it."""
    entry = model.entries(f"{FOLDER}/{CONFIG}")
    if not entry:
        raise InputError(f"{model.uri} has no file '{FOLDER}/{CONFIG}'; register a model that `tlm predict` takes")
    config = json.loads(model.verified(entry[0]).read_text(encoding="utf-8"))
    place = model.address(FOLDER)
    facts = {"uri": place if "://" in place else Path(place).as_uri()}
    if FAMILY in config:  # linear, static, a mixture: for `tlm predict` and `tlm serve`
        return facts | {"modelFormatName": "tlm", "modelFormatVersion": model.manifest.tool}
    if ONNX in config:
        return facts | {"modelFormatName": "onnx"}
    version = config.get("transformers_version")
    return facts | {"modelFormatName": "transformers"} | ({"modelFormatVersion": version} if version else {})


def _entered(
    registry: Registry, name: str, model: Artifact, about: dict[str, Any], files: dict[str, str]
) -> dict[str, Any]:
    """Find or make the registered model, its version and the version's artifact; return the version."""
    digits = model.content[:VERSION_DIGITS]
    entry, _ = registry.find_or_create(
        "registered_model", "registered_models", name, description="Trained by TLM on Kubeflow"
    )
    version, _ = registry.find_or_create(
        "model_version", "model_versions", digits, entry["id"], registeredModelId=entry["id"], **about
    )
    to = f"model_versions/{version['id']}/artifacts"
    artifact, new = registry.find_or_create(
        "model_artifact", to, name, version["id"], artifactType="model-artifact", state="LIVE", **files
    )
    if artifact.get("uri") != files["uri"]:
        say(f"warning: the registry knows the same model at {artifact.get('uri')}, and keeps that address")
    say(f"register: {name}, version {digits}, {'is registered' if new else 'was registered already'}")
    return version


def _checked_name(name: str) -> str:
    if not name.isprintable() or not name.strip() or len(name) > LONGEST_NAME:
        raise InputError(f"the registered model's name is {name!r}; expected 1 to {LONGEST_NAME} printable characters")
    return name


def _typed(value: str | int | float) -> dict[str, str | float]:
    """A custom property, as the registry types it."""
    if isinstance(value, int):
        return {"metadataType": "MetadataIntValue", "int_value": str(value)}
    if isinstance(value, float):
        return {"metadataType": "MetadataDoubleValue", "double_value": value}
    return {"metadataType": "MetadataStringValue", "string_value": value}
