"""Register the model that a report says to use with Kubeflow's Model Registry (REST, v1 and v1alpha3).

The official client, `model-registry` on PyPI, is not in the images: it would add eleven packages, aiohttp among them,
for two kinds of call, knows one version of the API, and refuses a model that is there already, which is what a repeated
step must find. (urllib3 comes with boto3.)
The folder ``TLM_MODEL_REGISTRY_SECRET`` (a mounted secret) may hold a bearer token, ``token``, and the certificate of
the authority of an https:// address, ``ca.crt``.
"""

import json
import os
import re
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from urllib3 import BaseHTTPResponse, PoolManager
from urllib3.exceptions import HTTPError, NameResolutionError, ProtocolError, SSLError
from urllib3.util import Retry

from tlm.artifacts.artifact import Artifact
from tlm.artifacts.stores.store import check_url, tls_cure, trusting
from tlm.errors import InputError, Interrupted, reason
from tlm.evaluation.pages.text import visible
from tlm.evaluation.predict.encoder import ONNX
from tlm.evaluation.predict.models import model_of, recommended_by
from tlm.progress import say
from tlm.serving.serve import VERSION_DIGITS
from tlm.shallow.folder import CONFIG, FAMILY

VERSIONS = ("v1", "v1alpha3")  # of the API, the newest first; the calls here are the same in both
SECRET = "TLM_MODEL_REGISTRY_SECRET"
IN_SECRET = f"of the folder {SECRET}, on Kubernetes into the Secret tlm-model-registry"
SETTING = "registry_address"
CALL_SECONDS = 30.0
PASSING = (408, 429, 500, 502, 503, 504)
# For about 15 seconds. A POST is repeated too: names are unique there, so it cannot make a second entry.
_HOW: dict[str, Any] = {"allowed_methods": None, "raise_on_status": False, "respect_retry_after_header": False}
RETRY = Retry(5, status_forcelist=PASSING, backoff_factor=0.5, **_HOW)
_ADDRESS = re.compile(r"https?://(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?/?")
TOKEN = re.compile(r"[\x21-\x7e]+")

Entry = dict[str, Any]


def check_address(address: str) -> None:
    """Raise InputError unless this is the address of a server. Calls nobody."""
    if not _ADDRESS.fullmatch(address):
        expected = "the address of Kubeflow's Model Registry without a path, such as"
        example = "http://model-registry-service.kubeflow.svc.cluster.local:8080"
        raise InputError(f"{SETTING} is '{address}'; expected {expected} {example}")


class Registry:
    """A client of a registry.

    Attributes:
        address: ``http(s)://host:port``.
        title: What errors call the registry.
    """

    def __init__(self, address: str) -> None:
        check_address(address)
        self.address = address.rstrip("/")
        self.title = f"the model registry at {self.address}"
        check_url(self.address, SETTING)

    def check(self) -> None:
        """Ask for a list. Raises as `find_or_create` does."""
        self._call("GET", "registered_models", pageSize="1")

    def find_or_create(self, kind: str, to: str, name: str, parent: str = "", **fields: Any) -> tuple[Entry, bool]:
        """Return the entry of this name, and whether it was created now; one that exists is not changed.

        Args:
            kind: What is looked for: registered_model, model_version or model_artifact.
            to: The path of the list that a new entry is added to.
            name: Name of the entry, unique in its parent.
            parent: ID of the entry that it belongs to.
            fields: Further fields of a new entry.

        Raises:
            InputError: the address, the token or the certificate is wrong, or the registry refused a call.
            Interrupted: the registry failed, or did not answer, for some 15 seconds.
        """
        where = {"name": name, "parentResourceId": parent} if parent else {"name": name}
        if entry := self._call("GET", kind, absent=404, **where):
            return entry, False
        if entry := self._call("POST", to, absent=409, body={"name": name, **fields}):
            return entry, True
        if entry := self._call("GET", kind, absent=404, **where):  # somebody was faster, or the first answer was lost
            return entry, False
        raise Interrupted(f"{self.title} has a {kind} '{name}', but does not show it; repeat")

    @cached_property
    def url(self) -> str:
        """The address of the API, of the newest version that the registry has."""
        for version in VERSIONS:
            url = f"{self.address}/api/model_registry/{version}"
            if self._request("GET", f"{url}/registered_models", {"pageSize": "1"}).status != 404:
                return url
        raise self._another("404")

    def _call(self, method: str, path: str, *, body: Any = None, absent: int = 0, **query: str) -> Entry | None:
        """Return the answer's JSON; None for the status `absent`."""
        return self._checked(self._request(method, f"{self.url}/{path}", query, body), absent)

    def _request(self, method: str, url: str, query: dict[str, str], body: Any = None) -> BaseHTTPResponse:
        given = {"fields": query or None, "json": body, "headers": {"Accept": "application/json", **_authorization()}}
        try:
            return self._pool.request(method, url, retries=RETRY, redirect=False, **given)
        except HTTPError as error:
            raise self._unreachable(error) from None

    def _checked(self, answer: BaseHTTPResponse, absent: int) -> Entry | None:
        status, entry = answer.status, None
        with suppress(ValueError):
            entry = json.loads(answer.data)
        said = f"{status} {entry['message']}" if isinstance(entry, dict) and "message" in entry else f"{status}"
        if status in PASSING:
            raise Interrupted(f"{self.title} keeps failing ({said}); look at its log, then repeat")
        if status in (401, 403):
            raise InputError(f"{self.title} refuses access ({said}); put a valid token into the file token {IN_SECRET}")
        if not isinstance(entry, dict):
            raise self._another(said)
        if status == absent:
            return None
        if status >= 300:
            raise InputError(f"{self.title} refused a call ({said}); fix that, then repeat")
        return entry

    def _another(self, said: str) -> InputError:
        return self._wrong(f"what answers there ({said}) is not Kubeflow's Model Registry; correct the address")

    def _wrong(self, what: str) -> InputError:
        return InputError(f"{SETTING} is {self.address}, but {what}")

    def _unreachable(self, error: HTTPError) -> InputError | Interrupted:
        cause = getattr(error, "reason", None) or error
        if isinstance(cause, NameResolutionError):
            return self._wrong("there is no host of this name; correct the address")
        if isinstance(cause, SSLError):
            said = reason(cause)
            cure = tls_cure(said, f"put the certificate of its authority into the file ca.crt {IN_SECRET}")
            return self._wrong(f"TLS fails there ({said}); {cure}")
        cause = cause.args[-1] if isinstance(cause, ProtocolError) else cause
        said = (str(cause).rpartition("] ")[2] or type(cause).__name__).rstrip(".")
        return Interrupted(f"{self.title} does not answer ({said}); correct {SETTING}, or repeat when it is up")

    @cached_property
    def _pool(self) -> PoolManager:
        return PoolManager(ssl_context=trusting(_secret("ca.crt")), timeout=CALL_SECONDS)


def _authorization() -> dict[str, str]:
    file = _secret("token")
    if file is None:
        return {}
    token = file.read_bytes().strip().decode("ascii", errors="replace")
    if not TOKEN.fullmatch(token):  # which is not shown, as it may be another secret
        raise InputError(f"{file} holds no token; expected one line without spaces")
    return {"Authorization": f"Bearer {token}"}


def _secret(name: str) -> Path | None:
    folder = os.environ.get(SECRET)
    file = Path(folder or "", name)
    return file if folder and file.is_file() else None


LONGEST_NAME = 200  # the registry's column has 255 characters, and it puts the parent's ID before a name
DESCRIPTION = "Trained by TLM on Kubeflow"
FOLDER = "model"  # of every artifact that predicts


def check_model_name(name: str) -> None:
    """Raise InputError unless the registry takes this name of a model; "" stands for the task's."""
    if name and (not name.isprintable() or not name.strip() or len(name) > LONGEST_NAME):
        raise InputError(f"the registered model's name is {name!r}; expected 1 to {LONGEST_NAME} printable characters")


def register(report: str, *, address: str, name: str = "", run: str = "", run_name: str = "") -> str:
    """Register the model that a report's first sentence says to use; of its seeds, the one that is best on dev.

    The version's description is that sentence; its property ``checks`` has the codes of the report's checks. Its name
    is the beginning of the model's content. A model that is registered already is found, and nothing there is changed;
    what an interrupted call left undone is done by the next.

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
    opened = Artifact.open(report, "report")
    scored, facts = recommended_by(opened)
    best, model = facts["best"], model_of(scored)
    if model is None:
        raise InputError(f"{report}: '{best['name']}' is of imported predictions, so there is no model to register")
    name = name or visible(scored.details["task"], 80)
    check_model_name(name)
    codes = ", ".join(dict.fromkeys(check["code"] for check in facts["checks"]))
    about = {"description": facts["findings"][0], "customProperties": _about(opened, best, codes, scored, model)}
    files = _file_facts(model)
    if run:
        files |= {"modelSourceKind": "kfp", "modelSourceClass": "pipelinerun"}
        files |= {"modelSourceId": run, "modelSourceName": run_name}
    version = _entered(registry, name, model, about, files)
    return f"{registry.url}/model_versions/{version['id']}"


def _about(report: Artifact, best: dict[str, Any], checks: str, scored: Artifact, model: Artifact) -> dict[str, Any]:
    """Return the custom properties of the version, each with its type."""
    details = scored.details
    corpus = scored.nearest("corpus")  # the linear model has none
    values: dict[str, Any] = {
        "model": model.uri, "content": model.content, "report": report.uri, "corpus": corpus.uri if corpus else "",
        "task": visible(details["task"], 80), "arm": best["name"], "checks": checks, "seed": int(details["seed"]),
        "metric": str(details["metric"]), "dev": float(details["dev"]), "test": float(details["test"]),
        "tlm": model.manifest.tool, "provenance": f"tlm provenance {model.uri}",
    }  # fmt: skip
    types = {int: ("Int", "int_value", str), float: ("Double", "double_value", float)}
    properties = {}
    for name, value in values.items():
        kind, field, written = types.get(type(value), ("String", "string_value", str))
        if value != "":
            properties[name] = {"metadataType": f"Metadata{kind}Value", field: written(value)}
    return properties


def _file_facts(model: Artifact) -> dict[str, str]:
    """Return the address and the format of the model's folder."""
    config, place = model.json(f"{FOLDER}/{CONFIG}"), model.address(FOLDER)
    facts = {"uri": place if "://" in place else Path(place).as_uri()}
    if FAMILY in config:  # linear, static, a mixture: for `tlm predict` and `tlm serve`
        return facts | {"modelFormatName": "tlm", "modelFormatVersion": model.manifest.tool}
    if ONNX in config:
        return facts | {"modelFormatName": "onnx"}
    version = config.get("transformers_version")
    return facts | {"modelFormatName": "transformers"} | ({"modelFormatVersion": version} if version else {})


def _entered(registry: Registry, name: str, model: Artifact, about: Entry, files: Entry) -> Entry:
    """Find or make the registered model, its version and the version's artifact; return the version."""
    digits = model.content[:VERSION_DIGITS]
    files |= {"artifactType": "model-artifact", "state": "LIVE"}
    group, _ = registry.find_or_create("registered_model", "registered_models", name, description=DESCRIPTION)
    about |= {"registeredModelId": group["id"]}
    version, _ = registry.find_or_create("model_version", "model_versions", digits, group["id"], **about)
    to = f"model_versions/{version['id']}/artifacts"
    artifact, new = registry.find_or_create("model_artifact", to, name, version["id"], **files)
    if artifact.get("uri") != files["uri"]:
        advice = f"if the model is gone from there, change it in the registry to {files['uri']}"
        say(f"warning: the registry knows the same model at {artifact.get('uri')}, and keeps that address; {advice}")
    for kind, entry in (("model", group), ("version", version)):
        if entry.get("state") == "ARCHIVED":
            say(f"warning: the {kind} '{entry['name']}' is archived in the registry, and stays so; restore it there")
    say(f"register: {name}, version {digits}, {'is registered' if new else 'was registered already'}")
    return version
