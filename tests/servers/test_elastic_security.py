"""Elasticsearch with TLS, users and roles, as clusters have it: what is needed, and what is said without it."""

import base64
import hashlib
import os
import shutil
from pathlib import Path

import pytest

from tests.conftest import started
from tests.searchable import columns, corpus_of, task_of
from tests.servers import servers
from tlm.errors import InputError
from tlm.retrieval.retrieve import retrieve
from tlm.retrieval.search.index import build_index
from tlm.runs.preflight import preflight

PASSAGES = ["red green", "green blue", "blue red red"]
PASSWORD = "only-for-this-test"
ROLES = """
writes: {indices: [{names: ['tlm-*'], privileges: [all]}]}
reads: {indices: [{names: ['tlm-*'], privileges: [read, view_index_metadata]}]}
"""


@pytest.fixture(scope="module")
def secured_url(certificate):
    def prepare(home: Path) -> None:
        for name in ("cert.pem", "key.pem"):
            (home / "config" / name).write_bytes((certificate.parent / name).read_bytes())
        digest = base64.b64encode(hashlib.sha1(PASSWORD.encode()).digest()).decode()
        (home / "config" / "roles.yml").write_text(ROLES)
        (home / "config" / "users").write_text(f"writer:{{SHA}}{digest}\nreader:{{SHA}}{digest}\n")
        (home / "config" / "users_roles").write_text("writes:writer\nreads:reader\n")

    settings = (
        "xpack.security.enabled=true", "xpack.security.autoconfiguration.enabled=false",
        "xpack.security.transport.ssl.enabled=false", "xpack.security.http.ssl.enabled=true",
        "xpack.security.http.ssl.certificate=cert.pem", "xpack.security.http.ssl.key=key.pem",
    )  # fmt: skip
    yield from started(lambda: servers.elasticsearch(*settings, heap="512m", prepare=prepare))


@pytest.fixture
def login(secured_url, certificate, monkeypatch):
    """Lets the environment name the server, with a user and password in the URL, and whom to trust."""
    monkeypatch.setenv("TLM_ELASTICSEARCH_CA_FILE", str(certificate))
    monkeypatch.delenv("TLM_ELASTICSEARCH_API_KEY_FILE", raising=False)

    def name(user=""):
        who = f"{user}:{PASSWORD}@" if user else ""
        monkeypatch.setenv("TLM_ELASTICSEARCH_URL", secured_url.replace("://", f"://{who}"))

    return name


def index(root):
    return build_index(corpus_of(PASSAGES, root), engine="elasticsearch", root=root)


def test_all_privileges_on_our_indices_suffice_and_reading_is_enough_to_search(login, tmp_path):
    root = str(tmp_path / "root")
    login("writer")
    made = index(root)
    login("reader")
    hits = retrieve(made, task_of(["red"], root), root=root)
    assert columns(hits, "hits.parquet")["doc"] == [2, 0]


def test_who_may_not_write_is_told_what_is_needed(login, tmp_path):
    login("reader")
    with pytest.raises(InputError, match=r"forbids this \(.*unauthorized.*\); .* all privileges on the ind") as error:
        build_index(corpus_of(["new"], str(tmp_path)), engine="elasticsearch", root=str(tmp_path))
    assert PASSWORD not in str(error.value)


def test_strangers_are_told_where_the_key_goes(login, tmp_path, monkeypatch):
    login()
    with pytest.raises(
        InputError, match=r"does not accept our credentials .* the file that TLM_ELASTICSEARCH_API_KEY_FILE names"
    ):
        index(str(tmp_path))
    wrong = tmp_path / "api-key"
    wrong.write_text(base64.b64encode(b"nobody:nothing").decode() + "\n")
    monkeypatch.setenv("TLM_ELASTICSEARCH_API_KEY_FILE", str(wrong))
    with pytest.raises(InputError, match="does not accept our credentials"):
        index(str(tmp_path))


def test_a_server_that_nobody_vouches_for_is_not_talked_to(login, tmp_path, monkeypatch):
    login("writer")
    monkeypatch.delenv("TLM_ELASTICSEARCH_CA_FILE")
    with pytest.raises(
        InputError, match=r"TLS fails there \(.*CERTIFICATE_VERIFY_FAILED.*set TLM_ELASTICSEARCH_CA_FILE to its path"
    ):
        index(str(tmp_path))


def test_a_certificate_of_another_host_is_not_taken(login, secured_url, tmp_path, monkeypatch):
    login("writer")
    monkeypatch.setenv("TLM_ELASTICSEARCH_URL", secured_url.replace("127.0.0.1", "localhost"))
    with pytest.raises(InputError, match=r"TLS fails there \(.*[Hh]ostname.*give a host that the cert"):
        index(str(tmp_path))


def test_preflight_names_the_privileges_that_are_missing(login, tmp_path, capsys):
    login("reader")
    with pytest.raises(InputError, match="lacks create_index, create_doc, maintenance, manage on the indices 'tlm-"):
        preflight(engine="elasticsearch", root=str(tmp_path))
    login("writer")
    preflight(engine="elasticsearch", root=str(tmp_path))
    assert "may create and fill indices" in capsys.readouterr().err


def test_a_mounted_secret_says_whom_to_trust_and_who_we_are(login, certificate, tmp_path, monkeypatch):
    login("writer")
    monkeypatch.delenv("TLM_ELASTICSEARCH_CA_FILE")
    monkeypatch.setenv("TLM_ELASTICSEARCH_SECRET", str(tmp_path / "secret"))
    with monkeypatch.context() as pod:
        pod.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
        with pytest.raises(InputError, match=r"correct the Secret .* missing or has no ca.crt.: tlm-elastic.*-writer"):
            preflight(engine="elasticsearch", root=str(tmp_path))
    with pytest.raises(InputError, match="TLS fails there"):  # not mounted: as if it were not named
        preflight(engine="elasticsearch", root=str(tmp_path))
    (tmp_path / "secret").mkdir()
    shutil.copy(certificate, tmp_path / "secret/ca.crt")
    preflight(engine="elasticsearch", root=str(tmp_path))
    login()
    (tmp_path / "secret/api-key").write_text(base64.b64encode(b"nobody:nothing").decode())
    with pytest.raises(InputError, match="does not accept our credentials"):
        preflight(engine="elasticsearch", root=str(tmp_path))


def test_preflight_checks_the_key_of_the_steps_that_search_too(login, certificate, tmp_path, monkeypatch, capsys):
    login("writer")  # in the address, so it holds unless a mounted key takes its place
    monkeypatch.setenv("TLM_ELASTICSEARCH_SECRET", str(tmp_path / "secret"))
    reader = tmp_path / "secret-reader"
    reader.mkdir()
    preflight(engine="elasticsearch", root=str(tmp_path))
    assert "may create and fill indices" in capsys.readouterr().err
    (reader / "api-key").write_text(base64.b64encode(b"nobody:nothing").decode())
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    with pytest.raises(InputError, match=r"does not accept our cred.*mounted at \S+secret-reader \(its api-key\)"):
        preflight(engine="elasticsearch", root=str(tmp_path))
    assert os.environ["TLM_ELASTICSEARCH_SECRET"] == str(tmp_path / "secret")
