"""A real server with trouble on the way to it: a proxy that forwards requests, except those that it answers itself."""

import http.client
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import urlsplit

HANG_UP = -1


@dataclass(frozen=True)
class Request:
    """What a client asks."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


Trouble = Callable[[Request], int | None]


@contextmanager
def faulty(url: str, trouble: Trouble) -> Iterator[str]:
    """The URL of a proxy to `url`; `trouble(request)` gives a status to answer with instead.

    None lets the request through, with `HANG_UP` the connection is closed without an answer.
    """
    host = urlsplit(url).netloc

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            status = trouble(Request(self.command, self.path, headers, body))
            if status == HANG_UP:
                self.close_connection = True
                return
            if status is not None:
                self.answer(status, {"x-elastic-product": "Elasticsearch"}, b"{}")
                return
            upstream = http.client.HTTPConnection(host)
            upstream.request(self.command, self.path, body, headers | {"host": host})
            answer = upstream.getresponse()
            self.answer(answer.status, dict(answer.headers), answer.read())
            upstream.close()

        def answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response(status)
            for name in ("x-elastic-product", "content-type", "content-encoding"):
                if value := {key.lower(): value for key, value in headers.items()}.get(name):
                    self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = forward

    proxy = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=proxy.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{proxy.server_port}"
    finally:
        proxy.shutdown()
        proxy.server_close()
