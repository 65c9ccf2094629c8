"""What is special about a store on S3: its client, its downloads, and what it says when something is wrong."""

import os
import signal
import time
from functools import partial
from pathlib import Path

import boto3
import pytest
from botocore.retries import standard

from tests.making import everything, expected, flip, make
from tests.servers import servers
from tests.servers.faulty import LATE_SECONDS, SLOW, Answer, Request, faulty
from tlm.artifacts.artifact import Artifact
from tlm.artifacts.stores import open_store, s3
from tlm.artifacts.stores.s3 import S3Store
from tlm.errors import InputError, Interrupted


@pytest.fixture
def store(s3_root):
    return S3Store(s3_root)


def download_of(made: Artifact, logical: str) -> Path:
    assert isinstance(made.store, S3Store)
    entry = next(entry for entry in made.entries() if entry.logical == logical)
    return made.store.cache / made.folder_name / entry.name


def test_the_server_itself_refuses_to_create_what_is_there(store):
    """Two clients, as of two machines: the condition is checked by the server and not by us."""
    other = S3Store(store.root)
    assert store.read("once") is other.read("once") is None
    assert store.create("once", b"first")
    assert not other.create("once", b"second")
    assert other.read("once") == b"first"


def test_roots_in_one_bucket_are_apart(s3_root):
    made = make(f"{s3_root}/a")
    assert list(open_store(f"{s3_root}/b").list("")) == []
    with pytest.raises(InputError, match="no finished hits here"):
        Artifact.open(made.uri.replace("/a/", "/b/"))


def test_a_whole_bucket_may_be_the_root(s3_root):
    bucket = s3_root.removesuffix("/prefix")
    made = make(f"{bucket}/")
    assert made.uri == f"{bucket}/{made.folder_name}"
    assert everything(Artifact.open(made.uri)) == expected()


def test_large_files_survive_the_way_in_parts(store, tmp_path):
    data = bytes(range(256)) * (80 * 1024)  # 20 MiB: boto3 sends more than 8 MiB in parts
    source = tmp_path / "large"
    source.write_bytes(data)
    store.add("large", source)
    assert store.local("large").read_bytes() == data


def test_a_file_is_downloaded_once(s3_root):
    made = make(s3_root)
    path = made.path("numbers.txt")
    assert path == download_of(made, "numbers.txt")
    key = f"{made.store.prefix}{made.folder_name}/{path.name}"
    made.store.client.delete_object(Bucket=made.store.bucket, Key=key)  # by somebody else: the copy stays
    assert made.path("numbers.txt").read_bytes() == expected()["numbers.txt"]
    made.store.delete(f"{made.folder_name}/{path.name}")
    assert not path.exists()


def test_what_a_killed_download_leaves_is_swept_by_the_next(store, monkeypatch):
    store.write("x", b"0123")

    def killed(name: str, part: Path, size: int | None) -> None:
        part.write_bytes(b"01")
        os.kill(os.getpid(), signal.SIGKILL)

    if (child := os.fork()) == 0:
        monkeypatch.setattr(store, "_download", killed)
        store.local("x")
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    assert any(path.name == "part" for path in store.cache.rglob("*"))
    assert store.local("x").read_bytes() == b"0123"
    assert [path for path in store.cache.rglob("*") if path.is_file()] == [store.cache / "x"]


@pytest.mark.parametrize("damage", [flip, lambda data: b""], ids=["bit flip", "empty"])
def test_a_damaged_download_is_fetched_again(s3_root, damage):
    made = make(s3_root)
    download = download_of(made, "numbers.txt")
    download.parent.mkdir(parents=True)
    download.write_bytes(damage(expected()["numbers.txt"]))
    assert made.path("numbers.txt").read_bytes() == expected()["numbers.txt"]


def test_a_bucket_that_is_not_there_is_said(store):
    lost = S3Store(f"{store.root.removesuffix('/prefix')}-lost/prefix")
    for use in (lambda: lost.read("x"), lambda: lost.create("x", b""), lambda: list(lost.list(""))):
        with pytest.raises(InputError, match=r"-lost/prefix: the bucket does not exist .*make it first"):
            use()


PAGE = b"<html><body><p>Please log in</p></body></html>"


@pytest.mark.parametrize("status", [200, 404])
def test_a_page_of_a_proxy_is_no_answer(s3_root, s3_server, monkeypatch, tmp_path, status):
    """Each request gets one, and is repeated: a page is no file, no list, no success, and no file that is missing."""
    met = set[tuple[str, str]]()

    def trouble(request: Request) -> Answer | None:
        known = not met or (request.method, request.path) in met
        met.add((request.method, request.path))
        return None if known else Answer(status, PAGE)

    (tmp_path / "source").write_bytes(b"source")
    with faulty(s3_server.url, trouble) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", url)
        store = S3Store(s3_root)
        assert list(store.list("")) == []
        store.add("a/added", tmp_path / "source")
        store.write("a/written", b"written")
        assert store.create("a/created", b"created")
        assert not store.create("a/created", b"other")
        assert [one.name for one in store.list("a/")] == ["a/added", "a/created", "a/written"]
        assert (store.read("a/written"), store.read("a/none")) == (b"written", None)
        assert store.local("a/added").read_bytes() == b"source"
        assert store.local_ranges("a/created", 7, ((1, 3),)).read_bytes() == b"\0re\0\0\0\0"
    assert len(met) > 8


def test_a_first_answer_that_is_no_answer_of_s3_is_a_setting_at_fault(s3_root, s3_server, monkeypatch):
    """As of the console of MinIO, which answers each request with a page."""
    with faulty(s3_server.url, lambda _: Answer(200, PAGE)) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", url)
        with pytest.raises(InputError, match=r"has no ETag, so it is not that of an S3 server; .*AWS_ENDPOINT_URL_S3"):
            S3Store(s3_root).read("x")


@pytest.mark.parametrize(
    ("code", "status", "times"),  # Amazon's client repeats the first one eight times
    [("RequestTimeout", 400, 9), ("IncompleteBody", 400, 1), ("BadDigest", 400, 1), ("OperationAborted", 409, 1)],
)
def test_a_request_that_did_not_arrive_whole_is_repeated(s3_root, s3_server, monkeypatch, code, status, times):
    """Neither our keys nor our data are at fault."""
    monkeypatch.setattr(standard.ExponentialBackoff, "delay_amount", lambda *_: 0)
    monkeypatch.setattr(s3, "PAUSES", (0, 0))
    answer = Answer(status, f"<Error><Code>{code}</Code></Error>".encode())
    left = [answer] * times
    with faulty(s3_server.url, lambda request: left.pop() if left and request.method == "PUT" else None) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", url)
        store = S3Store(s3_root)
        store.write("x", b"written")
        assert (store.read("x"), left) == (b"written", [])
        left += [answer] * 50
        with pytest.raises(Interrupted, match=f"answered {status} {code} while writing x; repeat to resume"):
            store.write("x", b"again")


def test_an_object_that_is_missing_is_not_asked_for_again(store):
    """Amazon's client asks for the size first, by HEAD, and a 404 to that has no code."""
    store.write("x", b"0123")
    store.client.meta.config.response_checksum_validation = "when_supported"  # as on Amazon's S3
    assert not store.local("none").exists()
    assert store.local("x").read_bytes() == b"0123"


def test_what_arrives_in_part_is_not_taken_for_the_whole(store, monkeypatch):
    """Even where the headers say that it is: no digest tells that of a corpus or task."""
    monkeypatch.setattr(s3, "PAUSES", (0,))
    store.write("x", b"0123")
    for read in (lambda: store.local("x", 8), lambda: store.local_ranges("x", 8, ((0, 8),))):
        with pytest.raises(Interrupted, match="4 read, but total bytes expected is 8"):
            read()
        assert not [path for path in store.cache.rglob("*") if path.is_file()]
    assert store.local("x", 4).read_bytes() == b"0123"


@pytest.mark.parametrize(
    ("name", "value"), [("AWS_SECRET_ACCESS_KEY", "not-the-secret"), ("AWS_ACCESS_KEY_ID", "nobody")]
)
def test_wrong_credentials_are_said(s3_root, monkeypatch, tmp_path, name, value):
    monkeypatch.setenv(name, value)
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)  # it remembers credentials
    store = S3Store(s3_root)
    (tmp_path / "source").write_bytes(b"1")
    for use in (lambda: store.read("x"), lambda: store.add("x", tmp_path / "source"), lambda: list(store.list(""))):
        with pytest.raises(InputError, match=r"refused with \w+ while .*check the credentials and"):
            use()
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    with pytest.raises(InputError, match=r"check the credentials \(the Secret tlm-s3\) and the bucket's policy"):
        store.read("x")


def test_missing_credentials_are_said(s3_root, monkeypatch, tmp_path):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    with pytest.raises(InputError, match="no credentials found while reading x; set AWS_ACCESS_KEY_ID"):
        S3Store(s3_root).read("x")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")  # in a pod, nobody can set variables
    with pytest.raises(InputError, match="no credentials found while reading x; make the Secret tlm-s3 with keys"):
        S3Store(s3_root).read("x")


def test_a_server_that_never_answered_is_a_setting_at_fault(s3_root, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{servers.free_port()}")
    started = time.monotonic()
    with pytest.raises(InputError, match=r"not reachable while reading x: .*check AWS_ENDPOINT_URL_S3"):
        S3Store(s3_root).read("x")
    assert time.monotonic() - started < 120


def test_a_server_without_tls_is_said_to_have_none(s3_root, s3_server, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3_server.url.replace("http:", "https:"))
    with pytest.raises(InputError, match=r"not reachable while reading x: .* has no TLS: give an http:// address"):
        S3Store(s3_root).read("x")


def test_a_server_that_goes_away_is_an_interruption(s3_root, monkeypatch):
    monkeypatch.setattr(s3, "PAUSES", (0, 0.1))
    with servers.s3() as short_lived:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", short_lived.url)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", short_lived.access)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", short_lived.secret)
        monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)  # it remembers credentials
        boto3.client("s3").create_bucket(Bucket="here")
        store = S3Store("s3://here")
        assert store.read("x") is None
    with pytest.raises(Interrupted, match=r"failed while creating x: .*repeat to resume"):
        store.create("x", b"1")


def test_a_server_that_falls_silent_is_not_waited_for_again_and_again(s3_root, s3_server, monkeypatch):
    """boto3 itself waits a minute for each of its nine tries."""
    monkeypatch.setattr(standard.ExponentialBackoff, "delay_amount", lambda *_: 0)
    monkeypatch.setattr(s3, "Config", partial(s3.Config, read_timeout=LATE_SECONDS / 20))
    monkeypatch.setattr(s3, "PAUSES", (0,) * len(s3.PAUSES))
    asked: list[Request] = []
    with faulty(s3_server.url, lambda request: asked.append(request) or (SLOW if len(asked) > 1 else None)) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", url)
        store = S3Store(s3_root)
        assert store.read("x") is None
        with pytest.raises(Interrupted, match=r"failed while reading x: Read timeout .*; repeat to resume"):
            store.read("x")
    assert len(asked) == 10


@pytest.mark.parametrize(
    ("root", "name", "value", "sentence"),
    [
        ("s3://", "", "", "names no bucket"),
        ("s3://here//there", "", "", "has an empty part, '.' or '..', which servers read differently; remove it"),
        ("s3://here/../there/.", "", "", "has an empty part"),
        ("s3://here", "AWS_ENDPOINT_URL_S3", "127.0.0.1:7070", "the settings for S3 do not fit: .*AWS_ variables"),
        ("s3://here", "AWS_PROFILE", "nobody", "the settings for S3 do not fit: .*nobody"),
        ("s3://here", "AWS_SESSION_TOKEN", "a-key\n", "^s3://here: AWS_SESSION_TOKEN has a line end in it, [^-]+$"),
    ],
)
def test_settings_that_cannot_be_are_said(s3_root, monkeypatch, root, name, value, sentence):
    if name:
        monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match=sentence):
        S3Store(root)
