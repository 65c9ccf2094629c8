"""A stand-in for Kubeflow's Model Registry: the part of its REST API that registers models, in memory.

It is written from the project's OpenAPI document (api/openapi/model-registry.yaml), and answers as its server, built
from the source of April 2026, was seen to: which fields it takes, what must be unique, how it words what it refuses.
``test_registry.py`` runs against such a server, too, if ``TLM_TEST_MODEL_REGISTRY_URL`` names one.
"""

import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from threading import Lock, Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

LONGEST = 255  # characters of a name in the database, where a child's begins with its parent's ID
ANY = {"name", "description", "externalId", "customProperties", "state"}
SOURCE = {f"modelSource{part}" for part in ("Kind", "Class", "Group", "Id", "Name")}
FIELDS = {
    "registered_model": ANY | {"owner", "readme", "maturity", "language", "tasks", "provider", "license"},
    "model_version": ANY | {"registeredModelId", "author"},
    "model_artifact": ANY
    | SOURCE
    | {"artifactType", "uri", "modelFormatName", "modelFormatVersion", "storageKey", "storagePath"},
}
VALUES = {"MetadataStringValue": ("string_value", str), "MetadataIntValue": ("int_value", str)}
VALUES |= {"MetadataDoubleValue": ("double_value", (int, float))}

Entry = dict[str, Any]


class Refusal(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.body = status, {"code": code, "message": message}


class StandIn:
    """The registry's memory. Tests set what it asks for, and read what it was asked for."""

    def __init__(self, *versions: str) -> None:
        self.versions = versions  # of the API
        self.token = ""  # asked for, if set
        self.moved_to = ""  # where it sends everybody, if set
        self.calls: list[str] = []
        self.entries: dict[str, list[Entry]] = {kind: [] for kind in FIELDS}
        self._parents: dict[str, str] = {}
        self._ids, self._clock, self._lock = count(1), count(1_700_000_000_000), Lock()

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> tuple[int, Entry] | None:
        """Status and JSON; None if there is no such path."""
        with self._lock:
            self.calls.append(f"{method} {path}")
            parts = path.split("/")
            if len(parts) == 3 and parts[::2] in (["registered_models", "versions"], ["model_versions", "artifacts"]):
                return self._list(method, parts[2], parts[1], body)
            if method == "GET" and len(parts) == 2 and parts[0][:-1] in FIELDS:
                return 200, self._found(parts[0][:-1], id=parts[1])
            if method == "GET" and path in FIELDS:
                parent = query.get("parentResourceId", "")
                return 200, self._found(path, name=query["name"], **({"": parent} if parent else {}))
            if path in ("registered_models", "model_versions"):
                return self._list(method, path, "", body)
            return None

    def _list(self, method: str, what: str, parent: str, body: Any) -> tuple[int, Entry]:
        kind = {"versions": "model_version", "artifacts": "model_artifact"}.get(what, what[:-1])
        if method == "POST":
            return 201, self._create(kind, parent, body)
        found = [one for one in self.entries[kind] if not parent or self._parents[one["id"]] == parent]
        return 200, {"items": found, "nextPageToken": "", "pageSize": 0, "size": len(found)}

    def _found(self, kind: str, **wanted: str) -> Entry:
        for one in self.entries[kind]:
            if all((one[key] if key else self._parents[one["id"]]) == value for key, value in wanted.items()):
                return one
        raise Refusal(404, "Not Found", f"no {kind} found for {wanted}: not found")

    def _create(self, kind: str, parent: str, body: Entry) -> Entry:
        for key in body.keys() - FIELDS[kind]:
            raise Refusal(400, "Bad Request", f'json: unknown field "{key}"')
        if not body.get("name") or (kind == "model_version" and not (parent or body.get("registeredModelId"))):
            raise Refusal(422, "Bad Request", "required field is zero value.")
        for value in body.get("customProperties", {}).values():
            name, types = VALUES[value["metadataType"]]
            if value.keys() != {"metadataType", name} or not isinstance(value[name], types):
                raise Refusal(400, "Bad Request", f"failed to unmarshal {value}")
        parent = parent or body.get("registeredModelId", "")
        if len(f"{parent}:{body['name']}" if parent else body["name"]) > LONGEST:
            raise Refusal(500, "Internal Server Error", "value too long for type character varying(255)")
        if any(one["name"] == body["name"] and self._parents[one["id"]] == parent for one in self.entries[kind]):
            raise Refusal(409, "Conflict", f"{kind} with name {body['name']} already exists: conflict")
        now, made = str(next(self._clock)), str(next(self._ids))
        times = {"createTimeSinceEpoch": now, "lastUpdateTimeSinceEpoch": now}
        entry = {"customProperties": {}, "state": "LIVE", **body, "id": made, **times}
        self._parents[made] = parent
        self.entries[kind].append(entry)
        return entry


@contextmanager
def serving(registry: StandIn, certificate: Path | None = None) -> Iterator[str]:
    """Its address; with TLS, if there is a certificate (with ``key.pem`` beside it)."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def serve(self) -> None:
            url = urlsplit(self.path)
            raw = self.rfile.read(int(self.headers.get("content-length", 0)))
            if registry.token and self.headers.get("authorization") != f"Bearer {registry.token}":
                return self.send(401, b"Jwt is missing", "text/plain")  # as Istio words it
            if registry.moved_to:
                return self.send(302, b"", "text/html", location=f"{registry.moved_to}{self.path}")
            version, _, path = url.path.removeprefix("/api/model_registry/").partition("/")
            query = {name: values[0] for name, values in parse_qs(url.query).items()}
            answer = None
            try:
                if version in registry.versions:
                    answer = registry.answer(self.command, path, query, json.loads(raw or b"null"))
            except Refusal as refusal:
                answer = refusal.status, refusal.body
            if answer is None:
                return self.send(404, b"404 page not found\n", "text/plain; charset=utf-8")
            return self.send(answer[0], json.dumps(answer[1]).encode(), "application/json; charset=UTF-8")

        def send(self, status: int, body: bytes, kind: str, **headers: str) -> None:
            self.send_response(status)
            for name, value in {"content-type": kind, "content-length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

        do_GET = do_POST = do_PATCH = serve

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, certificate.with_name("key.pem"))
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield f"{'https' if certificate else 'http'}://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
