"""What is not to be talked to, and what is not to be read: each with how it is tried."""

import http.server
import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import torch
from safetensors.torch import load_file

from pipelines import client
from tests.published import write_bert
from tests.tiny import GLUE, TOPICS
from tests.toys_training import task
from tlm.artifacts.stores import open_store, opened
from tlm.data.corpus.load import load_corpus
from tlm.errors import InputError
from tlm.evaluation.predict.classifier import Classifier
from tlm.retrieval.search import elastic_client
from tlm.training.input.located import model_folder
from tlm.training.stages import load_model

LINK_LOCAL = (
    *("169.254.169.254", "169.254.170.2", "2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "169.16689662"),
    *("169.254.43518", "[::ffff:169.254.169.254]", "[::ffff:a9fe:a9fe]", "[64:ff9b::a9fe:a9fe]", "[fe80::1]"),
    *("[fd00:ec2::254]", "[fd20:ce::254]", "[fd00:c1::a9fe:a9fe]", "[fd00:42::42]", "100.100.100.200", "168.63.129.16"),
    *("user:word@169.254.169.254", "127.0.0.1@169.254.169.254"),
)
ABROAD = (
    *("10.0.0.1:9000", "0.0.0.0:9000", "192.168.1.1", "[2001:db8::1]:9200", "minio:9000", "example.org"),
    *("localhost.example.org", "127.0.0.1.example.org", "user:word@example.org", "127.0.0.1@example.org"),
)
SCHEMES = ("http", "https", "ftp", "gopher", "javascript", "data", "ldap", "jar:http", "s3+http", "S3", "hdfs", "ssh")

Trial = tuple[str, Callable[[], object]]


@contextmanager
def settings(**variables: str) -> Iterator[None]:
    """The environment with these variables, and stores that were opened before forgotten."""
    known = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_DEFAULT_REGION": "us-east-1"}
    with patch.dict(os.environ, known | variables):
        opened.cache_clear()
        try:
            yield
        finally:
            opened.cache_clear()


def refused(trial: Callable[[], object], expected: str = "") -> bool:
    """Whether it is refused in one printable sentence that says what is expected."""
    try:
        trial()
    except InputError as error:
        return expected in str(error) and "\n" not in str(error) and ":word@" not in str(error)
    return False


def with_setting(variable: str, url: str, asking: bool = False, **more: str) -> Callable[[], object]:
    """Open the server that a variable names; S3 is asked something only if `asking`."""

    def reach() -> object:
        with settings(**{variable: url, **more}):
            if variable == elastic_client.URL:
                return elastic_client.connect()
            if variable == "HF_ENDPOINT":
                with model_folder("owner/name") as folder:
                    return folder
            return open_store("s3://bucket/prefix").read("x") if asking else open_store("s3://bucket/prefix")

    return reach


SERVERS = ("AWS_ENDPOINT_URL_S3", elastic_client.URL, "HF_ENDPOINT")


def link_local() -> Iterator[Trial]:
    """Link-local addresses in every notation, for every server that can be set."""
    for host in LINK_LOCAL:
        for scheme in ("http", "https"):
            url = f"{scheme}://{host}"
            listed = {"TLM_HTTP_HOSTS": "169.254.169.254"}
            yield from ((f"{name}={url}", with_setting(name, url, **listed)) for name in SERVERS)
            yield f"--host {url}", lambda url=url: client.find(url)


def plain_http() -> Iterator[Trial]:
    """Servers elsewhere without TLS."""
    for host in ABROAD:
        yield from ((f"{name}=http://{host}", with_setting(name, f"http://{host}")) for name in SERVERS)
        yield f"--host http://{host}", lambda host=host: client.find(f"http://{host}")


def schemes(root: Path) -> Iterator[Trial]:
    """Addresses of other schemes than those that there are, as store, as corpus and as model."""
    for scheme in SCHEMES:
        place = f"{scheme}://example.org/a/b.jsonl"
        yield f"root {place}", lambda place=place: open_store(place)
        yield f"corpus {place}", lambda place=place: load_corpus([place], root=str(root))
        yield f"model {place}", lambda place=place: model_folder(place).__enter__()


def buckets(root: Path) -> Iterator[Trial]:
    """Buckets that are not on the list, as store, as corpus and as model."""
    for bucket in ("other", "mine2", "min", "Mine", "mine.example", "mine,other", "*"):
        for what, place in {
            "root": lambda bucket=bucket: open_store(f"s3://{bucket}/x"),
            "corpus": lambda bucket=bucket: load_corpus([f"s3://{bucket}/c.jsonl"], root=str(root)),
            "model": lambda bucket=bucket: model_folder(f"s3://{bucket}/m").__enter__(),
        }.items():

            def reach(place: Callable[[], object] = place) -> object:
                with settings(TLM_BUCKETS="mine, yours", AWS_ENDPOINT_URL_S3="http://127.0.0.1:1"):
                    return place()

            yield f"{what} s3://{bucket}", reach


def allowed() -> Iterator[Trial]:
    """What must not be refused, so that the above is no refusal of everything."""
    store, nobody = "AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1"
    yield "this machine without TLS", with_setting(store, nobody)
    yield "a listed bucket", with_setting(store, nobody, TLM_BUCKETS="other, bucket")
    yield "this machine's name", with_setting(store, "http://localhost:1")
    yield "a listed host", with_setting(store, "http://a.invalid:1", TLM_HTTP_HOSTS="b.invalid, a.invalid")
    yield "TLS", with_setting(store, "https://a.invalid:1")
    yield "Kubeflow by a port-forward", lambda: client.find("http://localhost:8080")


@contextmanager
def redirecting(status: int) -> Iterator[tuple[str, list[str]]]:
    """A server that sends everybody to another one; its URL, and what that other one was asked."""
    asked: list[str] = []

    class Other(http.server.BaseHTTPRequestHandler):
        def answer(self) -> None:
            asked.append(f"{self.command} {self.path}")
            self.send_response(200)
            self.send_header("X-Elastic-Product", "Elasticsearch")
            self.end_headers()

        do_GET = do_HEAD = do_PUT = do_POST = answer

        def log_message(self, *_: object) -> None: ...

    class First(Other):
        def answer(self) -> None:
            self.send_response(status)
            self.send_header("Location", f"http://localhost:{other.server_port}{self.path}")
            self.send_header("X-Elastic-Product", "Elasticsearch")
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_HEAD = do_PUT = do_POST = answer

    with (
        http.server.ThreadingHTTPServer(("127.0.0.1", 0), Other) as other,
        http.server.ThreadingHTTPServer(("127.0.0.1", 0), First) as first,
    ):
        for server in (other, first):
            threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{first.server_port}", asked
        for server in (other, first):
            server.shutdown()


def models(root: Path) -> Iterator[tuple[str, Callable[[], object], str]]:
    """Models that would run code: beside them, or in pickled weights. Whatever runs makes the file `ran`."""
    plain, examples = root / "plain", task(root)
    write_bert(plain, [*GLUE, *(word for words in TOPICS.values() for word in words)])
    weights = load_file(plain / "model.safetensors")
    code = f"open({str(root / 'ran')!r}, 'w')\nfrom transformers import *\nclass Own(BertConfig): pass\n"
    for name in ("config.json", "tokenizer_config.json"):
        for kind in ("bert", "unheard"):
            folder = root / f"{name}-{kind}"
            _copy(plain, folder)
            told = json.loads((folder / name).read_text())
            classes = ("AutoConfig", "AutoModel", "AutoModelForMaskedLM", "AutoModelForSequenceClassification")
            told["auto_map"] = {**dict.fromkeys(classes, "own.Own"), "AutoTokenizer": ["own.Own", "own.Own"]}
            told |= {"model_type": kind} if name == "config.json" else {"tokenizer_class": "Own"}
            (folder / name).write_text(json.dumps(told))
            (folder / "own.py").write_text(code)
            (folder / "tokenizer.json").unlink()
            yield f"load-model, {folder.name}", lambda f=folder: load_model(str(f), examples, preset="tiny",
                                                                         root=str(root)), "auto_map"  # fmt: skip
            yield f"predict, {folder.name}", lambda f=folder: Classifier(f, "cpu"), "auto_map"
    folder = root / "pickled"
    _copy(plain, folder)
    (folder / "model.safetensors").unlink()
    torch.save({**weights, "more": _Runs(str(root / "ran"))}, folder / "pytorch_model.bin")  # noqa: TID251
    yield "load-model, pickled", lambda: load_model(str(folder), examples, root=str(root)), "from_pretrained"
    yield "predict, pickled", lambda: Classifier(folder, "cpu"), "safetensors"


class _Runs:
    """Pickled, it writes a file when it is read."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return open, (self.path, "w")


def _copy(source: Path, target: Path) -> None:
    target.mkdir()
    for path in source.iterdir():
        (target / path.name).write_bytes(path.read_bytes())
