"""The API keys' roles on a real Elasticsearch with security, and the script that makes the keys.

The distribution that tests can have knows roles and users, but makes no API keys; so the very role descriptors of the
keys are given to users, and create-keys.sh is run against a stand-in of the API for keys that holds what it was asked.
"""

import base64
import hashlib
import http.server
import json
import os
import shutil
import subprocess
import threading
from pathlib import Path

import pytest
import yaml
from elasticsearch import AuthorizationException

from tests.conftest import missing, started
from tests.k8s import tools
from tests.searchable import columns, corpus_of, task_of
from tests.servers import servers
from tlm.errors import InputError
from tlm.retrieval.retrieve import retrieve
from tlm.retrieval.search import elastic
from tlm.retrieval.search.index import build_index
from tlm.runs.preflight import preflight

FOLDER = tools.ROOT / "k8s/elasticsearch"
ROLES = {file.stem: json.loads(file.read_text()) for file in (FOLDER / "roles").glob("*.json")}
PASSWORD = "only-for-this-test"
USERS = {"filler": ["publisher", "writer"], "searcher": ["reader"], "half": ["writer"]}
PASSAGES = ["red green", "green blue", "blue red red"]


@pytest.fixture(scope="module")
def secured_url():
    def prepare(home: Path) -> None:
        digest = base64.b64encode(hashlib.sha1(PASSWORD.encode()).digest()).decode()
        (home / "config/roles.yml").write_text(yaml.safe_dump(ROLES))
        (home / "config/users").write_text("".join(f"{user}:{{SHA}}{digest}\n" for user in USERS))
        lines = [f"{role}:{','.join(user for user in USERS if role in USERS[user])}\n" for role in ROLES]
        (home / "config/users_roles").write_text("".join(lines))

    settings = (
        "xpack.security.enabled=true",
        "xpack.security.autoconfiguration.enabled=false",
        "xpack.security.transport.ssl.enabled=false",
        "xpack.security.http.ssl.enabled=false",
    )
    yield from started(lambda: servers.elasticsearch(*settings, heap="512m", prepare=prepare))


@pytest.fixture
def login(secured_url, monkeypatch):
    def name(user):
        monkeypatch.setenv("TLM_ELASTICSEARCH_URL", secured_url.replace("://", f"://{user}:{PASSWORD}@"))

    return name


def test_publisher_and_writer_suffice_to_make_an_index_and_reader_to_search_it(login, tmp_path):
    root = str(tmp_path / "root")
    login("filler")
    preflight(engine="elasticsearch", root=root)
    made = build_index(corpus_of(PASSAGES, root), engine="elasticsearch", root=root)
    login("searcher")
    hits = retrieve(made, task_of(["red"], root), root=root)
    assert columns(hits, "hits.parquet")["doc"] == [2, 0]


def test_the_writer_alone_can_make_no_index(login, tmp_path):
    login("half")
    with pytest.raises(InputError, match="lacks create_index, manage on"):
        preflight(engine="elasticsearch", root=str(tmp_path))


def test_a_filled_index_cannot_be_changed_by_its_filler_and_other_indices_are_out_of_reach(login, secured_url):
    login("filler")
    client = elastic.connect()
    client.indices.create(index="tlm-mine")
    client.create(index="tlm-mine", id="1", document={"a": 1})
    refused = [
        lambda: client.index(index="tlm-mine", id="1", document={"a": 2}),
        lambda: client.update(index="tlm-mine", id="1", doc={"a": 2}),
        lambda: client.delete(index="tlm-mine", id="1"),
        lambda: client.indices.create(index="other"),
        lambda: client.cluster.put_settings(persistent={"cluster.routing.allocation.enable": "none"}),
    ]
    login("searcher")
    reader = elastic.connect()
    refused += [
        lambda: reader.create(index="tlm-mine", id="2", document={"a": 1}),
        lambda: reader.indices.delete(index="tlm-mine"),
        lambda: reader.search(index="other"),
    ]
    for forbidden in refused:
        with pytest.raises(AuthorizationException):
            forbidden()


KUBECTL = """#!/usr/bin/env bash
# Stands in for kubectl: secrets are known, `exec … -- curl` runs here, what is applied is kept.
set -euo pipefail
case "$*" in
  *'get secret tlm-es-elastic-user'*) printf 'p"a\\\\ss' ;;
  *'get secret tlm-es-http-certs-public'*) printf -- '-----BEGIN CERTIFICATE-----\\n' ;;
  *' exec '*) sed -e "s,127.0.0.1:9200,127.0.0.1:$PORT," -e '/^cacert/d' -e 's,https://,http://,' | curl --config - ;;
  *'create secret generic'*)
    name="$(sed 's/.*generic \\([^ ]*\\).*/\\1/' <<< "$*")"
    echo "name: $name"
    for file in "$@"; do [ ! -f "$file" ] || echo "$(basename "$file"): $(base64 -w0 < "$file")"; done ;;
  'label '*) cat ;;
  *' apply '*) { echo ---; cat; } >> "$KEPT" ;;
  *) echo "unexpected: kubectl $*" >&2; exit 1 ;;
esac
"""


class Keys(http.server.BaseHTTPRequestHandler):
    """The part of Elasticsearch's API that keys are made, found and invalidated with."""

    def answer(self) -> None:
        keys = self.server.keys  # type: ignore[attr-defined]
        size = int(self.headers.get("Content-Length") or 0)
        asked = json.loads(self.rfile.read(size) or "{}")
        login = base64.b64decode(self.headers.get("Authorization", "Basic ").split()[1]).decode()
        if login != 'elastic:p"a\\ss':
            status, said = 401, {"error": "who are you?"}
        elif self.command == "POST":
            key = f"id{len(keys)}"
            keys[key] = {"id": key, "invalidated": False, **asked}
            status, said = 200, {"id": key, "encoded": base64.b64encode(f"{key}:secret".encode()).decode()}
        elif self.command == "GET":
            status, said = 200, {"api_keys": list(keys.values())}
        else:
            for key in asked["ids"]:
                keys[key]["invalidated"] = True
            status, said = 200, {}
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(said).encode())

    do_POST = do_GET = do_DELETE = answer

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def script(tmp_path):
    """Runs create-keys.sh with the stand-ins: what it said, the keys that the server has, the secrets applied."""
    if shutil.which("curl") is None:
        missing("API keys: install curl")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Keys)
    server.keys = {}  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    kept = tmp_path / "applied.yaml"
    (tmp_path / "kubectl").write_text(KUBECTL)
    (tmp_path / "kubectl").chmod(0o755)

    def run(*arguments, **variables):
        environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PORT": str(server.server_port), "KEPT": str(kept)}
        command = [FOLDER / "create-keys.sh", *arguments]
        done = subprocess.run(command, env=environment | variables, capture_output=True, text=True, timeout=60)
        applied = list(yaml.safe_load_all(kept.read_text())) if kept.exists() else []
        return done, server.keys, [secret for secret in applied if secret]  # type: ignore[attr-defined]

    yield run
    server.shutdown()


def decoded(secret, name):
    return base64.b64decode(secret[name]).decode()


def test_the_script_makes_two_keys_of_our_roles_and_puts_them_into_secrets(script):
    done, keys, secrets = script("mine")
    assert done.returncode == 0, done.stderr
    assert [(key["name"], key["role_descriptors"]) for key in keys.values()] == [
        ("mine-tlm-elasticsearch-writer", {role: ROLES[role] for role in ("publisher", "writer")}),
        ("mine-tlm-elasticsearch-reader", {"reader": ROLES["reader"]}),
    ]
    assert [secret["name"] for secret in secrets] == ["tlm-elasticsearch-writer", "tlm-elasticsearch-reader"]
    assert [decoded(base64_of, "api-key") for base64_of in secrets] == ["aWQwOnNlY3JldA==", "aWQxOnNlY3JldA=="]
    assert all("BEGIN CERTIFICATE" in decoded(secret, "ca.crt") for secret in secrets)
    assert "aWQ" not in done.stdout + done.stderr  # a key is shown nowhere


def test_a_repetition_makes_new_keys_and_ends_the_older_ones(script):
    script("mine")
    script("other")
    done, keys, secrets = script("mine", TLM_KEY_EXPIRATION="90d")
    assert done.returncode == 0, done.stderr
    assert [key["invalidated"] for key in keys.values()] == [True, True, False, False, False, False]
    assert [key.get("expiration") for key in keys.values()] == [None] * 4 + ["90d"] * 2
    assert decoded(secrets[-1], "api-key") == base64.b64encode(b"id5:secret").decode()


def test_no_secret_is_touched_when_elasticsearch_refuses(script, tmp_path):
    wrong = KUBECTL.replace("printf 'p\"a", "printf 'wrong")
    (tmp_path / "kubectl").write_text(wrong)
    done, keys, secrets = script("mine")
    assert done.returncode != 0
    assert "401" in done.stderr
    assert (keys, secrets) == ({}, [])
