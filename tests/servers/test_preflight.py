"""Preflight against real servers and a folder: what it says when all is well, and each thing that can be wrong."""

from pathlib import Path

import pytest

from tests.servers.faulty import LOST, Answer, faulty
from tlm.artifacts.stores import open_store, opened
from tlm.errors import InputError
from tlm.runs.preflight import check_run, preflight
from tlm.settings.options import Pods


def test_all_is_well_on_s3_and_elasticsearch(s3_root, elasticsearch_url, monkeypatch, capsys):
    monkeypatch.setenv("TLM_ELASTICSEARCH_URL", elasticsearch_url)
    preflight(engine="elasticsearch", root=s3_root)
    said = capsys.readouterr().err
    assert f"store {s3_root}: can be written to" in said
    assert "Elasticsearch: may create and fill indices" in said
    assert "warning" not in said
    assert list(open_store(s3_root).list("")) == []


def test_a_local_folder_and_the_embedded_engine_need_no_server(tmp_path, monkeypatch):
    monkeypatch.delenv("TLM_ELASTICSEARCH_URL", raising=False)
    preflight(root=str(tmp_path / "new"))
    assert [path for path in (tmp_path / "new").rglob("*") if path.is_file()] == []


def test_a_bucket_that_is_not_there(s3_root):
    with pytest.raises(InputError, match="no-such-bucket"):
        preflight(root="s3://no-such-bucket/prefix")


def test_an_answer_that_was_lost_does_not_make_a_store_read_only(s3_root, s3_server, monkeypatch):
    """The file is there after the first try, so the second one is refused."""
    lost = [LOST]
    with faulty(s3_server.url, lambda request: lost.pop() if lost and request.method == "PUT" else None) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", url)
        opened.cache_clear()
        preflight(root=s3_root)
        assert (lost, list(open_store(s3_root).list(""))) == ([], [])


def test_a_key_that_may_not_list_is_refused_before_the_run_and_leaves_nothing(s3_root, s3_server, monkeypatch):
    """Amazon does not tell it that a file is absent, so the first step would be refused while reading."""
    no = Answer(403, b"<Error><Code>AccessDenied</Code></Error>")
    with faulty(s3_server.url, lambda request: no if "list-type" in request.path else None) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", url)
        opened.cache_clear()
        with pytest.raises(InputError, match=r"refused with AccessDenied while listing preflight/.*; check the cred"):
            preflight(root=s3_root)
        with pytest.raises(InputError, match="refused with AccessDenied while listing; check the credentials"):
            list(open_store(s3_root).list(""))
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3_server.url)
    opened.cache_clear()
    assert list(open_store(s3_root).list("")) == []


def test_a_store_that_forgets_the_condition_is_warned_of(tmp_path, monkeypatch, capsys):
    from tlm.artifacts.stores.local import LocalStore

    def create(self, name: str, data: bytes) -> bool:
        self.write(name, data)
        return True

    monkeypatch.setattr(LocalStore, "create", create)
    preflight(root=str(tmp_path / "careless"))
    assert "ignores If-None-Match" in capsys.readouterr().err


def test_too_little_disk_says_how_much_there_is(tmp_path):
    with pytest.raises(InputError, match=r"GiB free, but 1e\+09 GiB are needed"):
        preflight(free_gib=1e9, root=str(tmp_path))


def test_elasticsearch_wanted_but_not_named(tmp_path, monkeypatch):
    monkeypatch.delenv("TLM_ELASTICSEARCH_URL", raising=False)
    with pytest.raises(InputError, match="ConfigMap tlm"):
        preflight(engine="elasticsearch", root=str(tmp_path))


def test_an_unknown_engine(tmp_path):
    with pytest.raises(InputError, match="engine 'lucene' is unknown"):
        check_run(Pods(), engine="lucene", root=str(tmp_path))


def test_a_store_that_cannot_be_written_to_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"file/store cannot be written to: .+; name another one"):
        preflight(root=str(tmp_path / "file" / "store"))
