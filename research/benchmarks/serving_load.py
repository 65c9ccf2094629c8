"""`tlm serve` under load: how long requests take with 1, 8 and 64 clients, and what 10,000 hostile bodies do."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from statistics import quantiles
from typing import NamedTuple

from research.benchmarks.hostile_bodies import NOTHING, REFUSED, V1, Hostile, fault, hostile
from research.benchmarks.passages import queries
from research.benchmarks.row import Result, Row, limit, need
from research.benchmarks.serving import write_model
from research.benchmarks.training_data import prepare

HERE = "127.0.0.1"
CLIENTS = (1, 8, 64)
REQUESTS, HOSTILE, AT_ONCE = 4096, 10_000, 8
PATIENCE = 30.0  # seconds for an answer
READY_SECONDS = 120


class Answered(NamedTuple):
    """One request: seconds, and why its answer was wrong, or ""."""

    seconds: float
    fault: str


def run(quick: bool) -> list[Result]:
    """The pocket model as ONNX int8, with fresh weights, in a process of its own."""
    need("onnx", "onnxruntime", "uvicorn", "starlette", "prometheus_client")
    from tlm.serving.convert import SMALL, convert, use

    material = prepare(quick)
    texts = queries("full", quick, 40 if quick else 400)
    with tempfile.TemporaryDirectory() as name:
        folder, onnx = Path(name, "model"), Path(name, "onnx")
        write_model(material.tokenizer, material.task, folder)
        convert(folder, onnx)
        use(onnx, SMALL)
        with serving(onnx) as (port, server):
            bodies = [json.dumps({"instances": [text]}).encode() for text in texts]
            expected = [ask(port, body) for body in bodies]
            results = []
            for clients in CLIENTS:
                results += of_load(port, list(zip(bodies, expected, strict=True)), clients, 64 if quick else REQUESTS)
            results += of_hostile(port, 260 if quick else HOSTILE)
            changed = sum(ask(port, body) != answer for body, answer in zip(bodies, expected, strict=True))
            server.send_signal(signal.SIGTERM)
            ended = server.wait(60)
        results.append(limit("afterwards, good requests with another answer", changed, "requests", 0))
        return [*results, limit("afterwards, exit code on SIGTERM", ended, "", 0)]


def of_load(port: int, given: list[tuple[bytes, bytes]], clients: int, count: int) -> list[Result]:
    """Each client sends one text after the other over one connection, and waits for each answer."""

    def client(number: int) -> list[Answered]:
        connection = HTTPConnection(HERE, port, timeout=PATIENCE)
        found = []
        for place in range(number, count, clients):
            body, expected = given[place % len(given)]
            begun = time.perf_counter()
            try:
                connection.request("POST", V1, body)
                answer = connection.getresponse()
                wrong = "" if (answer.status, answer.read()) == (200, expected) else f"answered with {answer.status}"
            except (OSError, HTTPException) as error:
                connection.close()
                wrong = type(error).__name__
            found.append(Answered(time.perf_counter() - begun, wrong))
        connection.close()
        return found

    begun = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        found = [one for part in pool.map(client, range(clients)) for one in part]
    seconds = time.perf_counter() - begun
    faults = Counter(one.fault for one in found if one.fault)
    cuts = quantiles([1000 * one.seconds for one in found], n=100)
    label = f"{clients} clients" if clients > 1 else "1 client"
    note = f"{len(found) / seconds:,.0f} requests a second." + (f" {dict(faults)}" if faults else "")
    return [
        limit(f"{label}, half of the requests within", cuts[49], "ms", note=f"{label}: {note}"),
        limit(f"{label}, 99 % of the requests within", cuts[98], "ms"),
        limit(f"{label}, no answer or another one", faults.total(), "requests", 0),
    ]


def of_hostile(port: int, count: int) -> list[Result]:
    """Each on a connection of its own, a few at once."""
    sent = list(hostile(count))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = list(pool.map(lambda one: answer_to(port, one), sent))
    faults = [(one.kind, why) for one, answer in zip(sent, answers, strict=True) if (why := fault(answer, one.owed))]
    codes = Counter(answer[9:12].decode("latin-1") or "no answer" for answer in answers)
    kinds = Counter(one.owed for one in sent)
    note = f"By code: {', '.join(f'{code} {number:,}' for code, number in sorted(codes.items()))}. "
    note += f"{kinds[REFUSED]:,} were no HTTP, which uvicorn refuses in plain text; {kinds[NOTHING]:,} never ended."
    note += "".join(f" {kind}: {why}." for kind, why in faults[:3])
    return [limit(f"{count:,} hostile requests, not answered with a sentence", len(faults), "requests", 0, note)]


def answer_to(port: int, one: Hostile) -> bytes:
    """The whole answer, until the server closes the connection."""
    found = b""
    with suppress(ConnectionError), socket.create_connection((HERE, port), timeout=PATIENCE) as connection:
        with suppress(ConnectionError):  # it may have answered and closed before the whole body was sent
            connection.sendall(one.data)
            if one.owed == NOTHING:
                connection.shutdown(socket.SHUT_WR)
        with suppress(TimeoutError):
            while part := connection.recv(1 << 16):
                found += part
    return found


def ask(port: int, body: bytes) -> bytes:
    """The answer to a good request."""
    connection = HTTPConnection(HERE, port, timeout=PATIENCE)
    connection.request("POST", V1, body)
    answer = connection.getresponse()
    found = answer.read()
    connection.close()
    if answer.status != 200:
        raise RuntimeError(f"a good request was answered with {answer.status}: {found[:200]!r}")
    return found


@contextmanager
def serving(folder: Path) -> Iterator[tuple[int, "subprocess.Popen[bytes]"]]:
    """`tlm serve` of a model folder, at a free port of this machine; ended in any case."""
    with socket.socket() as free:
        free.bind((HERE, 0))
        port: int = free.getsockname()[1]
    command = [sys.executable, "-m", "tlm.cli", "serve", str(folder), "--port", str(port)]
    with tempfile.TemporaryFile() as log:  # what the server says of hostile requests is not for the terminal
        server = subprocess.Popen(command, stderr=log, env={**os.environ, "PYTHONPATH": str(Path.cwd())})
        try:
            wait_for(lambda: ready(port), lambda: server.poll() is None)
            yield port, server
        finally:
            server.kill()
            server.wait()


def ready(port: int) -> bool:
    """Whether it is ready."""
    connection = HTTPConnection(HERE, port, timeout=5)
    try:
        connection.request("GET", "/v2/health/ready")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def wait_for(done: Callable[[], bool], alive: Callable[[], bool]) -> None:
    """Wait until `done`; raises if `alive` ends before, or after `READY_SECONDS`."""
    until = time.monotonic() + READY_SECONDS
    while not done():
        if not alive() or time.monotonic() > until:
            raise RuntimeError("the server was not ready in time")
        time.sleep(0.1)


ROW = Row(
    name="serving_load",
    stage="serving under load",
    against="its own limits",
    target="no request without its answer, whatever was sent before",
    what="`tlm serve` with the pocket model as ONNX int8, in one process with one thread for the model, asked from the "
    "same machine: each client sends SciERC's training sentences one by one and waits for each answer, so that 64 "
    "clients are 64 texts that wait. The hostile requests are drawn with a seed, equally of random bytes, truncated "
    "and mutated JSON, wrong types, huge numbers, deep nesting, odd characters, wrong shapes, too much, wrong content "
    "types and lengths, what is no HTTP, and what is cut off.",
    run=run,
    packages=("onnxruntime", "starlette", "uvicorn"),
)
