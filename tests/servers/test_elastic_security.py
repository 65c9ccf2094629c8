"""Elasticsearch with TLS and API keys, as clusters have it: what a key must be allowed, and what is said without one."""

import base64
import hashlib
import subprocess
from pathlib import Path

import pytest
from elasticsearch import Elasticsearch

from tests.conftest import started
from tests.searchable import columns, corpus_of, task_of
from tests.servers import servers
from tlm.errors import InputError
from tlm.retrieval.index import build_index
from tlm.retrieval.retrieve import retrieve

PASSAGES = ["red green", "green blue", "blue red red"]
PASSWORD = "only-for-this-test"
NEEDED = {"tlm": {"indices": [{"names": ["tlm-*"], "privileges": ["all"]}]}}
READ_ONLY = {"tlm": {"indices": [{"names": ["tlm-*"], "privileges": ["read", "view_index_metadata"]}]}}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A certificate that vouches for itself, and its key beside it."""
    folder = tmp_path_factory.mktemp("tls")
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    new = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run([*new, *names], cwd=folder, check=True, capture_output=True)
    return folder / "cert.pem"


@pytest.fixture(scope="module")
def secured_url(certificate):
    def prepare(home: Path) -> None:
        for name in ("cert.pem", "key.pem"):
            (home / "config" / name).write_bytes((certificate.parent / name).read_bytes())
        digest = base64.b64encode(hashlib.sha1(PASSWORD.encode()).digest()).decode()
        (home / "config" / "users").write_text(f"tester:{{SHA}}{digest}\n")
        (home / "config" / "users_roles").write_text("superuser:tester\n")

    settings = (
        "xpack.security.enabled=true",
        "xpack.security.autoconfiguration.enabled=false",
        "xpack.security.transport.ssl.enabled=false",
        "xpack.security.http.ssl.enabled=true",
        "xpack.security.http.ssl.certificate=cert.pem",
        "xpack.security.http.ssl.key=key.pem",
    )
    yield from started(lambda: servers.elasticsearch(*settings, heap="512m", prepare=prepare))


@pytest.fixture
def key_file(secured_url, certificate, tmp_path, monkeypatch):
    """Makes a file with an API key that has the given roles; the environment names all there is to name."""
    admin = Elasticsearch(secured_url, ca_certs=str(certificate), basic_auth=("tester", PASSWORD), request_timeout=60)
    monkeypatch.setenv("TLM_ELASTICSEARCH_URL", secured_url)
    monkeypatch.setenv("TLM_ELASTICSEARCH_CA_FILE", str(certificate))
    path = tmp_path / "api-key"
    monkeypatch.setenv("TLM_ELASTICSEARCH_API_KEY_FILE", str(path))

    def make(roles):
        path.write_text(admin.security.create_api_key(name="test", role_descriptors=roles)["encoded"] + "\n")
        return path

    return make


def index(root):
    return build_index(corpus_of(PASSAGES, root), engine="elasticsearch", root=root)


def test_a_key_with_all_privileges_on_our_indices_suffices(key_file, tmp_path):
    key_file(NEEDED)
    root = str(tmp_path / "root")
    hits = retrieve(index(root), task_of(["red"], root), root=root)
    assert columns(hits, "hits.parquet")["doc"] == [2, 0]
    key_file(READ_ONLY)
    assert columns(retrieve(index(root), task_of(["green"], root), root=root), "hits.parquet")["doc"] == [0, 1]


def test_a_key_without_them_is_told_what_it_lacks(key_file, tmp_path):
    key_file(READ_ONLY)
    with pytest.raises(InputError, match=r"forbids this \(.*unauthorized.*\); the API key needs the privileges 'all'"):
        index(str(tmp_path / "other-root"))


def test_a_wrong_key_is_named(key_file, tmp_path, monkeypatch):
    key_file(NEEDED).write_text(base64.b64encode(b"nobody:nothing").decode())
    with pytest.raises(InputError, match="does not know us .* the file that TLM_ELASTICSEARCH_API_KEY_FILE names"):
        index(str(tmp_path / "root"))
    monkeypatch.delenv("TLM_ELASTICSEARCH_API_KEY_FILE")
    with pytest.raises(InputError, match="does not know us"):
        index(str(tmp_path / "root"))


def test_a_server_that_nobody_vouches_for_is_not_talked_to(key_file, tmp_path, monkeypatch):
    key_file(NEEDED)
    monkeypatch.delenv("TLM_ELASTICSEARCH_CA_FILE")
    with pytest.raises(InputError, match="TLM_ELASTICSEARCH_CA_FILE"):
        index(str(tmp_path / "root"))
