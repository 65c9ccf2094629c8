"""The step `register`: tell Kubeflow's Model Registry of the model that a report says to use."""

import json
from pathlib import Path
from typing import Any

from tlm.artifacts.artifact import Artifact
from tlm.cluster.registry import Registry
from tlm.errors import InputError
from tlm.evaluation.mixture.members import model_of
from tlm.evaluation.pages.text import visible
from tlm.evaluation.predict.onnx import ONNX
from tlm.progress import say
from tlm.serving.server.serve import VERSION_DIGITS
from tlm.shallow.folder import CONFIG, FAMILY

LONGEST_NAME = 200  # the registry's column has 255 characters, and it puts the parent's ID before a name
FOLDER = "model"  # of every artifact that predicts


def register(report: str, *, address: str, name: str = "", run: str = "", run_name: str = "") -> str:
    """Register the model that a report's first sentence says to use; of its seeds, the one that is best on dev.

    The version's description is that sentence, and its property ``sure`` says how sure that is. Its name is the
    beginning of the model's content. A model that is registered already is found, and nothing there is changed; what an
    interrupted call left undone is done by the next.

    Args:
        report: URI of the report.
        address: Address of the registry, http(s)://host:port.
        name: Name of the registered model; by default the task's.
        run: ID of the pipeline run, if it was one.
        run_name: Name of the pipeline run.

    Returns:
        The address of the model's version in the registry.

    Raises:
        InputError: there is no such report, its model is gone, or the registry refuses it.
        Interrupted: the registry does not answer, or fails.
    """
    registry = Registry(address)
    found = Artifact.open(report, "report")
    if found.manifest.step != "report":
        raise InputError(f"{report} is on several tasks; give the report of one task")
    told = json.loads(found.path("report.json").read_text(encoding="utf-8"))
    best = told["best"]
    if "metrics" not in best:
        raise InputError(f"{report} is of an older version, which does not say which model to use; make it again")
    scored = _chosen(found, best["metrics"])
    model = model_of(scored)
    if model is None:
        raise InputError(f"{report}: '{best['name']}' is of imported predictions, so there is no model to register")
    name = _checked_name(name or visible(scored.details["task"], 80))
    about = _about(found, best, scored, model) | {"description": told["findings"][0]}
    source = {"modelSourceId": run, "modelSourceName": run_name}
    source = {"modelSourceKind": "kfp", "modelSourceClass": "pipelinerun", **source} if run else {}
    version = _entered(registry, name, model, about, _file_facts(model) | source)
    return f"{registry.url}/model_versions/{version['id']}"


def _chosen(report: Artifact, key: str) -> Artifact:
    """The metrics of the model that the report names."""
    inputs = report.manifest.inputs
    return report.input(next(name for name, metrics in inputs.items() if metrics.key == key))


def _about(report: Artifact, best: dict[str, Any], scored: Artifact, model: Artifact) -> dict[str, Any]:
    """What the registry shows of the version: its custom properties."""
    corpora = [one.uri for one in scored.lineage() if one.manifest.kind == "corpus"]
    values: dict[str, Any] = {
        "model": model.uri,
        "content": model.content,
        "report": report.uri,
        "task": visible(scored.details["task"], 80),
        "corpus": corpora[0] if corpora else "",  # the linear model has none
        "arm": best["name"],
        "sure": best["sure"],
        "seed": int(scored.details["seed"]),
        "metric": str(scored.details["metric"]),
        "dev": float(scored.details["dev"]),
        "test": float(scored.details["test"]),
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
