"""Real servers for tests: Elasticsearch and an S3 gateway, given by URL, or started here and stopped at the end.

Where a program cannot be had (programs.py), its official Docker image is tried; `Missing` says what to install.
"""

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.servers.programs import (
    ELASTICSEARCH,
    NOBODY,
    VERSITYGW,
    Missing,
    cache_folder,
    elasticsearch_zip,
    java_home,
    own,
    unpack,
    versitygw,
)

__all__ = [
    "Missing", "S3Server", "Server", "cache_folder", "die_with_parent", "elasticsearch", "free_port", "fresh_folder",
    "installed", "running", "s3",
]  # fmt: skip

LOCAL = "127.0.0.1"


class Server:
    """A server's process. It may be killed, and started again on the same files at the same address.

    It also ends with the thread that started it, so that tests that are killed leave no server behind.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], folder: Path, url: str, ready: str):
        self.command, self.environment, self.folder, self.url = command, dict(environment), folder, url
        self.ready = ready  # what answers once it is up
        self.user = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, seconds: float = 180) -> None:
        """Start it, and wait until it answers."""
        other = self.user and os.getuid() == 0
        user: Any = {"user": self.user, "group": self.user, "extra_groups": []} if other else {}
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                self.command, env=self.environment, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=output,
                stderr=output, start_new_session=True, preexec_fn=die_with_parent, **user,
            )  # fmt: skip
        _wait(self.ready, seconds, self._alive)

    def kill(self) -> None:
        """SIGKILL to it and all that it started."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """SIGTERM; what does not heed it is killed."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(30)
                self._process = None
            except subprocess.TimeoutExpired:
                self.kill()

    @property
    def _log(self) -> Path:
        return self.folder / "server.log"

    def _alive(self) -> None:
        if self._process is not None and self._process.poll() is not None:
            said = self._log.read_text(errors="replace")[-3000:]
            raise RuntimeError(f"{self.command[0]} ended with {self._process.returncode}: {said}")


@dataclass(frozen=True)
class S3Server:
    """Where an S3 server listens, the root user's keys, and its process unless it is in a container."""

    url: str
    access: str
    secret: str
    process: Server | None = None


@contextmanager
def elasticsearch(
    *settings: str, heap: str = "1g", host: str = LOCAL, prepare: Callable[[Path], None] | None = None
) -> Iterator[str]:
    """The URL of a single-node Elasticsearch with an empty disk: as `installed`, or else in a container."""
    try:
        elasticsearch_zip(), java_home()
    except Missing as missing:
        if settings or prepare:
            raise  # only what is started from its files can be prepared
        variables = {
            "discovery.type": "single-node",
            "xpack.security.enabled": "false",
            "ES_JAVA_OPTS": f"-Xms{heap} -Xmx{heap}",
        }
        address = (host, free_port(host))
        with _container(missing, f"elasticsearch:{ELASTICSEARCH}", address, 9200, variables) as url:
            _wait(f"{url}/_cluster/health", 120)
            yield url
        return
    with installed(*settings, heap=heap, host=host, prepare=prepare) as server:
        yield server.url


@contextmanager
def installed(
    *settings: str,
    heap: str = "1g",
    host: str = LOCAL,
    prepare: Callable[[Path], None] | None = None,
    version: str = ELASTICSEARCH,
) -> Iterator[Server]:
    """A single-node Elasticsearch started from its files; `settings` are further ``name=value`` pairs.

    `host` is the address of this machine to listen at. `prepare` may put files into the installation's folder before
    the start (certificates, users).
    """
    archive, java, port = elasticsearch_zip(version), java_home(), free_port(host)
    with fresh_folder() as folder:
        home = unpack(archive, folder)
        if prepare is not None:
            prepare(home)
        own(folder)
        defaults = {
            "discovery.type": "single-node", "http.host": host, "http.port": str(port),
            "transport.port": str(free_port()), "xpack.security.enabled": "false",
            "cluster.routing.allocation.disk.threshold_enabled": "false",
        }  # fmt: skip
        chosen = defaults | dict(setting.split("=", 1) for setting in settings)
        command = ["bash", str(home / "bin/elasticsearch"), *(f"-E{name}={value}" for name, value in chosen.items())]
        environment = {
            "PATH": os.environ["PATH"], "HOME": str(folder), "ES_JAVA_HOME": str(java),
            "ES_JAVA_OPTS": f"-Xms{heap} -Xmx{heap}", "CLI_JAVA_OPTS": "-Xmx64m -XX:+UseSerialGC",
        }  # fmt: skip
        scheme = "https" if chosen.get("xpack.security.http.ssl.enabled") == "true" else "http"
        url = f"{scheme}://{host}:{port}"
        server = Server(command, environment, folder, url, url if scheme == "https" else f"{url}/_cluster/health")
        server.user = NOBODY  # it refuses to run as root
        with running(server):
            yield server


@contextmanager
def s3(host: str = LOCAL, **variables: str) -> Iterator[S3Server]:
    """A versitygw on an empty folder; `host` is the address of this machine to listen at.

    `variables` are settings of its own; in one that names a folder, ``{}`` stands for the server's.
    """
    port = free_port(host)
    url, access, secret = f"http://{host}:{port}", "tlm-tests", "tlm-tests-secret"
    keys = {"ROOT_ACCESS_KEY": access, "ROOT_SECRET_KEY": secret}
    try:
        program = versitygw()
    except Missing as missing:
        if variables:
            raise
        with _container(missing, f"versity/versitygw:v{VERSITYGW}", (host, port), 7070, keys, "posix", "/tmp") as _:
            _wait(url, 60)
            yield S3Server(url, access, secret)
        return
    with fresh_folder() as folder:
        for name in ("data", "meta", "versions"):
            (folder / name).mkdir()
        command = [str(program), "--port", f"{host}:{port}", "--quiet", "posix", str(folder / "data")]
        # attributes beside the files, so that the folder's file system need not know extended attributes
        chosen = {"VGW_META_SIDECAR": "{}/meta"} | variables
        settings = {name: value.format(folder) for name, value in chosen.items()}
        environment = {"PATH": os.environ["PATH"], "HOME": str(folder), **keys, **settings}
        with running(Server(command, environment, folder, url, url)) as server:
            yield S3Server(url, access, secret, server)


def free_port(host: str = LOCAL) -> int:
    """A TCP port of this machine that nobody listens on."""
    with socket.socket() as listener:
        listener.bind((host, 0))
        return int(listener.getsockname()[1])


@contextmanager
def fresh_folder() -> Iterator[Path]:
    """A folder for a server's files, removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="tlm-server-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def running(server: Server) -> Iterator[Server]:
    """The server, started; at the end it is stopped."""
    try:
        server.start()
        yield server
    finally:
        server.stop()


def die_with_parent() -> None:
    """What a process is prepared with that is to end with the thread that starts it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


@contextmanager
def _container(
    missing: Missing, image: str, address: tuple[str, int], inside: int, environment: dict[str, str], *command: str
) -> Iterator[str]:
    """The same server from its Docker image; raises `missing` where there is no Docker either."""
    host, port = address
    name = f"tlm-tests-{os.getpid()}-{port}"
    variables = [part for name, value in environment.items() for part in ("-e", f"{name}={value}")]
    run = [
        "docker", "run", "-d", "--rm", "--name", name, "-p", f"{host}:{port}:{inside}", *variables, image, *command,
    ]  # fmt: skip
    try:
        subprocess.run(run, check=True, capture_output=True, timeout=600)
    except (OSError, subprocess.SubprocessError):
        raise missing from None
    try:
        yield f"http://{host}:{port}"
    finally:
        subprocess.run(["docker", "rm", "-f", name], capture_output=True)


def _wait(url: str, seconds: float, alive: Callable[[], None] = lambda: None) -> None:
    """Until something answers at `url`, whatever it answers (503 aside: the server is still starting)."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        alive()
        try:
            urllib.request.urlopen(url, timeout=5)
            return
        except urllib.error.HTTPError as error:
            if error.code != 503:
                return
        except urllib.error.URLError as error:
            if "CERTIFICATE" in str(error):
                return  # TLS is up; whom to trust is the test's business
        except OSError:
            pass
        time.sleep(0.25)
    raise RuntimeError(f"nothing answered at {url} within {seconds:.0f} s")
