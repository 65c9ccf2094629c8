"""The image `serve`: what a container of it answers, and how it ends."""

import json
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from shutil import copytree
from typing import Any

import docker
import pytest
from docker.models.containers import Container

from tests.toys_training import checkpoint, model, task
from tlm.artifacts.artifact import Artifact
from tlm.evaluation.predict.predict import predict
from tlm.evaluation.score.baseline import baseline
from tlm.evaluation.score.evaluate import evaluate
from tlm.evaluation.score.mix import mix
from tlm.serving.export_onnx import export_onnx

TEXTS = ["the court and the judge", "a ship", "gene protein cell", "Ünknown 🐟"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A mixture of an ONNX encoder and a linear model, as KServe lays it down."""
    root = tmp_path_factory.mktemp("serve")
    plain = task(root)
    encoder = model(root, checkpoint(root, plain), plain).uri
    mixed = mix([evaluate(encoder, plain, device="cpu"), baseline(plain)])
    copied: Path = copytree(Artifact.open(export_onnx(mixed)).path("model"), root / "model-copied")
    for path in (copied, *copied.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return copied


@pytest.fixture
def server(images: dict[str, str], daemon: docker.DockerClient, folder: Path) -> Iterator[Container]:
    """A container that serves the model, without a capability, without a place to write to."""
    container = daemon.containers.run(
        images["serve"], ["/mnt/models", "--host", "0.0.0.0", "--port", "8080"], detach=True, read_only=True,
        cap_drop=["ALL"], security_opt=["no-new-privileges"], ports={"8080/tcp": ("127.0.0.1", None)},
        volumes={str(folder): {"bind": "/mnt/models", "mode": "ro"}}, environment={"TLM_THREADS": "1"},
        mem_limit="512m",
    )  # fmt: skip
    try:
        for _ in range(300):
            container.reload()
            assert container.status != "exited", container.logs().decode()
            try:
                ask(container, "/v2/health/ready")
                break
            except OSError:
                time.sleep(0.1)
        yield container
    finally:
        container.remove(force=True)


def ask(container: Container, path: str, body: Any = None) -> Any:
    """The answer to a request: a JSON value, or text."""
    port = container.attrs["NetworkSettings"]["Ports"]["8080/tcp"][0]["HostPort"]
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{port}{path}", data), timeout=60) as answer:
        text = answer.read().decode()
        return json.loads(text) if "json" in answer.headers["content-type"] else text


def test_it_answers_as_predict_does(server: Container, folder: Path) -> None:
    answer = ask(server, "/v1/models/model:predict", {"instances": TEXTS})
    expected = list(predict(str(folder), TEXTS, device="cpu"))
    for found, row in zip(answer["predictions"], expected, strict=True):
        assert found["label"] == row["label"]
        assert found["probabilities"] == pytest.approx(row["probabilities"], abs=1e-4)


def test_it_is_nobody_and_writes_nothing(server: Container) -> None:
    ask(server, "/v1/models/model:predict", {"instances": TEXTS})
    assert server.exec_run(["python3", "-c", "import os; print(os.getuid())"]).output.split() == [b"65532"]
    assert server.exec_run(["python3", "-c", "open('/tmp/x', 'w')"]).exit_code == 1
    assert server.diff() in (None, [{"Path": "/mnt", "Kind": 0}, {"Path": "/mnt/models", "Kind": 1}])
    assert server.logs().decode().splitlines() == [
        "serve: /mnt/models on cpu, at http://0.0.0.0:8080/v1/models/model:predict"
    ]


def test_sigterm_lets_it_finish_what_it_has_begun(server: Container) -> None:
    answers: list[Any] = []
    body = {"instances": ["tide " * 60] * 1000}
    asking = threading.Thread(target=lambda: answers.append(ask(server, "/v1/models/model:predict", body)))
    asking.start()
    for _ in range(200):
        if "tlm_waiting_texts 1000.0" in ask(server, "/metrics"):
            break
        time.sleep(0.01)
    server.stop(timeout=60)
    asking.join()
    assert len(answers[0]["predictions"]) == 1000
    assert server.wait()["StatusCode"] == 0
