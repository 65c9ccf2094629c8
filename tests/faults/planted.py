"""Secrets that are planted in a run, and a search for them in all that it wrote and said."""

import base64
import gzip
import hashlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import boto3
import pyarrow as pa
import pyarrow.parquet as pq

from tests.faults.row import HOME
from tests.servers import servers
from tests.tiny import write_tiny
from tlm.data.reading import zstd

BUCKET, NOBODY, ELASTICSEARCH = "tlm-planted", "http://127.0.0.1:1", "TLM_ELASTICSEARCH_URL"
SECRETS = {
    "S3 key": "planted/S3+key/0123456789abcdefghij=",
    "S3 session token": "planted/S3+session/klmnopqrstuvwxyz==",
    "Elasticsearch API key": base64.b64encode(b"plantedid:planted-api-key-3141592653").decode(),
    "password of a URL": "planted-password-2718281828",
    "Hub token": "hf_plantedPLANTEDplantedPLANTED0123",
    "Kubeflow token": "planted.kubeflow.token-1618033988",
}


def forms(secret: str) -> set[bytes]:
    """How a secret may stand in a file: as it is, in a URL, in JSON, or in base64 (what a Basic login is)."""
    raw = secret.encode()
    shifted = (base64.b64encode(b"x" * shift + raw)[4 if shift else 0 : -4] for shift in range(3))
    return {raw, quote(secret, safe="").encode(), quote(secret).encode(), json.dumps(secret)[1:-1].encode(), *shifted}


def leaks(data: bytes, secrets: Sequence[str] = tuple(SECRETS)) -> list[str]:
    """Which of the secrets stand in these bytes, also where they are packed or a parquet file."""
    layers = [data]
    if data.startswith(b"\x1f\x8b"):
        layers.append(gzip.decompress(data))
    elif data.startswith(b"\x28\xb5\x2f\xfd"):
        layers.append(zstd.decompress(data))
    elif data.startswith(b"PAR1"):
        table = pq.read_table(io.BytesIO(data))
        layers.append(json.dumps(table.to_pylist(), default=str, ensure_ascii=False).encode(errors="replace"))
        layers.append(pa.BufferReader(table.schema.serialize()).read())
    return [name for name in secrets if any(form in layer for form in forms(SECRETS[name]) for layer in layers)]


@dataclass
class Run:
    """A place in which programs run with the secrets in their environment; all that they said is kept."""

    folder: Path
    environment: dict[str, str]
    root: str
    said: list[tuple[str, bytes]] = field(default_factory=list)

    def program(self, module: str, *arguments: str, **variables: str) -> int:
        """Run ``python -m module``; its exit code."""
        done = subprocess.run(
            [sys.executable, "-m", module, *arguments], cwd=self.folder, env=self.environment | variables,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=900,
        )  # fmt: skip
        self.said.append((f"{module} {' '.join(arguments)}", done.stdout))
        return done.returncode

    def pipeline(self, *arms: str, **parameters: str) -> int:
        """The whole pipeline on tiny data, its store on S3."""
        values = {
            "corpus_paths": f"{self.folder}/data/corpus.jsonl", "task_path": f"{self.folder}/data/task",
            "index_engine": "embedded", "run_preset": "tiny", "run_arms": ",".join(arms), "store_root": self.root,
            "run_overrides": "train.steps=10", **parameters,
        }  # fmt: skip
        return self.program("pipelines.run", "local", *(f"--set={name}={value}" for name, value in values.items()))

    def written(self) -> Iterator[tuple[str, bytes]]:
        """All files here and in the bucket, and all that was said; not the file that holds the API key itself."""
        for path in sorted(self.folder.rglob("*")):
            if path.is_file() and not path.is_symlink() and path.name != "api-key":
                yield str(path.relative_to(self.folder)), path.read_bytes()
        client = boto3.client("s3", endpoint_url=self.environment["AWS_ENDPOINT_URL_S3"], region_name="us-east-1",
                              aws_access_key_id="tlm-tests", aws_secret_access_key=SECRETS["S3 key"])  # fmt: skip
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET):
            for item in page.get("Contents", []):
                yield item["Key"], client.get_object(Bucket=BUCKET, Key=item["Key"])["Body"].read()
        yield from self.said


@contextmanager
def planted(folder: Path, elasticsearch_url: str = NOBODY) -> Iterator[Run]:
    """A run's place in `folder`, with an S3 server whose key is planted, and the other secrets beside it.

    `elasticsearch_url` gets the user `writer` and the planted password.
    """
    write_tiny(folder / "data", documents=200, train=30, held_out=9)
    (folder / "api-key").write_text(SECRETS["Elasticsearch API key"])
    (folder / "temporary").mkdir()
    with servers.s3(ROOT_SECRET_KEY=SECRETS["S3 key"]) as server:
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "TLM_", "HF_"))},
            "AWS_ENDPOINT_URL_S3": server.url, "AWS_ACCESS_KEY_ID": server.access, "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_SECRET_ACCESS_KEY": SECRETS["S3 key"], "AWS_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true",
            ELASTICSEARCH: with_login(elasticsearch_url), "HF_TOKEN": SECRETS["Hub token"],
            "HF_HOME": f"{folder}/hub", "HF_HUB_OFFLINE": "1", "KFP_EXISTING_TOKEN": SECRETS["Kubeflow token"],
            "TMPDIR": f"{folder}/temporary", "TLM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(HOME),
        }  # fmt: skip
        boto3.client("s3", endpoint_url=server.url, region_name="us-east-1", aws_access_key_id=server.access,
                     aws_secret_access_key=SECRETS["S3 key"]).create_bucket(Bucket=BUCKET)  # fmt: skip
        yield Run(folder, environment, f"s3://{BUCKET}/store")


@contextmanager
def elasticsearch() -> Iterator[str]:
    """The URL of an Elasticsearch that knows the user `writer` with the planted password, and nobody else."""

    def prepare(home: Path) -> None:
        digest = base64.b64encode(hashlib.sha1(SECRETS["password of a URL"].encode()).digest()).decode()
        (home / "config/roles.yml").write_text("writes: {indices: [{names: ['tlm-*'], privileges: [all]}]}\n")
        (home / "config/users").write_text(f"writer:{{SHA}}{digest}\n")
        (home / "config/users_roles").write_text("writes:writer\n")

    off = ("autoconfiguration.enabled", "transport.ssl.enabled", "http.ssl.enabled")
    settings = ("xpack.security.enabled=true", *(f"xpack.security.{name}=false" for name in off))
    with servers.elasticsearch(*settings, heap="512m", prepare=prepare) as server:
        yield str(getattr(server, "url", server))


def with_login(url: str) -> str:
    """`url` with the planted password in it."""
    return url.replace("://", f"://writer:{SECRETS['password of a URL']}@")


def failing(run: Run, some: bool = False) -> Iterator[tuple[str, int]]:
    """Commands that fail with a secret at hand, all or some of them, each with the exit code it ended with."""
    corpus, login = f"{run.folder}/data/corpus.jsonl", with_login("https://no-such-host.invalid:9200")
    key, server = {"TLM_ELASTICSEARCH_API_KEY_FILE": str(run.folder / "api-key")}, run.environment[ELASTICSEARCH]
    run.environment[ELASTICSEARCH] = with_login(NOBODY)
    run.program("tlm.cli", "load-task", f"{run.folder}/data/task", "--root", run.root)
    task = run.said[-1][1].decode().split()[-1]
    cases: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
        "nobody at the address": (("preflight", "--engine", "elasticsearch"), {}),
        "no such host": (("preflight", "--engine", "elasticsearch"), {ELASTICSEARCH: login}),
        "a refused key": (
            ("preflight", "--engine", "elasticsearch"),
            {**key, ELASTICSEARCH: server.replace(with_login("://")[3:], "")},
        ),
        "login and key at once": (("preflight", "--engine", "elasticsearch"), key),
        "a slash in the password": (
            ("preflight", "--engine", "elasticsearch"),
            {ELASTICSEARCH: login.replace("planted-", "a/planted-")},
        ),
        "a password in S3's address": (
            ("ls",), {"AWS_ENDPOINT_URL_S3": with_login(run.environment["AWS_ENDPOINT_URL_S3"])},
        ),
        "a refused session token": (("ls",), {"AWS_SESSION_TOKEN": SECRETS["S3 session token"]}),
        "a wrong region": (("ls",), {"AWS_REGION": "x y", "AWS_DEFAULT_REGION": "x y"}),
        "a password in a corpus' address": (("load-corpus", with_login("https://example.org/c.jsonl")), {}),
        "a password in a bucket's": (("load-corpus", with_login("s3://bucket/c.jsonl")), {}),
        "a password in the root": (("load-corpus", corpus, "--root", with_login("s3://bucket/x")), {}),
        "a model that is not there": (("load-model", "nobody/nothing", task), {}),
        "a Hub with a password": (("load-model", "a/b", task), {"HF_ENDPOINT": with_login("http://example.org")}),
    }  # fmt: skip
    for name, (arguments, variables) in list(cases.items())[:: 4 if some else 1]:
        yield name, run.program("tlm.cli", *arguments, **{"TLM_ROOT": run.root, **variables})
    for name, value in {"a password in a parameter": with_login("https://example.org/task"),
                        "a key in a parameter": SECRETS["S3 key"]}.items():  # fmt: skip
        yield name, run.pipeline("bm25", task_path=value)
    yield "a failing step of the pipeline", run.pipeline("bm25", index_engine="elasticsearch")
    if some:
        return
    host = ("--host", "http://127.0.0.1:1", "--call-timeout", "1")
    yield "Kubeflow out of reach", run.program("pipelines.run", "submit", *host)
