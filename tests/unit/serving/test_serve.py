"""`tlm serve`: a real server, asked over HTTP, beside `tlm predict`."""

import asyncio
import http.client
import json
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvicorn
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from tests.toys import make_task
from tests.toys_training import TOPICS, checkpoint, model, rows, task
from tlm.cli.command import flat
from tlm.cli.upkeep import download
from tlm.errors import InputError, Interrupted
from tlm.evaluation.predict.models import located, trained
from tlm.evaluation.predict.predict import predict
from tlm.evaluation.predict.predictor import open_predictor
from tlm.evaluation.score.baseline import baseline, static
from tlm.evaluation.score.evaluate import evaluate
from tlm.evaluation.score.mix import mix
from tlm.serving import protocol
from tlm.serving.app import MOST_CHARACTERS, MOST_DROPPED, Batcher, Bodies, Timed
from tlm.serving.export_onnx import export_onnx
from tlm.serving.protocol import Limits
from tlm.serving.serve import serve

ROOT = Path(__file__).parents[3]
TEXTS = ["the court and the judge", "a ship", "gene protein cell", "tide " * 300, "Ünknown 🐟"]
KINDS = ("encoder", "onnx", "linear", "mixture", "pairs", "numbers")


class Running:
    """A server in a process of its own."""

    def __init__(self, uri: str, *options: str) -> None:
        """Start it and wait until it is ready."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        command = [sys.executable, "-m", "tlm.cli", "serve", uri, "--port", str(self.port), *options]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "TLM_THREADS": "1"}
        self.process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
        for _ in range(1800):
            try:
                self.ask("/v2/health/ready")
                return
            except OSError:
                assert self.process.poll() is None, self.process.stderr and self.process.stderr.read()
                time.sleep(0.1)
        self.process.kill()
        raise AssertionError("not ready after three minutes")

    def ask(self, path: str, body: Any = None, raw: bytes | None = None) -> tuple[int, Any]:
        """The status and the JSON of an answer."""
        data = raw if raw is not None else None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data=data)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                text = answer.read().decode()
                return answer.status, json.loads(text) if "json" in answer.headers["content-type"] else text
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def end(self, by: int = signal.SIGTERM) -> int:
        """Tell it to end; its exit code."""
        self.process.send_signal(by)
        return self.process.wait(60)


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> dict[str, str]:
    """A model of each of `KINDS`."""
    root = tmp_path_factory.mktemp("serve")
    plain = task(root)
    encoder = model(root, checkpoint(root, plain), plain).uri
    linear = baseline(plain)
    pairs = task(root, rows(pair=True))
    numbers = task(root, rows(regression=True), "pearson", labels=False)
    mixed = mix([evaluate(encoder, plain, device="cpu"), linear])
    return {
        "encoder": encoder, "onnx": export_onnx(encoder), "linear": linear, "mixture": export_onnx(mixed),
        "pairs": baseline(pairs), "numbers": baseline(numbers), "static": static(plain),
    }  # fmt: skip


@pytest.fixture
def start() -> Iterator[Callable[..., Running]]:
    """Starts a server that is ended after the test."""
    found: list[Running] = []

    def started(uri: str, *options: str) -> Running:
        found.append(Running(uri, *options))
        return found[-1]

    yield started
    for server in found:
        server.process.kill()


@pytest.fixture(scope="module")
def linear(models) -> Iterator[Running]:
    """A server of the linear model that serves several tests."""
    server = Running(models["linear"])
    yield server
    server.process.kill()


def at_once(count: int, work: Callable[[int], object]) -> list[threading.Thread]:
    """Threads that do `work` of 0, 1, …, all begun."""
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for one in threads:
        one.start()
    return threads


def answered(connection: http.client.HTTPConnection) -> float:
    """The seconds that an answer took."""
    begun = time.monotonic()
    connection.request("POST", "/v1/models/model:predict", json.dumps({"instances": ["a ship"]}))
    assert json.loads(connection.getresponse().read())["predictions"]
    return time.monotonic() - begun


def sent(
    server: Running, size: int, body: bytes = b"", seconds: int = 60, asked: str = "POST /v1/models/model:predict"
) -> socket.socket:
    """A connection that has sent a request whose body is said to be of this size, and `body` of it."""
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=seconds)
    head = f"{asked} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {size}\r\n\r\n"
    connection.sendall(head.encode() + body)
    return connection


def received(connection: socket.socket) -> bytes:
    """All that comes until the other side closes."""
    with connection:
        return b"".join(iter(lambda: connection.recv(65536), b""))


def until(server: Running, metric: str) -> None:
    """Wait for some seconds at most until the server shows this value of a metric."""
    for _ in range(500):
        if metric in server.ask("/metrics")[1]:
            break
        time.sleep(0.02)


@pytest.mark.parametrize("kind", KINDS)
def test_both_protocols_answer_as_predict_does(models, start, kind: str) -> None:
    server = start(models[kind], "--name", "toy")
    pairs = TEXTS[::-1] if kind == "pairs" else None
    given: list[Any] = list(zip(TEXTS, pairs, strict=True)) if pairs else TEXTS
    expected = list(predict(models[kind], given, device="cpu"))
    instances = [{"text": text, "text_pair": pair} for text, pair in given] if pairs else TEXTS
    code, answer = server.ask("/v1/models/toy:predict", {"instances": instances})
    assert code == 200
    columns = [TEXTS, pairs] if pairs else [TEXTS]
    tensors = [{"name": "t", "shape": [len(TEXTS)], "datatype": "BYTES", "data": column} for column in columns]
    code, second = server.ask("/v2/models/toy/infer", {"id": "42", "inputs": tensors})
    outputs = {one["name"]: one for one in second["outputs"]}
    assert (code, second["id"], second["model_name"]) == (200, "42", "toy")
    if kind == "numbers":
        values = [row["value"] for row in expected]
        assert answer["predictions"] == pytest.approx(values, abs=1e-4)
        assert outputs["value"]["data"] == pytest.approx(values, abs=1e-4)
        return
    classes = server.ask("/v2/models/toy")[1]["parameters"]["classes"]
    assert classes == sorted(TOPICS)
    for place, (row, found) in enumerate(zip(expected, answer["predictions"], strict=True)):
        assert found["label"] == row["label"] == outputs["label"]["data"][place]
        assert found["probabilities"] == pytest.approx(row["probabilities"], abs=1e-4)
        flat = outputs["probabilities"]["data"][3 * place : 3 * place + 3]
        assert dict(zip(classes, flat, strict=True)) == pytest.approx(row["probabilities"], abs=1e-4)
    assert outputs["probabilities"]["shape"] == [len(TEXTS), 3]


@pytest.mark.parametrize("kind", ["mixture", "static"])
def test_it_predicts_without_what_its_image_lacks(models, tmp_path, kind: str) -> None:
    """An ONNX encoder and a linear model, and static vectors."""
    lacking = (ROOT / "docker/not-in-serve.txt").read_text().splitlines()
    for package in ("torch", "transformers", *(name for name in lacking if name[0] != "#")):
        (tmp_path / package.replace("-", "_")).mkdir()
        (tmp_path / package.replace("-", "_") / "__init__.py").write_text("raise ImportError('the image has none')\n")
    folder = str(located(models[kind])[0])
    done = subprocess.run(
        [sys.executable, "-m", "tlm.cli", "predict", folder], input="\n".join(TEXTS), text=True, capture_output=True,
        env={"PYTHONPATH": f"{tmp_path}:{ROOT}", "PATH": "/usr/bin:/bin", "HOME": f"{tmp_path}"}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    expected = [row["label"] for row in predict(folder, TEXTS)]
    assert [json.loads(line)["label"] for line in done.stdout.splitlines()] == expected


def test_health_metadata_and_metrics(models, start) -> None:
    server = start(models["linear"])
    health = ("/v2/health/live", "/v2/health/ready", "/v2/models/model/ready")
    for path in ("/", "/v2", *health, "/v1/models", "/v1/models/model"):
        assert server.ask(path)[0] == 200, path
    wrong = "nothing is served at /v1/models/other:predict; GET /v1/models names the model"
    assert server.ask("/v1/models/other:predict", {}) == (404, {"error": wrong})
    about = server.ask("/v2/models/model")[1]
    assert about["versions"] == [trained(models["linear"]).content[:12]]
    assert [one["name"] for one in about["inputs"]] == ["text"]  # it did not learn from pairs
    server.ask("/v1/models/model:predict", {"instances": TEXTS})
    server.ask("/v1/models/model:predict", {"instances": []})
    metrics = server.ask("/metrics")[1]
    assert 'tlm_requests_total{code="200",protocol="v1"} 1.0' in metrics
    assert 'tlm_requests_total{code="400",protocol="v1"} 1.0' in metrics
    assert f"tlm_texts_total {len(TEXTS)}.0" in metrics
    assert "tlm_waiting_texts 0.0" in metrics
    assert f'tlm_model_info{{name="model",version="{about["versions"][0]}"}} 1.0' in metrics
    labels = [one["label"] for one in predict(models["linear"], TEXTS)]
    for label in {*labels}:
        assert f'tlm_answers_total{{label="{label}"}} {labels.count(label)}.0' in metrics


def test_a_downloaded_folder_knows_its_version_and_another_can_be_given(models, start, tmp_path) -> None:
    folder = download(trained(models["linear"]).uri, str(tmp_path / "folder"))
    content = trained(models["linear"]).content[:12]
    assert start(folder).ask("/v2/models/model")[1]["versions"] == [content]
    server = start(folder, "--model-version", "2026-11")
    assert server.ask("/v2/models/model/versions/2026-11")[1]["versions"] == ["2026-11"]
    known = tmp_path / "folder" / "tlm.json"
    known.write_text(json.dumps({"content": "{path}/.."}))
    with pytest.raises(InputError, match=r"model_version is '\{path\}/..'; expected letters"):
        serve(folder)


def test_v2_answers_with_the_outputs_that_are_asked_for_and_by_version(models, start) -> None:
    server = start(models["linear"])
    about = server.ask("/v2/models/model")[1]
    version = f"/v2/models/model/versions/{about['versions'][0]}"
    assert server.ask(version)[1] == about
    assert server.ask(f"{version}/ready")[0] == 200
    asked = {"inputs": [{"name": "text", "datatype": "BYTES", "shape": [1, 1], "data": [["court"]]}]}
    asked["outputs"] = [{"name": "probability"}, {"name": "label"}]
    assert [one["name"] for one in server.ask(f"{version}/infer", asked)[1]["outputs"]] == ["probability", "label"]
    asked["outputs"] = [{"name": "logits"}]
    found = server.ask("/v2/models/model/infer", asked)
    assert found[0] == 400
    assert found[1]["error"] == "outputs: the model has no 'logits'; expected label, probability, probabilities"
    asked["outputs"] = [{"name": "label"}] * 1000  # a small body would have a large answer
    found = server.ask("/v2/models/model/infer", asked)
    assert found == (400, {"error": "outputs: 1000 tensors, some of them twice; expected each at most once"})


WRONG = {  # body: code and sentence
    b"": (400, "the body is not JSON in UTF-8"),
    b"\xff\xfe": (400, "the body is not JSON in UTF-8"),
    b"[" * 100_000: (400, "the body is not JSON in UTF-8"),
    b"3": (400, "the body is an int; expected an object"),
    b"{}": (400, "the body has no instances; expected a list with at least one entry"),
    b'{"instances": "a"}': (400, "the body has no instances"),
    b'{"instances": [1]}': (400, "instances[0]: the text is an int; expected a string"),
    b'{"instances": ["a", " "]}': (400, "instances[1]: the text is empty"),
    b'{"instances": ["\\ud800"]}': (400, "instances[0]: the text is not UTF-8"),
    b'{"instances": [{"txt": "a"}]}': (
        400,
        "instances[0] has no field 'text'; expected it and, of a pair, 'text_pair'",
    ),
    b'{"instances": ["a", {"text": "a", "text_pair": "b"}]}': (400, "some are pairs and others are not"),
    b'{"instances": ["' + b"a" * 2000 + b'"]}': (413, "the body has more than 2000 bytes; send fewer texts"),
    b'{"instances": ["a", "a", "a", "a", "a"]}': (400, "5 texts in a request; expected at most 4"),
}


def test_a_wrong_request_is_one_sentence_and_the_server_goes_on(models, start) -> None:
    server = start(models["linear"], "--max-bytes", "2000", "--max-texts", "4")
    for body, (code, sentence) in WRONG.items():
        if len(body) > 2000:
            code, sentence = 413, "the body has more than 2000 bytes; send fewer texts"
        found = server.ask("/v1/models/model:predict", raw=body)
        assert found[0] == code, body[:40]
        assert sentence in found[1]["error"]
    assert server.ask("/nothing")[0] == 404
    assert server.ask("/v1/models/model:predict")[0] == 405
    assert "\u202e" not in server.ask("/%E2%80%AE")[1]["error"]
    most = json.dumps({"instances": ["court"] * 4}).encode().ljust(2000)
    assert server.ask("/v1/models/model:predict", raw=most)[0] == 200


@pytest.mark.parametrize(
    ("header", "value", "sentence"),
    [
        ("Inference-Header-Content-Length", "99", "the body has binary tensors, which are not supported; send their"),
        ("Content-Encoding", "gzip", "the body is compressed (gzip), which is not supported; send it as plain JSON"),
    ],
)
def test_binary_tensors_and_compressed_bodies_are_named(linear, header: str, value: str, sentence: str) -> None:
    request = urllib.request.Request(f"http://127.0.0.1:{linear.port}/v2/models/model/infer", b"\x1f\x8b")
    request.add_header(header, value)
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=60)
    assert caught.value.code == 400
    assert json.loads(caught.value.read())["error"].startswith(sentence)


@pytest.mark.parametrize(
    ("header", "value"), [("Inference-Header-Content-Length", "25"), ("Content-Encoding", "Identity")]
)
def test_headers_of_json_as_it_is_are_no_fault(linear, header: str, value: str) -> None:
    """Some clients announce the length of the JSON also where no tensor follows it."""
    body = b'{"instances": ["a ship"]}'
    request = urllib.request.Request(f"http://127.0.0.1:{linear.port}/v1/models/model:predict", body, {header: value})
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert len(json.load(answer)["predictions"]) == 1


@pytest.mark.parametrize(
    ("tensors", "sentence"),
    [
        ([{"datatype": "FP32", "shape": [1], "data": [1.0]}], "inputs[0] has datatype 'FP32'; expected BYTES"),
        ([{"datatype": "BYTES", "shape": [2], "data": ["a"]}], "inputs[0] has shape [2] and 1 texts; expected [1]"),
        ([{"datatype": "BYTES", "shape": [1]}], "inputs[0] has no data"),
        ([7], "inputs[0] is an int; expected an object"),
        ([{"datatype": [[[[[[[["a"]]]]]]]] * 50}], "inputs[0] has datatype [[[[[[[...]"),
        ([{"datatype": "BYTES", "shape": "\ud800" * 99, "data": ["a"]}], "inputs[0] has shape '\\ud800"),
        ([{"datatype": "BYTES", "shape": [1], "data": ["a"]}] * 3, "inputs holds 3 tensors"),
        (
            [{"datatype": "BYTES", "shape": [n], "data": ["a"] * n} for n in (1, 2)],
            "1 texts and 2 second texts; expected equal numbers",
        ),
    ],
)
def test_a_wrong_tensor_is_one_sentence(tensors: list[Any], sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        protocol.read_v2({"inputs": tensors})
    assert sentence in str(caught.value)
    assert len(str(caught.value).encode()) < 200


def test_second_texts_are_those_of_the_tensor_that_is_called_so() -> None:
    names, bare = ("text", "text_pair"), {"datatype": "BYTES", "shape": [1]}
    first, second = (bare | {"name": name, "data": [name]} for name in names)
    for tensors in ([first, second], [second, first]):
        asked = protocol.read_v2({"inputs": tensors})
        assert (asked.texts, asked.pairs) == (["text"], ["text_pair"])


def test_what_clients_write_in_other_ways_is_read_too() -> None:
    """A second text that is null, an id that is no text, and a flat list for a shape of [n, 1]."""
    assert protocol.read_v1({"instances": [{"text": "a", "text_pair": None}]}) == protocol.Asked(["a"], None)
    tensor = {"datatype": "BYTES", "shape": [2, 1], "data": ["a", "b"]}
    assert protocol.read_v2({"id": 7, "inputs": [tensor]}) == protocol.Asked(["a", "b"], None)
    for more, sentence in (
        ({"outputs": "label"}, "the body has no outputs; expected a list"),
        ({"outputs": [7]}, r"outputs\[0\] is an int; expected an object"),
        ({"inputs": [tensor | {"data": [["a", "b"], ["c"]]}]}, r"inputs\[0\].data\[0\]: the text is a list"),
    ):
        with pytest.raises(InputError, match=sentence):
            protocol.read_v2({"inputs": [tensor], **more})


def test_an_answer_names_its_model_and_types_and_metadata_both_texts_where_nobody_knows() -> None:
    served = protocol.Served(Moody(), "toy", "7")  # type: ignore[arg-type]
    answer = protocol.answer_v2(np.array([[0.25, 0.75]]), protocol.Asked(["a"], None), served)
    assert answer == {"model_name": "toy", "model_version": "7", "outputs": [
        {"name": "label", "datatype": "BYTES", "shape": [1], "data": ["b"]},
        {"name": "probability", "datatype": "FP64", "shape": [1], "data": [0.75]},
        {"name": "probabilities", "datatype": "FP64", "shape": [1, 2], "data": [0.25, 0.75]},
    ]}  # fmt: skip
    assert [one["name"] for one in protocol.metadata(served)["inputs"]] == ["text", "text_pair"]
    assert [one["name"] for one in protocol.metadata(served._replace(pair=False))["inputs"]] == ["text"]


def test_a_model_of_pairs_refuses_single_texts_also_from_a_folder(models, start, tmp_path) -> None:
    server = start(download(trained(models["pairs"]).uri, str(tmp_path / "folder")))
    code, found = server.ask("/v1/models/model:predict", {"instances": ["court"]})
    assert code == 400
    assert "learned from pairs of texts; give the second text of each pair with text_pair" in found["error"]
    (tmp_path / "folder" / "tlm.json").unlink()
    assert list(predict(str(tmp_path / "folder"), ["court"]))  # nothing says what it learned from


def test_an_id_that_no_answer_can_hold_is_one_sentence() -> None:
    with pytest.raises(InputError, match="the id is not UTF-8"):
        protocol.read_v2({"id": "\ud800", "inputs": [{"datatype": "BYTES", "shape": [1], "data": ["a"]}]})


def test_connections_that_ask_nothing_are_closed(models, start, monkeypatch) -> None:
    """Without a head of a request, or with half of one, also after a request; those that ask go on."""
    server = start(models["linear"])
    half, body = b"POST /v1/models/model:predict HTTP/1.1\r\nHost: x\r\n", b'{"instances": ["court"]}'
    whole = half + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    opened = [socket.create_connection(("127.0.0.1", server.port), 40) for _ in range(4)]
    for one, begun in zip(opened, (b"", half, whole + half, half), strict=True):
        one.sendall(begun)
    time.sleep(5)
    opened[3].sendall(whole.removeprefix(half))  # slow, but whole
    answers = [received(one) for one in opened]
    assert answers[:2] == [b"", b""]
    assert all(answer.startswith(b"HTTP/1.1 200 ") for answer in answers[2:])
    assert server.ask("/v2/health/live")[0] == 200


def test_more_connections_than_the_process_may_open_wait_and_the_log_says_so_once(models, start) -> None:
    server = start(models["linear"])
    kept = http.client.HTTPConnection("127.0.0.1", server.port)
    answered(kept)
    resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (64, 64))
    opened = [socket.create_connection(("127.0.0.1", server.port), 40) for _ in range(80)]
    time.sleep(2)
    assert min(answered(kept) for _ in range(20)) < 0.03, "a connection that is open waits with the others"
    for one in opened:
        one.close()
    assert server.ask("/v2/health/live")[0] == 200
    assert server.end() == 0
    lines = server.process.stderr.read().splitlines()
    assert [line for line in lines if "open files" in line or "Traceback" in line] == [
        "serve: new connections wait (Too many open files); raise the limit of open files (ulimit -n)"
    ]


def test_a_connection_that_is_kept_does_not_delay_its_next_answers(models, start) -> None:
    """The system held each body back for 40 ms, until the client had confirmed its head."""
    connection = http.client.HTTPConnection("127.0.0.1", start(models["linear"]).port)
    assert sorted(answered(connection) for _ in range(12))[5] < 0.03
    connection.close()


def test_an_answer_that_is_not_read_is_dropped_also_one_that_waits_behind_it(monkeypatch) -> None:
    """They took memory for as long as the client liked."""
    monkeypatch.setattr("tlm.serving.app.HEAD_SECONDS", 0.1)
    request = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
    answer = Response(bytes(1 << 22))  # more than the system's buffers take
    config = uvicorn.Config(answer, lifespan="off", log_level="warning", http=Timed)
    server, listening = uvicorn.Server(config), socket.create_server(("127.0.0.1", 0))
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 14)

    async def trial() -> None:
        running = asyncio.create_task(server.serve([listening]))
        clients = [await asyncio.open_connection(*listening.getsockname()) for _ in range(2)]
        for times, (reader, writer) in enumerate(clients, start=1):
            writer.write(request * times)
            assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
        for _ in range(100):
            await asyncio.sleep(0.1 if server.server_state.connections else 0)
        left = len(server.server_state.connections)
        for _, writer in clients:
            writer.transport.abort()
        server.should_exit = True
        await running
        assert left == 0

    asyncio.run(trial())


def test_an_answer_that_is_read_slowly_is_given_whole(monkeypatch) -> None:
    """A client of a slow network got half of it."""
    monkeypatch.setattr("tlm.serving.app.HEAD_SECONDS", 0.1)
    config = uvicorn.Config(Response(bytes(1 << 22)), lifespan="off", log_level="warning", http=Timed)
    server, listening = uvicorn.Server(config), socket.create_server(("127.0.0.1", 0))
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 14)

    async def trial() -> None:
        running = asyncio.create_task(server.serve([listening]))
        reader, writer = await asyncio.open_connection(*listening.getsockname())
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        for _ in range(1 << 7):
            assert len(await reader.readexactly(1 << 15)) == 1 << 15
            await asyncio.sleep(0.02)
        server.should_exit = True
        writer.close()
        await running

    asyncio.run(trial())


def test_a_redirect_leads_nowhere_that_the_request_names_and_labels_are_inert(tmp_path, start) -> None:
    hidden = "\u202e\u200b"
    labels = sorted(f"{topic}{hidden}" for topic in TOPICS)
    server = start(
        baseline(make_task(tmp_path, [(*one[:2], f"{one[2]}{hidden}", one[3]) for one in rows()], "macro_f1", labels))
    )
    assert server.ask("/v2/health/live/")[0] == 404
    body = b'{"instances": ["court"]}'
    answer = received(sent(server, len(body), body))
    about = received(sent(server, 0, asked="GET /v2/models/model"))
    for text in (answer, about):
        assert b"\\u202e\\u200b" in text
        assert "\u202e".encode() not in text


def test_a_body_that_is_too_large_can_be_sent_to_its_end(linear) -> None:
    """The client would lose the answer if the connection was closed while it sends more than the buffers hold."""
    answer = received(sent(linear, 12 << 20, b"[" * (12 << 20)))
    assert answer.endswith(b'{"error":"the body has more than 1048576 bytes; send fewer texts"}')


def test_a_length_that_is_wrong_holds_nobody_up(models, start) -> None:
    """A body said to be too large is refused at once; one that ends early leaves no traceback."""
    server = start(models["linear"])
    refused = received(sent(server, 10**12, b"[", seconds=20))
    early = sent(server, 100, b"[", seconds=20)
    early.shutdown(socket.SHUT_WR)
    assert received(early) == b""  # there is nobody to answer
    assert refused.startswith(b"HTTP/1.1 413 ")
    assert refused.endswith(b'{"error":"the body has more than 1048576 bytes; send fewer texts"}')
    assert server.ask("/v1/models/model:predict", {"instances": ["court"]})[0] == 200
    assert 'tlm_requests_total{code="413",protocol="v1"} 1.0' in server.ask("/metrics")[1]
    assert server.end() == 0
    assert server.process.stderr is not None
    assert "Traceback" not in server.process.stderr.read()


def test_an_error_of_ours_is_an_answer_too(models, monkeypatch) -> None:
    from starlette.testclient import TestClient

    from tlm.serving.app import Server

    predictor, _ = open_predictor(located(models["linear"])[0], "cpu")
    monkeypatch.setattr(protocol, "answer_v1", lambda *_: {}["lost"])
    with TestClient(Server(protocol.Served(predictor, "toy", "1")).app(), raise_server_exceptions=False) as client:
        answer = client.post("/v1/models/toy:predict", json={"instances": ["court"]})
        assert (answer.status_code, answer.json()) == (
            500,
            {"error": "the server failed (KeyError); its log says where"},
        )
        assert 'tlm_requests_total{code="500",protocol="v1"} 1.0' in client.get("/metrics").text


def test_many_clients_get_their_own_answers_and_bad_bodies_harm_nobody(models, linear) -> None:
    expected = {text: row["probabilities"] for text, row in zip(TEXTS, predict(models["linear"], TEXTS), strict=True)}
    wrong: list[str] = []

    def client(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(30):
            if chance.random() < 0.3:
                body = chance.randbytes(chance.randint(0, 200))
                if linear.ask("/v1/models/model:predict", raw=body)[0] != 400:
                    wrong.append(repr(body))
                continue
            asked = chance.choices(TEXTS, k=chance.randint(1, 4))
            code, answer = linear.ask("/v1/models/model:predict", {"instances": asked})
            found = [one["probabilities"] for one in answer.get("predictions", [])]
            if code != 200 or found != [pytest.approx(expected[text], abs=1e-9) for text in asked]:
                wrong.append(f"{code} {asked}")

    for one in at_once(8, client):
        one.join()
    assert wrong == []


def test_what_waits_is_limited(models, start) -> None:
    """One request is always taken; others are refused while too many texts wait."""
    server = start(models["encoder"], "--max-waiting", "1", "--device", "cpu")
    body, codes = {"instances": ["tide " * 50] * 200}, list[int]()
    for one in at_once(4, lambda _: codes.append(server.ask("/v1/models/model:predict", body)[0])):
        one.join()
    assert sorted(set(codes)) == [200, 503]


def test_bytes_that_wait_are_limited_too(models, start) -> None:
    """What is being received counts; others are refused, whatever they sent, until there is room again."""
    server = start(models["linear"], "--max-waiting-bytes", "1500000")
    begun = b'{"instances": ["court '.ljust(699_999, b"x") + b'"'
    held = [sent(server, len(begun) + 2, begun) for _ in range(2)]
    until(server, "tlm_waiting_bytes 1.4e+06")
    body = json.dumps({"instances": ["tide " * 40_000]}).encode()
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"http://127.0.0.1:{server.port}/v1/models/model:predict", body, timeout=60)
    assert (caught.value.code, caught.value.headers["retry-after"]) == (503, "1")
    sentence = json.loads(caught.value.read())["error"]
    assert sentence == "1400000 bytes of requests are waiting, and 1500000 may; try again in a second"
    assert server.ask("/v1/models/model:predict", {"instances": ["court"]})[0] == 200
    for connection in held:
        connection.sendall(b"]}")
        assert received(connection).startswith(b"HTTP/1.1 200 ")
    assert server.ask("/v1/models/model:predict", raw=body)[0] == 200
    assert "tlm_waiting_bytes 0.0" in server.ask("/metrics")[1]


def test_a_body_in_chunks_is_refused_as_others_are_while_one_large_body_holds_all_bytes() -> None:
    bodies = Bodies(Limits(max_bytes=1000, max_waiting_bytes=100))
    bodies.held = 500  # of a body that was alone

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b'{"instances": ["a ship"]}', "more_body": False}

    async def ask() -> None:
        scope = {"type": "http", "method": "POST", "headers": [(b"transfer-encoding", b"chunked")]}
        async with bodies.asked(Request(scope, receive), protocol.read_v1):
            pass

    with pytest.raises(HTTPException, match="503: 500 bytes of requests are waiting"):
        asyncio.run(ask())
    assert bodies.held == 500


@pytest.mark.parametrize(
    ("parts", "status", "read"),
    [
        ([b'{"instances": ["'.ljust(80), b'a"]}'.rjust(80)], 200, 2),  # alone, it may hold more than all together may
        ([b"[" * 800, b"[" * 800, b""], 413, 3),
        ([b"[" * (MOST_DROPPED // 2)] * 9, 413, 3),  # without end
        ([b"["], 408, 1),  # then nothing
    ],
)
def test_a_body_that_is_too_large_or_too_slow_is_refused_and_holds_nothing(
    monkeypatch, parts: list[bytes], status: int, read: int
) -> None:
    monkeypatch.setattr("tlm.serving.app.RECEIVE_SECONDS", 1)
    bodies, left = Bodies(Limits(max_bytes=1000, max_waiting_bytes=100)), list(parts)

    async def receive() -> dict[str, Any]:
        if not left:
            await asyncio.sleep(60)
        return {"type": "http.request", "body": left.pop(0), "more_body": status == 408 or bool(left)}

    async def ask() -> None:
        async with bodies.asked(Request({"type": "http", "method": "POST", "headers": []}, receive), protocol.read_v1):
            raise HTTPException(200)

    with pytest.raises(HTTPException) as caught:
        asyncio.run(asyncio.wait_for(ask(), 30))
    assert (caught.value.status_code, len(parts) - len(left), bodies.held) == (status, read, 0)


def test_many_large_requests_take_little_memory_and_health_is_answered(models, start) -> None:
    server = start(models["onnx"])
    body, codes = json.dumps({"instances": ["the tide of a ship " * 52_000]}).encode(), list[int]()
    clients = at_once(80, lambda _: codes.append(server.ask("/v1/models/model:predict", raw=body)[0]))
    pending = []
    while any(one.is_alive() for one in clients):
        assert server.ask("/v2/health/live")[0] == 200
        pending.append(len(clients) - len(codes))
        time.sleep(0.05)
    assert len(codes) == len(clients)
    assert 200 in codes
    assert set(codes) <= {200, 503}
    assert max(pending) >= 10  # requests that wait while health is answered
    status = Path(f"/proc/{server.process.pid}/status")
    if status.exists():  # Linux
        (peak,) = (int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        assert peak < 1 << 20  # KiB: 1 GiB, which is half of what a pod has


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_lets_it_finish_what_it_has_begun(models, start, number) -> None:
    server = start(models["encoder"], "--device", "cpu")
    answers: list[tuple[int, Any]] = []
    body = {"instances": ["tide " * 50] * 1000}
    (asking,) = at_once(1, lambda _: answers.append(server.ask("/v1/models/model:predict", body)))
    until(server, "tlm_waiting_texts 1000.0")
    assert server.end(number) == 0
    asking.join()
    assert answers[0][0] == 200
    assert len(answers[0][1]["predictions"]) == 1000


class Moody:
    """A model that fails when a text asks for it."""

    labels, thresholds = ("a", "b"), None

    def __init__(self) -> None:
        self.asked: list[tuple[list[str], list[str] | None]] = []

    def predict(self, texts: list[str], pairs: Any = None, label: str = "") -> np.ndarray:
        self.asked.append((texts, pairs))
        if "fail" in texts:
            raise ValueError("no\nway")
        return np.full((len(texts), 2), 0.5)


def test_an_error_of_the_model_is_told_and_the_next_request_is_answered() -> None:
    async def both() -> list[Any]:
        batcher = Batcher(Moody(), 9)  # type: ignore[arg-type]
        found = [
            await asyncio.gather(batcher.predict(protocol.Asked([text], None)), return_exceptions=True)
            for text in ("fail", "fine")
        ]
        return [one for (one,) in found]

    failed, answered = asyncio.run(both())
    assert (failed.status_code, failed.detail) == (500, "the model failed: no")
    assert answered.tolist() == [[0.5, 0.5]]


def test_requests_of_a_kind_are_predicted_together_up_to_a_limit_and_clients_may_leave() -> None:
    model, single = Moody(), lambda *texts: protocol.Asked([*texts], None)
    pair = protocol.Asked(["e\u0301"], ["u\u0308"])
    asked = [single("a"), pair, single(*"b" * 40), single(*"c" * 40), single("d"), single("fail")]
    large = [single("x" * MOST_CHARACTERS), single("f")]

    async def ask() -> None:
        batcher = Batcher(model, 84)  # type: ignore[arg-type]
        waiting = [asyncio.create_task(batcher.predict(one)) for one in asked]
        await asyncio.sleep(0)
        with pytest.raises(HTTPException, match="503: 84 texts are waiting, and 84 may"):
            await batcher.predict(single("g"))
        for gone in waiting[3:]:
            gone.cancel()
        await asyncio.gather(*waiting[:3])
        await asyncio.gather(*map(batcher.predict, large))
        assert batcher.waiting == 0

    asyncio.run(asyncio.wait_for(ask(), 30))
    singles = [["a", *"b" * 40, *"c" * 40], ["d", "fail"], large[0].texts, ["f"]]
    assert [texts for texts, pairs in model.asked if pairs is None] == singles
    assert [one for one in model.asked if one[1]] == [(["é"], ["ü"])]


def test_the_address_of_a_server_at_ipv6_has_brackets(models, monkeypatch, capsys) -> None:
    monkeypatch.setattr("tlm.serving.serve._prepare_process", lambda: None)
    monkeypatch.setattr("uvicorn.Config.bind_socket", lambda _: socket.create_server(("127.0.0.1", 0)))
    monkeypatch.setattr("uvicorn.Server.run", lambda *_: None)
    with pytest.raises(Interrupted):
        serve(models["linear"], host="::1", port=8080)
    assert "at http://[::1]:8080/v1/models/model:predict" in capsys.readouterr().err


def test_a_port_in_use_is_one_sentence(models, capsys) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=f"cannot listen at 127.0.0.1, port {port}, for the reason above"):
            flat(serve)(models["linear"], port=port)
    assert f"http://127.0.0.1:{port}" not in capsys.readouterr().err  # it says where it listens once it does


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"name": "a/b"}, "name is 'a/b'; expected letters, digits, '-', '_' and '.'"),
        ({"max_texts": 0}, "max_texts is 0; expected 1 or more"),
        ({"port": 80999}, "port is 80999; expected 1 to 65535"),
    ],
)
def test_a_wrong_setting_is_one_sentence(models, settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        flat(serve)(models["linear"], **settings)
    assert sentence in str(caught.value)
