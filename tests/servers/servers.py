"""Real servers for tests: Elasticsearch and an S3 gateway, given by URL, or started here and stopped at the end.

Programs are fetched once into a cache folder (``TLM_TEST_CACHE``, else ``~/.cache/tlm-tests``); where that is not
possible, official Docker images are tried. `Missing` says in one line what to install.
"""

import ctypes
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

ELASTICSEARCH = "9.5.0"
VERSITYGW = "1.8.0"
JAVA_AT_LEAST = 21
NOBODY = 65534
LOCAL = "127.0.0.1"


class Missing(Exception):
    """A server can be neither reached nor started here; the text says what to install or set."""


@dataclass(frozen=True)
class S3Server:
    """Where an S3 server listens, and the root user's keys."""

    url: str
    access: str
    secret: str


@contextmanager
def elasticsearch(
    *settings: str, heap: str = "1g", host: str = LOCAL, prepare: Callable[[Path], None] | None = None
) -> Iterator[str]:
    """The URL of a single-node Elasticsearch with an empty disk; `settings` are further ``name=value`` pairs.

    `host` is the address of this machine to listen at. `prepare` may put files into the installation's folder before
    the start (certificates, users).
    """
    port = free_port(host)
    try:
        archive, java = _elasticsearch_zip(), _java_home()
    except Missing as missing:
        if settings or prepare:
            raise  # only what is started from its files can be prepared
        variables = {
            "discovery.type": "single-node",
            "xpack.security.enabled": "false",
            "ES_JAVA_OPTS": f"-Xms{heap} -Xmx{heap}",
        }
        with _container(missing, f"elasticsearch:{ELASTICSEARCH}", (host, port), 9200, variables) as url:
            _wait(f"{url}/_cluster/health", 120)
            yield url
        return
    with _folder() as folder:
        home = _unpack(archive, folder)
        if prepare is not None:
            prepare(home)
        _own(folder)
        defaults = {
            "discovery.type": "single-node",
            "http.host": host,
            "http.port": str(port),
            "transport.port": str(free_port()),
            "xpack.security.enabled": "false",
            "cluster.routing.allocation.disk.threshold_enabled": "false",
        }
        chosen = defaults | dict(setting.split("=", 1) for setting in settings)
        command = ["bash", str(home / "bin/elasticsearch"), *(f"-E{name}={value}" for name, value in chosen.items())]
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "ES_JAVA_HOME": str(java),
            "ES_JAVA_OPTS": f"-Xms{heap} -Xmx{heap}",
            "CLI_JAVA_OPTS": "-Xmx64m -XX:+UseSerialGC",
        }
        scheme = "https" if chosen.get("xpack.security.http.ssl.enabled") == "true" else "http"
        url = f"{scheme}://{host}:{port}"
        with _process(command, environment, folder, as_nobody=True) as alive:
            _wait(url if scheme == "https" else f"{url}/_cluster/health", 180, alive)
            yield url


@contextmanager
def s3(host: str = LOCAL) -> Iterator[S3Server]:
    """A versitygw on an empty folder, with fresh keys; `host` is the address of this machine to listen at."""
    port = free_port(host)
    server = S3Server(f"http://{host}:{port}", "tlm-tests", "tlm-tests-secret")
    keys = {"ROOT_ACCESS_KEY": server.access, "ROOT_SECRET_KEY": server.secret}
    try:
        program = _versitygw()
    except Missing as missing:
        with _container(missing, f"versity/versitygw:v{VERSITYGW}", (host, port), 7070, keys, "posix", "/tmp") as _:
            _wait(server.url, 60)
            yield server
        return
    with _folder() as folder:
        data, meta = folder / "data", folder / "meta"
        data.mkdir()
        meta.mkdir()
        # --sidecar: attributes beside the files, so that the folder's file system need not know extended attributes
        command = [str(program), "--port", f"{host}:{port}", "--quiet", "posix", "--sidecar", str(meta), str(data)]
        with _process(command, {"PATH": os.environ["PATH"], "HOME": str(folder), **keys}, folder) as alive:
            _wait(server.url, 60, alive)
            yield server


def free_port(host: str = LOCAL) -> int:
    """A TCP port of this machine that nobody listens on."""
    with socket.socket() as listener:
        listener.bind((host, 0))
        return int(listener.getsockname()[1])


def cache_folder() -> Path:
    """Where fetched programs are kept between test runs."""
    folder = Path(os.environ.get("TLM_TEST_CACHE") or Path.home() / ".cache" / "tlm-tests")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _elasticsearch_zip() -> Path:
    name = f"elasticsearch-{ELASTICSEARCH}.zip"
    artifact = f"org.elasticsearch.distribution.integ-test-zip:elasticsearch:{ELASTICSEARCH}:zip"
    return _fetched(
        name,
        "Elasticsearch: install Maven and a JDK 21 or later, or set TLM_TEST_ELASTICSEARCH_URL",
        lambda folder: ["mvn", "-q", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={folder}"],
        {},
    )


def _versitygw() -> Path:
    return _fetched(
        "versitygw",
        "S3: install Go, or set TLM_TEST_S3_URL, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        lambda _: ["go", "install", f"github.com/versity/versitygw/cmd/versitygw@v{VERSITYGW}"],
        {"GOFLAGS": "-trimpath"},
    )


def _fetched(name: str, advice: str, command: Callable[[Path], list[str]], environment: dict[str, str]) -> Path:
    """The file `name` in the cache; `command` puts it into a folder of its own first, so that it appears whole."""
    target = cache_folder() / name
    if not target.exists():
        with tempfile.TemporaryDirectory(dir=cache_folder()) as part:
            folder = Path(part)
            try:
                env = {**os.environ, "GOBIN": part, **environment}
                subprocess.run(command(folder), cwd=part, env=env, check=True, capture_output=True, timeout=600)
            except (OSError, subprocess.SubprocessError):
                raise Missing(advice) from None
            (folder / name).replace(target)
    return target


def _java_home() -> Path:
    given = [Path(os.environ[name]) for name in ("ES_JAVA_HOME", "JAVA_HOME") if os.environ.get(name)]
    system = [*Path("/usr/lib/jvm").glob("*"), *Path("/Library/Java/JavaVirtualMachines").glob("*/Contents/Home")]
    for home in [*given, *sorted(system)]:
        with suppress(OSError):
            version = re.search(r'^JAVA_VERSION="(\d+)', (home / "release").read_text(), re.MULTILINE)
            if version and int(version[1]) >= JAVA_AT_LEAST:
                return home
    raise Missing(
        f"Elasticsearch: install a JDK {JAVA_AT_LEAST} or later (JAVA_HOME), or set TLM_TEST_ELASTICSEARCH_URL"
    )


def _unpack(archive: Path, folder: Path) -> Path:
    with zipfile.ZipFile(archive) as file:
        file.extractall(folder)
    home = next(folder.glob("elasticsearch-*"))
    for script in (home / "bin").iterdir():
        script.chmod(0o755)  # zipfile drops permissions
    return home


def _own(folder: Path) -> None:
    """Give the folder to the user that the server runs as: Elasticsearch refuses to run as root."""
    if os.getuid() == 0:
        for path in [folder, *folder.rglob("*")]:
            os.chown(path, NOBODY, NOBODY)


@contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="tlm-server-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _process(
    command: list[str], environment: dict[str, str], folder: Path, as_nobody: bool = False
) -> Iterator[Callable[[], None]]:
    """Run a server; yields a check that it is alive. It is stopped at the end, and if this process dies."""
    user = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if as_nobody and os.getuid() == 0 else {}
    log = folder / "server.log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            command, env=environment, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            start_new_session=True, preexec_fn=_die_with_parent, **user,
        )  # fmt: skip

    def alive() -> None:
        if server.poll() is not None:
            raise RuntimeError(
                f"{command[0]} ended with {server.returncode}: {log.read_text(errors='replace')[-3000:]}"
            )

    try:
        yield alive
    finally:
        server.terminate()
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG: tests that are killed leave no server behind


@contextmanager
def _container(
    missing: Missing, image: str, address: tuple[str, int], inside: int, environment: dict[str, str], *command: str
) -> Iterator[str]:
    """The same server from its Docker image; raises `missing` where there is no Docker either."""
    host, port = address
    name = f"tlm-tests-{os.getpid()}-{port}"
    variables = [part for name, value in environment.items() for part in ("-e", f"{name}={value}")]
    run = [
        "docker",
        "run",
        "-d",
        "--rm",
        "--name",
        name,
        "-p",
        f"{host}:{port}:{inside}",
        *variables,
        image,
        *command,
    ]
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
