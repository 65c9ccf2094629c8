"""Kubeflow Pipelines' own client with bounded calls, retries, and errors in one sentence: upload, submit."""

import hashlib
import json
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from textwrap import shorten
from typing import Any
from urllib.parse import quote

import kfp
import kfp_server_api
import urllib3
from kfp.client.token_credentials_base import TokenCredentialsBase
from kfp_server_api import ApiException, Configuration
from urllib3 import exceptions as http

from pipelines.compiled import Compiled, parse
from pipelines.form import Connection, RunOptions
from tlm.artifacts.stores.store import check_url, trusting
from tlm.errors import InputError, Interrupted
from tlm.progress import say
from tlm.runs.registry import TOKEN

NOT_THE_API = ", not as Kubeflow Pipelines 2 does; check --host and the token"
ADVICE = {  # by the status of an answer
    0: NOT_THE_API,
    401: "; give a valid token with --token-file FILE, or in KFP_EXISTING_TOKEN",
    403: "; ask for the right, or give another --namespace or token",
    409: "; give another name",
    **dict.fromkeys(range(500, 600), "; look at the API server's log"),
}
TOO_OLD = "; it is older than 2.16: `python -m pipelines.run compile --kfp-2-15` makes a file for 2.15; use --file FILE"
LONGEST = 300  # characters of a message that are shown


class ApiError(InputError):
    """The API did not do what it was asked to do.

    Attributes:
        status: HTTP status of its answer, and 503 if there was no connection; 0 if no answer came from it although the
            request was sent, so that it may have done what it was asked to do.
    """

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status

    @property
    def may_pass(self) -> bool:
        """Whether the same call may succeed later."""
        return self.status in (0, 408, 429) or self.status >= 500


def from_connection(host: str, error: http.HTTPError) -> ApiError:
    """Return the error for a connection that was not made, or that broke."""
    reason = error.reason if isinstance(error, http.MaxRetryError) and error.reason else error
    unsent = isinstance(reason, http.ConnectTimeoutError | http.SSLError)
    said = shorten(str(reason.args[-1]).rpartition("): ")[2], LONGEST)
    what = f"{'cannot be reached' if unsent else 'did not answer'} ({said})"
    advice = "check --host, --ca-file and --call-timeout, or start the port-forward"
    return ApiError(f"{host}: {what}; {advice}", 503 if unsent else 0)


def from_answer(host: str, error: ApiException, token: str) -> ApiError:
    """Return the error for an answer with another status than 2xx; `token` says where the token came from."""
    said, is_api = _message(error)
    status = error.status if is_api or (400 <= error.status < 500 and error.status != 404) else 0
    sender = f"the token from {token}" if token else "no token"
    call = f" to a call with {sender}" if status == 401 else ""
    advice = TOO_OLD if 'unknown field "securityContext"' in said else ADVICE.get(status, "")
    return ApiError(f"{host}: answers {error.status}{call}: {said}{advice}", status)


def _message(error: ApiException) -> tuple[str, bool]:
    """Return the message of an answer, and whether the API wrote it: what stands before it answers without JSON."""
    try:
        body = json.loads(error.body)
        details = [detail["message"] for detail in body.get("details") or [] if "message" in detail]
    except (TypeError, ValueError, AttributeError):
        return str(error.reason), False
    said = details[0] if details else body.get("message") or body.get("error_message") or error.reason
    return shorten(str(said), LONGEST).rstrip("."), True


IN_CLUSTER = "http://ml-pipeline.kubeflow.svc.cluster.local:8888"
PROJECTED_TOKEN = Path("/var/run/secrets/kubeflow/pipelines/token")  # the path in kfp's documentation
OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
TOKEN_VARIABLE = "KFP_EXISTING_TOKEN"  # as in kfp's own command line


def find(host: str, ui_host: str = "") -> tuple[str, str]:
    """Return the base URLs of the API and of the UI; that of the UI is empty if only the API is known.

    Without a host, inside a cluster, the API is the service in KFP's own manifests.

    Raises:
        InputError: There is no address, it is no URL, or connecting to it is not allowed.
    """
    if not host and "KUBERNETES_SERVICE_HOST" not in os.environ:
        raise InputError("no address of Kubeflow Pipelines: give --host http://…, or set KF_PIPELINES_ENDPOINT")
    if not host:
        return IN_CLUSTER, ui_host.rstrip("/")
    if "@" in host + ui_host:
        raise InputError("the address of Kubeflow Pipelines has a password in it; give a token by --token-file")
    check_url(host, "--host")
    api = host.rstrip("/").removesuffix("/#")
    return api, (ui_host or api).rstrip("/")


class Token(TokenCredentialsBase):  # type: ignore[misc]
    """A bearer token. A token file is read again for each call, because it is replaced before the token expires.

    Attributes:
        source: The file or variable that the token is in; empty if there is none.
    """

    def __init__(self, file: Path | None) -> None:
        self.file = file or (PROJECTED_TOKEN if PROJECTED_TOKEN.exists() else None)
        self.source = str(self.file or (TOKEN_VARIABLE if os.environ.get(TOKEN_VARIABLE) else ""))

    def refresh_api_key_hook(self, config: Configuration) -> None:
        """Put the current token into KFP's configuration, which does this before each call.

        Raises:
            ApiError: The file cannot be read.
        """
        try:
            token = (self.file.read_text(encoding="utf-8") if self.file else os.environ[TOKEN_VARIABLE]).strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ApiError(f"{self.file}: the token cannot be read ({error})", 401) from None
        if not TOKEN.fullmatch(token):  # which is not shown, as http.client would do
            raise ApiError(f"{self.source} holds no token; expected one line without spaces", 401)
        config.api_key["authorization"] = token


def own_namespace() -> str:
    """Return the namespace of the pod that this runs in; empty elsewhere."""
    return OWN_NAMESPACE.read_text(encoding="ascii").strip() if OWN_NAMESPACE.exists() else ""


CONNECT = 5.0  # seconds
# A POST is repeated only if it did not reach the server.
_HOW: dict[str, Any] = {"redirect": False, "raise_on_status": False, "respect_retry_after_header": False}
RETRIES = urllib3.Retry(2, backoff_factor=1.5, status_forcelist=(408, 429, 500, 502, 503, 504), **_HOW)


class Api:
    """A connection to Kubeflow Pipelines.

    All calls of `client` go through `http.call_api`, which is wrapped here: `client` itself sets no time limits, does
    not retry, and raises errors that are not meant for users. Methods of `client` that print are not used.

    Attributes:
        namespace: Whose runs they are; empty where there is only one user.
        scope: The namespace as an argument of a call; empty where there is only one user.
    """

    def __init__(self, connection: Connection) -> None:
        self.url, self.ui = find(connection.host, connection.ui_host)
        self.token, self.call_timeout = Token(connection.token_file), connection.call_timeout
        with warnings.catch_warnings(action="ignore", category=FutureWarning):  # about the age of the server
            # With a namespace the constructor does not call the server, which could hang.
            token = self.token if self.token.source else None
            authority = str(connection.ca_file) if connection.ca_file else None
            self.client = kfp.Client(self.url, namespace="unused", credentials=token, ssl_ca_cert=authority)
        self.http = self.client.runs.api_client
        how = {"retries": RETRIES, "ssl_context": trusting(connection.ca_file)}
        self.http.rest_client.pool_manager.connection_pool_kw |= how
        self.http.call_api = partial(self._call, self.http.call_api)
        self.namespace = ""
        if self.client.healthzs.healthz_service_get_healthz().multi_user:
            self.namespace = connection.namespace or own_namespace()
            if not self.namespace:
                raise InputError(f"{self.url}: has several users: give a namespace with --namespace")
        self.scope = {"namespace": self.namespace} if self.namespace else {}

    def link(self, page: str) -> str:
        """Return the URL of a page of the UI; inside Kubeflow's dashboard (…/pipeline) the namespace is part of it."""
        if self.ui.endswith("/pipeline"):
            dashboard = self.ui.removesuffix("/pipeline").removesuffix("/_")
            return f"{dashboard}/_/pipeline/" + (f"?ns={self.namespace}" if self.namespace else "") + f"#/{page}"
        return f"{self.ui}/#/{page}"

    def named(self, list_all: Callable[..., Any], field: str, name: str, **options: Any) -> Any:
        """Return the newest in a list that has this display name, None if there is none; `field` holds the list."""
        condition = {"predicates": [{"operation": "EQUALS", "key": "display_name", "string_value": name}]}
        encoded = quote(json.dumps(condition))  # the server decodes the filter once more than HTTP does
        answer = list_all(filter=encoded, sort_by="created_at desc", page_size=100, **options)
        return next(iter(getattr(answer, field) or []), None)

    def find_or_create(self, find: Callable[[], Any], create: Callable[[], Any]) -> Any:
        """Return what `find` finds, or else what `create` creates.

        Somebody else may be faster, and an attempt without an answer may have arrived, so both are tried twice.
        """
        try:
            return find() or create()
        except ApiError as error:
            if error.status != 409 and not error.may_pass:
                raise
            return find() or create()

    def _call(self, call_api: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Return the answer to a call. Raises ApiError."""
        try:
            answer = call_api(*arguments, **options | {"_request_timeout": (CONNECT, self.call_timeout)})
        except ApiException as error:
            raise from_answer(self.url, error, self.token.source) from None
        except http.HTTPError as error:
            raise from_connection(self.url, error) from None
        except (TypeError, ValueError) as error:  # an answer that fits no model
            raise ApiError(f"{self.url}: answers something unreadable ({error}){NOT_THE_API}") from None
        kind = self.http.last_response.urllib3_response.headers.get("content-type", "")
        if not kind.startswith("application/json"):
            raise ApiError(f"{self.url}: answers with {kind or 'nothing'}{NOT_THE_API}")
        return answer


def upload(api: Api, text: str, *, name: str, version: str) -> Any:
    """Return `version` of the pipeline `name`; each is created if it does not exist.

    Raises:
        InputError: The version exists with other content, or the API refuses it.
    """
    pipeline = api.find_or_create(lambda: find_pipeline(api, name), lambda: _create(api, name, text))
    mark = f"sha256 {hashlib.sha256(text.encode()).hexdigest()}"

    def find() -> Any:
        listed = api.client.list_pipeline_versions
        if found := api.named(listed, "pipeline_versions", version, pipeline_id=pipeline):
            say(f"version {version} already exists")
        return found

    found = api.find_or_create(find, lambda: _send(api, text, pipeline, version, mark))
    if found.description and found.description != mark:
        raise InputError(f"version {version} of '{name}' exists with other content; commit, or give another --version")
    return found


def find_pipeline(api: Api, name: str) -> str:
    """Return the ID of the pipeline of this name; empty if there is none."""
    try:
        return str(api.client.pipelines.pipeline_service_get_pipeline_by_name(name, **api.scope).pipeline_id)
    except ApiError as error:
        if error.status != 404:
            raise
        return ""


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


def submit(api: Api, pipeline: Compiled, values: Mapping[str, Any], order: RunOptions, name: str = "") -> str:
    """Return the ID of the new run.

    Raises:
        InputError: The API refuses it or cannot be reached.
        Interrupted: No answer came, so the run may have begun.
    """
    name = name or f"{pipeline.name} {time.strftime('%Y-%m-%d %H:%M:%S')}"
    runtime = {"parameters": dict(values), "pipeline_root": order.pipeline_root or None}
    run = {
        "experiment_id": experiment(api, order.experiment), "display_name": name,
        "pipeline_spec": pipeline.document(), "runtime_config": kfp_server_api.V2beta1RuntimeConfig(**runtime),
        "service_account": order.service_account or None,
    }  # fmt: skip
    try:
        return str(api.client.runs.run_service_create_run(kfp_server_api.V2beta1Run(**run)).run_id)
    except ApiError as error:
        if error.status:
            raise
        raise Interrupted(f"{error}; the run may have begun all the same: look for '{name}' in the UI") from None


def experiment(api: Api, name: str) -> str:
    """Return the ID of the experiment of this name, which is created if there is none."""

    listed = api.client.experiments.experiment_service_list_experiments

    def create() -> Any:
        new = {"display_name": name, **api.scope}
        made = api.client.experiments.experiment_service_create_experiment(new)
        say(f"created the experiment '{name}'")
        return made

    found = api.find_or_create(lambda: api.named(listed, "experiments", name, **api.scope), create)
    if found.storage_state == "ARCHIVED":
        raise InputError(f"the experiment '{name}' is archived: restore it in the UI, or give another --experiment")
    return str(found.experiment_id)
