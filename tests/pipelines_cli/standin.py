"""A STAND-IN of the Kubeflow Pipelines API: it is not Kubeflow, and a test that passes here ran nothing on a cluster.

It knows as much of the v2beta1 HTTP API as `pipelines.client` uses. Its answers are built from the models of
`kfp_server_api`, which kfp generates from the API's own description, and every request is parsed into them: a field
that the models do not have is answered with 400, so that names cannot drift. What it cannot show is what the API
server thinks of a pipeline, the order of Argo's nodes, and every check that KFP makes and this file does not.
"""

import base64
import contextlib
import datetime
import gzip
import json
import ssl
import threading
import time
import uuid
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import kfp_server_api as kfp
import yaml

_CLIENT = kfp.ApiClient()
_CODES = {400: 3, 401: 16, 403: 7, 404: 5, 409: 6, 500: 13, 503: 14}  # HTTP status: gRPC code


class Answer(Exception):
    """An answer other than the usual one."""

    def __init__(self, status: int, body: str, kind: str = "application/json", **headers: str) -> None:
        super().__init__(status)
        self.status, self.body, self.kind, self.headers = status, body, kind, headers


class Dropped(Exception):
    """The connection ends without an answer."""


def refusal(status: int, text: str = "said in the open") -> Answer:
    """As grpc-gateway writes errors: internals in `message`, what is meant for people in `details`."""
    detail = kfp.GoogleRpcStatus(code=_CODES.get(status, 2), message=text)
    body = kfp.GoogleRpcStatus(code=_CODES.get(status, 2), message=f"internal: {text}: stack", details=[]).to_dict()
    body["details"] = [{"@type": "type.googleapis.com/google.rpc.Status", **_json(detail)}]
    return Answer(status, json.dumps(body))


class StandIn:
    """The API with its memory. Tests set what it is to do, and read what it was asked for."""

    def __init__(self, certificate: Path | None = None) -> None:
        self.certificate = certificate  # for TLS, with ``key.pem`` beside it
        self.multi_user = False
        self.is_ui = False  # the API through the UI's server, which has the logs elsewhere
        self.token = ""  # asked for, if set
        self.states = ["SUCCEEDED"]  # of a run at each look; the last one stays
        self.history: list[str] = []  # the states that each run had
        self.nodes: list[dict[str, Any]] = []  # of the workflow of each run
        self.many_nodes = False  # so that Argo compresses them
        self.logs: dict[str, str] = {}  # by pod
        self.pods_in = "kubeflow"  # their namespace, which the UI's server asks for
        self.faults: list[tuple[str, Callable[[], None]]] = []  # ("GET /runs/", what happens instead), each once
        self.at_look: Callable[[int], None] = lambda number: None
        self.looks = 0
        self.requests: list[str] = []
        self.experiments: dict[str, Any] = {}
        self.runs: dict[str, Any] = {}
        self.pipelines: dict[str, Any] = {}
        self.versions: dict[str, Any] = {}
        self._port = 0
        self.up()

    @property
    def url(self) -> str:
        return f"{'https' if self.certificate else 'http'}://127.0.0.1:{self._port}"

    def up(self) -> None:
        """Listen, after `down` at the same port."""
        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), _handler(self))
        self._port = self._server.server_address[1]
        if self.certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self.certificate, self.certificate.with_name("key.pem"))
            self._server.socket = context.wrap_socket(self._server.socket, True, do_handshake_on_connect=False)
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def down(self) -> None:
        """Refuse connections."""
        self._server.shutdown()
        self._server.server_close()

    def fail(self, request: str, *instead: Callable[[], None] | Answer | Exception) -> None:
        """Let the next requests that begin like `request` ("GET /runs") end as said, one each."""
        self.faults += [(request, one if callable(one) else _raising(one)) for one in instead]

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> Any:
        """The model or dict to answer with."""
        request = f"{method} {path}"
        for fault in self.faults:
            if request.startswith(fault[0]):
                self.faults.remove(fault)
                fault[1]()
                break
        for verb, start, handle in self._routes():
            if method == verb and path.startswith(start):
                return handle(path.removeprefix(start), query, body)
        raise Answer(404, "404 page not found", "text/plain")

    def _routes(self) -> list[tuple[str, str, Callable[[str, dict[str, str], Any], Any]]]:
        return [
            ("GET", "/healthz", lambda rest, query, body: {"multi_user": self.multi_user}),
            ("GET", "/experiments", self._list(self.experiments, kfp.V2beta1ListExperimentsResponse, "experiments")),
            ("POST", "/experiments", self._create(self.experiments, kfp.V2beta1Experiment, "experiment_id")),
            ("GET", "/runs/", self._look),
            ("GET", "/runs", self._list(self.runs, kfp.V2beta1ListRunsResponse, "runs")),
            ("POST", "/runs", self._create(self.runs, kfp.V2beta1Run, "run_id")),
            ("GET", "/pipelines/names/", self._by_name),
            ("POST", "/pipelines/upload_version", self._upload),
            ("POST", "/pipelines", self._create(self.pipelines, kfp.V2beta1Pipeline, "pipeline_id")),
            ("GET", "/pipelines/", self._versions),
        ]

    def _create(self, store: dict[str, Any], model: type, key: str) -> Callable[..., Any]:
        def create(rest: str, query: dict[str, str], body: Any) -> Any:
            made = parsed(body, model)
            if not made.display_name:
                raise refusal(400, "the name is empty")
            if self.multi_user and "namespace" in model.openapi_types and not made.namespace:
                raise refusal(400, "Namespace cannot be empty")
            if model in (kfp.V2beta1Experiment, kfp.V2beta1Pipeline):
                name = (made.display_name, made.namespace)
                if name in [(one.display_name, one.namespace) for one in store.values()]:
                    raise refusal(409, f"{made.display_name} exists")
            identity = str(uuid.uuid4())
            setattr(made, key, identity)
            made.created_at = datetime.datetime.now(datetime.UTC)
            store[identity] = made
            return made

        return create

    def _list(self, store: dict[str, Any], model: type, field: str) -> Callable[..., Any]:
        def listed(rest: str, query: dict[str, str], body: Any) -> Any:
            found = list(reversed(store.values()))
            if "filter" in query:
                wanted = _filtered_name(query)
                found = [one for one in found if one.display_name == wanted]
            if "namespace" in query or (self.multi_user and field == "experiments"):
                found = [one for one in found if one.namespace == query.get("namespace")]
            return model(**{field: found, "total_size": len(found)})

        return listed

    def _look(self, run_id: str, query: dict[str, str], body: Any) -> Any:
        if run_id not in self.runs:
            raise refusal(404, f"Run {run_id} not found")
        run = self.runs[run_id]
        run.state = self.states[min(self.looks, len(self.states) - 1)]
        run.state_history = [kfp.V2beta1RuntimeStatus(state=state) for state in self.history]
        self.looks += 1
        self.at_look(self.looks)
        return run

    def _by_name(self, name: str, query: dict[str, str], body: Any) -> Any:
        for one in self.pipelines.values():
            if one.name == name and one.namespace == query.get("namespace"):
                return one
        raise refusal(404, f"Namespace/Pipeline /{name} not found")

    def _versions(self, rest: str, query: dict[str, str], body: Any) -> Any:
        pipeline_id, _, what = rest.partition("/")
        assert what == "versions", rest
        wanted = _filtered_name(query)
        found = [one for one in self.versions.values() if (one.pipeline_id, one.display_name) == (pipeline_id, wanted)]
        if query.get("sort_by") == "created_at desc":
            found.reverse()
        return kfp.V2beta1ListPipelineVersionsResponse(pipeline_versions=found)

    def _upload(self, rest: str, query: dict[str, str], body: bytes) -> Any:
        """The upload's own errors have two fields and no code."""
        text = body.split(b"\r\n\r\n", 1)[1].rsplit(b"\r\n--", 1)[0].decode()
        if query["pipelineid"] not in self.pipelines:
            raise Answer(400, json.dumps({"error_message": "Failed to create a pipeline version"}))
        if query["name"] in [one.name for one in self.versions.values()]:
            raise Answer(409, json.dumps({"error_message": "Failed to create a pipeline version"}))
        documents = list(yaml.safe_load_all(text))
        made = kfp.V2beta1PipelineVersion(
            pipeline_id=query["pipelineid"],
            pipeline_version_id=str(uuid.uuid4()),
            name=query["name"],
            display_name=query.get("display_name", query["name"]),
            description=query["description"],
            pipeline_spec={"pipeline_spec": documents[0], "platform_spec": documents[1]},
        )
        self.versions[made.pipeline_version_id] = made
        return made


def parsed(body: Any, model: type) -> Any:
    """The request as its model; 400 for a field that it has not."""
    made = _CLIENT.deserialize(SimpleNamespace(data=json.dumps(body)), model)
    if _json(made) != body:
        raise refusal(400, f"unknown field in {sorted(body)}")
    return made


def _json(model: Any) -> Any:
    return _CLIENT.sanitize_for_serialization(model)


def _filtered_name(query: dict[str, str]) -> str:
    """The name that a list's filter asks for; the server unquotes the filter once more than HTTP does."""
    raw = unquote(query["filter"].replace("+", " ")).replace('"stringValue"', '"string_value"')  # protobuf takes both
    (predicate,) = parsed(json.loads(raw), kfp.V2beta1Filter).predicates
    assert (predicate.operation in ("EQUALS", 1), predicate.key) == (True, "display_name")
    return str(predicate.string_value)


def _raising(error: Exception) -> Callable[[], None]:
    def instead() -> None:
        raise error

    return instead


def hang(seconds: float = 5.0) -> Callable[[], None]:
    """No answer for so long."""

    def instead() -> None:
        time.sleep(seconds)
        raise Dropped

    return instead


def _handler(api: StandIn) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            url = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(url.query).items()}
            raw = self.rfile.read(int(self.headers.get("content-length") or 0))
            with contextlib.suppress(Dropped, BrokenPipeError, ConnectionResetError):
                try:
                    self._send(200, *self._answer(unquote(url.path), query, raw))
                except Answer as other:
                    self._send(other.status, other.body.encode(), other.kind, other.headers)

        def _answer(self, path: str, query: dict[str, str], raw: bytes) -> tuple[bytes, str]:
            base = "/apis/v2beta1"
            api.requests.append(f"{self.command} {path.removeprefix(base)}")
            if api.token and self.headers.get("authorization") != f"Bearer {api.token}":
                raise refusal(401, "the token is not valid")
            if (api.is_ui, path, query.get("podnamespace")) == (True, "/k8s/pod/logs", api.pods_in):
                return api.logs.get(query["podname"], "<html>").encode(), "text/plain"
            if path.startswith("/apis/v1beta1/runs/"):  # with Argo's workflow, as a text
                status: dict[str, Any] = {"nodes": {one["id"]: one for one in api.nodes}}
                if api.many_nodes:
                    status = {
                        "compressedNodes": base64.b64encode(
                            gzip.compress(json.dumps(status["nodes"]).encode())
                        ).decode()
                    }
                workflow = {"metadata": {"name": "tlm-ab1"}, "status": status}
                return json.dumps(
                    {"pipeline_runtime": {"workflow_manifest": json.dumps(workflow)}}
                ).encode(), "text/plain"
            if api.is_ui and not path.startswith(base):  # its page, whatever is asked for
                return b"<!doctype html><title>Kubeflow</title>", "text/html"
            if path.endswith("/log"):  # 200 in any case, as the API server does
                pod = path.split("/")[-2]
                return (api.logs.get(pod) or json.dumps({"error_message": "no log"})).encode(), "text/plain"
            if not path.startswith(base):
                raise Answer(404, "404 page not found", "text/plain")
            json_body = "json" in (self.headers.get("content-type") or "")
            body = json.loads(raw) if json_body and raw else raw
            answer = api.answer(self.command, path.removeprefix(base), query, body)
            return json.dumps(_json(answer)).encode(), "application/json"

        def _send(self, status: int, body: bytes, kind: str, headers: dict[str, str] | None = None) -> None:
            self.send_response(status)
            for name, value in {"content-type": kind, "content-length": str(len(body)), **(headers or {})}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = _serve

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    return Handler
