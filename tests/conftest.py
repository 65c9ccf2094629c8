"""Fixtures for all tests: real servers, each started once a session and only if a test asks for it."""

import fcntl
import functools
import inspect
import os
import shutil
import signal
import subprocess
import termios
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import pytest

from tests.servers import servers

if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # the other processors are other tests'; read when torch is imported

os.environ.pop("TLM_ROOT", None)  # of whoever runs the tests
signal.signal(signal.SIGHUP, lambda *_: None)  # programs inherit a signal that is ignored, as by nohup, but no handler

# kfp asks who called it at each setting of a step, which takes seconds a pipeline where thousands of modules are loaded
# and the lines of source around each caller are looked up.
inspect.stack = functools.partial(inspect.stack, 0)
# As no test cuts the power, none can see whether the disk has what was written; the disk takes minutes over it.
os.fsync = lambda handle: None

pytest_plugins = ["tests.timing", "tests.workers"]

T = TypeVar("T")
SLOW_FOLDERS = ("containers", "k8s", "servers")
SLOW_FIXTURES = {"elasticsearch_url", "s3_server", "chain"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow is what needs a server, an image or a fetched tool, and all of a run's steps to be killed in."""
    for item in items:
        folder = item.path.relative_to(Path(__file__).parent).parts[0]
        if folder in SLOW_FOLDERS or SLOW_FIXTURES & {*getattr(item, "fixturenames", ())}:
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: "k8s" in item.path.parts)  # its short files last: then all processes end together


@pytest.fixture(scope="session")
def elasticsearch_url() -> Iterator[str]:
    """A real Elasticsearch 9 without security: ``TLM_TEST_ELASTICSEARCH_URL``, or one started here."""
    given = os.environ.get("TLM_TEST_ELASTICSEARCH_URL")
    if given:
        yield given
    else:
        yield from started(servers.elasticsearch)


@pytest.fixture(scope="session")
def s3_server() -> Iterator[servers.S3Server]:
    """A real S3 server: ``TLM_TEST_S3_URL`` (with the usual AWS_ variables for keys), or one started here."""
    given = os.environ.get("TLM_TEST_S3_URL")
    if given:
        yield servers.S3Server(given, os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"])
    else:
        yield from started(servers.s3)


@pytest.fixture
def s3_root(s3_server: servers.S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> Iterator[str]:
    """``s3://<fresh bucket>/prefix``; the environment leads boto3's default chain there."""
    import boto3

    from tlm.artifacts.stores import opened

    for name, value in {
        "AWS_ENDPOINT_URL_S3": s3_server.url,
        "AWS_ACCESS_KEY_ID": s3_server.access,
        "AWS_SECRET_ACCESS_KEY": s3_server.secret,
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",  # the name that boto3 itself reads
        "TLM_CACHE": f"{tmp_path}/tlm-cache",
    }.items():
        monkeypatch.setenv(name, value)
    bucket = f"tlm-{uuid.uuid4().hex[:16]}"
    boto3.client("s3").create_bucket(Bucket=bucket)
    opened.cache_clear()  # clients hold the endpoint and the keys they were made with
    yield f"s3://{bucket}/prefix"
    opened.cache_clear()


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate that vouches for itself, and its key beside it."""
    if shutil.which("openssl") is None:
        missing("TLS: install openssl")
    folder = tmp_path_factory.mktemp("tls")
    names = ["-subj", "/CN=tlm-tests", "-addext", "subjectAltName=IP:127.0.0.1"]
    new = [
        "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", "key.pem", "-out",
        "cert.pem",
    ]  # fmt: skip
    subprocess.run([*new, *names], cwd=folder, check=True, capture_output=True)
    return folder / "cert.pem"


def started(server: Callable[[], AbstractContextManager[T]]) -> Iterator[T]:
    """The running server, stopped at the end; `missing` is called where it cannot be had."""
    why = ""
    with ExitStack() as stack:
        try:
            value = stack.enter_context(server())
        except servers.Missing as error:
            why = str(error)
        if why:
            missing(why)
        yield value


def heed_interrupts() -> None:
    """For a child process: SIGINT as at a terminal, also where the tests run in the background and it is ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def with_terminal(command: Sequence[str], ignore: bool = False, **how: Any) -> tuple["subprocess.Popen[bytes]", int]:
    """A process at a terminal of its own, and the other end of it: when that is closed, the terminal is gone.

    With `ignore`, it ignores SIGHUP from the beginning on, as `nohup` has it.
    """
    end, own = os.openpty()

    def settle() -> None:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        signal.signal(signal.SIGHUP, signal.SIG_IGN if ignore else signal.SIG_DFL)

    pipes = {"stdin": own, "stdout": own, "stderr": own, "start_new_session": True, "preexec_fn": settle}
    process = subprocess.Popen(command, cwd=Path(__file__).parents[1], **pipes, **how)
    os.close(own)
    return process, end


def missing(why: str) -> NoReturn:
    """Skip the test with one line that says what to install; under ``CI=true`` it is a failure."""
    if os.environ.get("CI") == "true":
        pytest.fail(why, pytrace=False)
    pytest.skip(why)
