"""A real browser, without a window: what a page does when it is opened. Any Chromium or Chrome will do."""

import os
import re
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

VARIABLE = "TLM_TEST_BROWSER"
PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
MISSING = f"a browser: install chromium, or name one in {VARIABLE}"
HOST = "evil.example"
RAN = f"document.documentElement.setAttribute('data-ran', 1); fetch('http://{HOST}/ran')"
QUIET = (
    *("--headless", "--disable-gpu", "--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--no-first-run", "--disable-default-apps", "--disable-extensions", "--mute-audio"),
    *("--disable-dev-shm-usage", "--virtual-time-budget=2000", "--dump-dom"),
)


def program() -> str | None:
    """The browser, or None where there is none."""
    return os.environ.get(VARIABLE) or next(filter(None, map(shutil.which, PROGRAMS)), None)


class Opened:
    """What came of opening a page: its document afterwards, and whether it ran a script or asked for anything."""

    def __init__(self, document: str, asked: list[bytes]) -> None:
        self.document, self.asked = document, asked

    @property
    def acted(self) -> bool:
        """Whether a planted script ran, or anything was asked of the planted host."""
        return bool(self.asked) or re.search(r"<html[^>]*\sdata-ran", self.document) is not None


def opened(html: str) -> Opened:
    """Open a page; every name that it asks for leads to a server here."""
    found = program()
    assert found, MISSING
    with tempfile.TemporaryDirectory() as folder, _listening() as (port, asked):
        page = Path(folder, "page.html")
        page.write_text(html, encoding="utf-8")
        options = [*QUIET, f"--user-data-dir={folder}/user", f"--host-resolver-rules=MAP * 127.0.0.1:{port}"]
        options += ["--no-sandbox"] if os.getuid() == 0 else []
        done = subprocess.run([found, *options, page.as_uri()], capture_output=True, timeout=120, check=False)
        document = done.stdout.decode(errors="replace")
        assert "</html>" in document, f"{found} shows nothing: {done.stderr.decode(errors='replace')[-500:]}"
        return Opened(document, [data for data in asked if HOST.encode() in data])


@contextmanager
def _listening() -> Iterator[tuple[int, list[bytes]]]:
    """A port, and what was first sent to it in each connection: of TLS too, which names its host in the clear."""
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_collect, args=(server, asked), daemon=True).start()
        yield server.getsockname()[1], asked


def _collect(server: socket.socket, asked: list[bytes]) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:  # closed: the page has been looked at
            return
        with connection:
            connection.settimeout(5)
            try:
                asked.append(connection.recv(4096))
            except OSError:
                continue
