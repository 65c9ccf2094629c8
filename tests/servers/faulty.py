"""A real server with trouble on the way to it: a proxy that forwards requests, except those that it answers itself."""

import http.client
import random
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from urllib.parse import urlsplit

HANG_UP = -1  # the connection is closed without an answer
RESET = -2  # the connection is reset without an answer
LOST = -3  # the server does what is asked, but its answer is lost
HALF = -4  # half of the answer, then the connection is reset
SLOW = -5  # the answer comes late
LATE_SECONDS = 2.0
HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "date", "server", "expect"}


@dataclass(frozen=True)
class Request:
    """What a client asks."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class Answer:
    """What is answered instead of the server."""

    status: int
    body: bytes = b"{}"
    headers: tuple[tuple[str, str], ...] = (("x-elastic-product", "Elasticsearch"),)


Trouble = Callable[[Request], "Answer | int | None"]


class Weather:
    """Trouble of these kinds for a share of all requests, drawn with a seed, while `bad`; `given` counts it."""

    def __init__(self, seed: int, kinds: Sequence[int], share: float = 0.3) -> None:
        self.kinds, self.share, self.bad = kinds, share, True
        self.given: Counter[int] = Counter()
        self._random, self._lock = random.Random(seed), Lock()

    def __call__(self, request: Request) -> int | None:
        with self._lock:
            if not self.bad or self._random.random() >= self.share:
                return None
            kind = self._random.choice(self.kinds)
            self.given[kind] += 1
            return kind


@contextmanager
def faulty(url: str, trouble: Trouble) -> Iterator[str]:
    """The URL of a proxy to `url`; `trouble(request)` gives a status (or an answer) to answer with instead.

    None lets the request through; `HANG_UP` and the others below zero are troubles with the connection.
    """
    host = urlsplit(url).netloc

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            kind = trouble(Request(self.command, self.path, headers, body))
            if isinstance(kind, int) and kind > 0:
                kind = Answer(kind)
            if isinstance(kind, Answer):
                self.answer(kind.status, dict(kind.headers), kind.body)
            elif kind in (HANG_UP, RESET):
                self.close(reset=kind == RESET)
            else:
                self.served(kind, headers, body)

        def served(self, kind: int | None, headers: dict[str, str], body: bytes) -> None:
            """By the server itself."""
            if kind == SLOW:
                time.sleep(LATE_SECONDS)
            upstream = http.client.HTTPConnection(host)
            try:
                passed = {name: value for name, value in headers.items() if name not in HOP_BY_HOP}
                upstream.request(self.command, self.path, body, passed | {"content-length": str(len(body))})
                answer = upstream.getresponse()
                status, found, data = answer.status, dict(answer.headers), answer.read()
            except (OSError, http.client.HTTPException):  # the server is gone
                self.close(reset=True)
                return
            finally:
                upstream.close()
            if kind == LOST:
                self.close(reset=True)
            else:
                self.answer(status, found, data, half=kind == HALF)

        def answer(self, status: int, headers: dict[str, str], body: bytes, half: bool = False) -> None:
            length = str(len(body))
            if self.command == "HEAD":
                length = {name.lower(): value for name, value in headers.items()}.get("content-length", length)
            self.send_response(status)
            for name, value in headers.items():
                if name.lower() not in HOP_BY_HOP:
                    self.send_header(name, value)
            self.send_header("content-length", length)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body[: len(body) // 2] if half else body)
            if half:
                self.wfile.flush()
                self.close(reset=True)

        def close(self, reset: bool) -> None:
            if reset:
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.connection.close()
            self.close_connection = True

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = forward

    class Proxy(ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            """Clients may go away; that is no news."""

    proxy = Proxy(("127.0.0.1", 0), Handler)
    thread = Thread(target=proxy.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{proxy.server_port}"
    finally:
        proxy.shutdown()
        proxy.server_close()
