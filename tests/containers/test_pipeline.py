"""The whole pipeline in containers, with real servers and no other network, against the same run as subprocesses."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3
import docker
import pyarrow.parquet as pq
import pytest
from docker.errors import NotFound
from elasticsearch import Elasticsearch

from tests.conftest import heed_interrupts
from tests.containers.conftest import BUILT, ROOT
from tests.servers.servers import S3Server
from tests.tiny import in_files, write_tiny
from tlm.artifacts.artifact import Artifact
from tlm.artifacts.stores import open_store, opened
from tlm.settings.selectors import BY_VECTORS, SCORED

KINDS = ("corpus", "task", "index", "hits", "subset", "tokenizer", "tokens", "checkpoint", "model", "metrics")
BUCKET = "tlm-containers"
CONNECT = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], 8000), timeout=3)
    print("reached")
except OSError:
    print("not reached")
"""


@pytest.fixture(scope="module")
def environment(inner_elasticsearch: str, inner_s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator:  # type: ignore[type-arg]
    """What leads a run to the servers; a tiny corpus and task are on S3."""
    folder = tmp_path_factory.mktemp("tiny")
    write_tiny(folder)
    values = {
        "TLM_ELASTICSEARCH_URL": inner_elasticsearch,
        "AWS_ENDPOINT_URL_S3": inner_s3.url,
        "TLM_HTTP_HOSTS": ",".join(urlsplit(url).hostname or "" for url in (inner_elasticsearch, inner_s3.url)),
        "AWS_ACCESS_KEY_ID": inner_s3.access,
        "AWS_SECRET_ACCESS_KEY": inner_s3.secret,
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "TLM_THREADS": "1",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in values.items():
            patch.setenv(name, value)
        # These two would choose other kernels and threads here than in the containers, which do not get them.
        for name in (
            "TLM_ELASTICSEARCH_API_KEY_FILE",
            "TLM_ELASTICSEARCH_CA_FILE",
            "AWS_SESSION_TOKEN",
            "OPENBLAS_CORETYPE",
            "OMP_NUM_THREADS",
        ):
            patch.delenv(name, raising=False)
        patch.setenv("TLM_CACHE", str(tmp_path_factory.mktemp("cache")))
        opened.cache_clear()
        store = boto3.client("s3")
        store.create_bucket(Bucket=BUCKET)
        for path in folder.rglob("*.jsonl"):
            store.upload_file(str(path), BUCKET, f"data/{path.relative_to(folder)}")
        yield values
        opened.cache_clear()


def command(root: str, *options: str, **parameters: str) -> list[str]:
    """How a person runs the pipeline, its store at `root`."""
    values = {
        "corpus_paths": f"s3://{BUCKET}/data/corpus.jsonl",
        "corpus_source_field": "source",
        "task_path": f"s3://{BUCKET}/data/task/",
        "index_engine": "elasticsearch",
        "index_name": "containers",
        "run_preset": "tiny",
        "run_arms": "bm25",
        "run_seeds": "3",
        "store_root": root,
    } | parameters
    changes = [item for name, value in values.items() for item in ("--set", f"{name}={value}")]
    return [sys.executable, "-m", "pipelines.run", "local", *options, *changes]


def run(folder: Path, command: list[str], code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a command in `folder`; it must end with `code`."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=1200)
    assert done.returncode == code, f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done


def in_containers(network: str) -> tuple[str, ...]:
    return ("--docker", "--images", str(BUILT), "--network", network)


@contextmanager
def watched(daemon: docker.DockerClient, network: str) -> Iterator[dict[str, Mapping[str, Any]]]:
    """What Docker tells about each container of a network while the block runs."""
    seen: dict[str, Mapping[str, Any]] = {}
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            for container in daemon.containers.list(filters={"network": network}, ignore_removed=True):
                seen.setdefault(container.id, container.attrs)
            time.sleep(0.2)

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield seen
    finally:
        over.set()
        watcher.join()


def contents(root: str, kind: str) -> list[str]:
    store = open_store(root)
    keys = {stored.name.split("/")[1] for stored in store.list(f"{kind}/")}
    found = [Artifact.find(store, kind, key) for key in sorted(keys)]
    return sorted(f"{artifact.details.get('arm', '')} {artifact.content}" for artifact in found if artifact)


def hits(root: str) -> list[list[Any]]:
    """(query, doc, rank, score) of all arms."""
    store = open_store(root)
    keys = {stored.name.split("/")[1] for stored in store.list("hits/")}
    tables = [pq.read_table(Artifact.open(f"{root}/hits/{key}").path("hits.parquet")) for key in sorted(keys)]
    return sorted([list(row.values()) for table in tables for row in table.to_pylist()])


def test_containers_make_what_subprocesses_make(
    environment: dict[str, str],
    images: dict[str, str],
    inner_network: tuple[str, str],
    daemon: docker.DockerClient,
    tmp_path: Path,
) -> None:
    network, _ = inner_network
    here, there = f"s3://{BUCKET}/subprocesses", f"s3://{BUCKET}/containers"
    run(tmp_path, command(here))
    search = Elasticsearch(environment["TLM_ELASTICSEARCH_URL"])
    for index in search.indices.get(index="tlm-*"):  # so that the containers have to fill one of their own
        search.indices.delete(index=index)
    with watched(daemon, network) as seen:
        done = run(tmp_path, command(there, *in_containers(network)))
        report = done.stdout.strip().splitlines()[-1]
        assert Artifact.open(report, "report").uri.startswith(there)
        values = {"model": report, "source": f"s3://{BUCKET}/data/task/t*.jsonl", "to": f"s3://{BUCKET}/labels"}
        given = [item for name, value in values.items() for item in ("--set", f"predict_{name}={value}")]
        local = [sys.executable, "-m", "pipelines.run", "local", "--pipeline", "predict"]
        labelled = run(tmp_path, [*local, *in_containers(network), *given])
    assert f"files written to s3://{BUCKET}/labels: 2; there already: 0" in labelled.stderr
    assert hits(here) == hits(there) != []
    different = [kind for kind in KINDS if contents(here, kind) != contents(there, kind) or not contents(here, kind)]
    assert different == []
    assert len(contents(there, "metrics")) == 1 + 5  # linear; static, encoder, and three mixtures
    assert len(seen) >= 10  # some end too soon to be seen
    for container in seen.values():
        assert hardening(container) == {
            "ReadonlyRootfs": True,
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges"],
            "Privileged": False,
            "NetworkMode": network,
            "User": f"{os.getuid() or 65532}:{os.getgid() or 65532}",
            "Networks": [network],
        }
    assert {container["Config"]["Image"] for container in seen.values()} == {images["data"], images["train"]}


def test_two_pods_load_a_corpus_in_four_parts(
    environment: dict[str, str], images: dict[str, str], inner_network: tuple[str, str], tmp_path: Path
) -> None:
    """Each with two processes, on a read-only file system; all steps after them, selectors too, find what one makes."""
    write_tiny(tmp_path)
    for name, text in in_files(tmp_path, 4).items():
        boto3.client("s3").put_object(Bucket=BUCKET, Key=f"parts/{name}", Body=text.encode())
    arms = ",".join(("bm25", *SCORED, *BY_VECTORS))
    values = {"corpus_paths": f"s3://{BUCKET}/parts/", "index_name": "parts", "run_arms": arms}
    here, there = f"s3://{BUCKET}/one", f"s3://{BUCKET}/several"
    run(tmp_path, command(here, "--pipeline", "shallow", **values))
    options = ("--pipeline", "shallow", "--data-pods", "2", *in_containers(inner_network[0]))
    run(tmp_path, command(there, *options, **values))
    different = [kind for kind in KINDS if contents(here, kind) != contents(there, kind)]
    assert different == []
    assert len(contents(there, "corpus")) == 1
    assert len(contents(there, "hits")) == arms.count(",") + 1


def hardening(container: Mapping[str, Any]) -> dict[str, Any]:
    host = container["HostConfig"]
    names = ("ReadonlyRootfs", "CapDrop", "SecurityOpt", "Privileged", "NetworkMode")
    networks = list(container["NetworkSettings"]["Networks"])
    return {**{name: host[name] for name in names}, "User": container["Config"]["User"], "Networks": networks}


def test_the_network_leads_nowhere_else(
    images: dict[str, str], inner_network: tuple[str, str], daemon: docker.DockerClient
) -> None:
    """A server outside is reached from its own network, and not from the inner one."""
    listen = ["python3", "-m", "http.server", "--directory", "/opt/tlm/share"]
    server = daemon.containers.run(images["data"], listen, detach=True, auto_remove=True)

    def said(network: str) -> str:
        reach = ["python3", "-c", CONNECT, server.attrs["NetworkSettings"]["IPAddress"]]
        return daemon.containers.run(images["data"], reach, network=network, remove=True).decode().strip()

    try:
        deadline = time.monotonic() + 30
        server.reload()
        while said("bridge") != "reached" and time.monotonic() < deadline:
            time.sleep(0.5)
        assert said("bridge") == "reached"
        assert said(inner_network[0]) == "not reached"
    finally:
        server.kill()


def test_a_failing_container_ends_the_run_with_its_own_sentence(
    environment: dict[str, str], images: dict[str, str], inner_network: tuple[str, str], tmp_path: Path
) -> None:
    options = in_containers(inner_network[0])
    done = run(tmp_path, command(f"s3://{BUCKET}/failing", *options, run_preset="tinny"), code=2)
    assert "did you mean 'tiny'?" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_containers_cannot_see_is_said_before_any_work(
    images: dict[str, str], inner_network: tuple[str, str], tmp_path: Path
) -> None:
    done = run(tmp_path, command("artifacts", *in_containers(inner_network[0])), code=2)
    assert "parameter 'store_root': containers do not see 'artifacts' of this machine" in done.stderr
    done = run(tmp_path, command(f"s3://{BUCKET}/x", *in_containers("no-such-network")), code=2)
    assert "Docker has no network 'no-such-network'" in done.stderr


def test_an_interrupted_run_leaves_no_container_behind(
    environment: dict[str, str],
    images: dict[str, str],
    inner_network: tuple[str, str],
    daemon: docker.DockerClient,
    tmp_path: Path,
) -> None:
    network, _ = inner_network
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    with watched(daemon, network) as seen:
        whole = command(f"s3://{BUCKET}/interrupted", *in_containers(network))
        running = subprocess.Popen(
            whole, cwd=tmp_path, env=variables, stderr=subprocess.DEVNULL, preexec_fn=heed_interrupts
        )
        while not seen and running.poll() is None:
            time.sleep(0.1)
        running.send_signal(signal.SIGINT)
        running.wait(60)
    assert seen
    for name in seen:
        with pytest.raises(NotFound):
            daemon.containers.get(name)


def test_a_signal_ends_the_containers_of_a_loop(
    images: dict[str, str], inner_network: tuple[str, str], tmp_path: Path
) -> None:
    (begun := tmp_path / "begun").mkdir()
    begun.chmod(0o777)
    naps = [sys.executable, "-m", "tests.pipelines_cli.naps", str(tmp_path), str(begun)]
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    running = subprocess.Popen(
        [*naps, images["data"], inner_network[0]], env=variables, stderr=subprocess.PIPE, preexec_fn=heed_interrupts
    )
    while len(list(begun.iterdir())) < 2:
        assert running.poll() is None
        time.sleep(0.1)
    running.send_signal(signal.SIGINT)
    _, error = running.communicate(timeout=40)  # a nap takes 60 seconds
    assert running.returncode == 130, error
    assert len(list(begun.iterdir())) == 2
    assert b"Traceback" not in error
