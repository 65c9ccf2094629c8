"""Fixtures for the container tests: the images that `make images` built, and servers that containers reach."""

import hashlib
import json
import os
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import docker
import pytest
from docker.errors import DockerException, ImageNotFound

from tests.conftest import missing, started
from tests.servers import servers

ROOT = Path(__file__).parents[2]
BUILT = Path(os.environ.get("TLM_TEST_IMAGES") or ROOT / "build" / "images.json")
HARDENED = ("--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--network=none", "--tmpfs=/tmp")
SOURCE_DIGEST = """
import hashlib, pathlib, tlm
home = pathlib.Path(tlm.__file__).parent
names = sorted(str(path.relative_to(home)) for path in home.rglob("*.py"))
print(hashlib.sha256(b"".join(name.encode() + (home / name).read_bytes() for name in names)).hexdigest())
"""

InContainer = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def daemon() -> Iterator[docker.DockerClient]:
    """The Docker daemon, seen through its API."""
    why = ""
    try:
        client = docker.from_env()
        client.ping()
    except DockerException as error:
        why = f"Docker: install it and start its daemon ({error})"
    if why:
        missing(why)
    yield client
    client.close()


@pytest.fixture(scope="session")
def images(daemon: docker.DockerClient) -> dict[str, str]:
    """References of the three images by kind; they hold the code that is tested."""
    try:
        references: dict[str, str] = json.loads(BUILT.read_text())
        found = [daemon.images.get(reference) for reference in references.values()]
    except (OSError, ImageNotFound) as error:
        missing(f"images: `make images` builds them ({error}); TLM_TEST_IMAGES names another file than {BUILT}")
    assert len(found) == len(references)
    if "serve" not in references:
        missing(f"images: {BUILT} names no image 'serve'; `make images` builds it")
    for reference in references.values():
        run = ["-c", SOURCE_DIGEST]
        inside = daemon.containers.run(reference, run, entrypoint="python3", remove=True).decode().strip()
        if inside != source_digest():
            missing(f"images: {reference} holds another state of tlm/ than this checkout; `make images` builds it anew")
    return references


def source_digest() -> str:
    """What `SOURCE_DIGEST` prints in an image of this checkout."""
    home = ROOT / "tlm"
    names = sorted(str(path.relative_to(home)) for path in home.rglob("*.py"))
    return hashlib.sha256(b"".join(name.encode() + (home / name).read_bytes() for name in names)).hexdigest()


@pytest.fixture(scope="session")
def in_container(images: dict[str, str], daemon: docker.DockerClient) -> InContainer:
    """Run a command in a hardened container of an image without network; it must end with `code`."""

    def run(kind: str, *command: str, code: int = 0, options: tuple[str, ...] = ()):  # type: ignore[no-untyped-def]
        program, arguments = ([f"--entrypoint={command[0]}"], command[1:]) if command else ([], ())
        whole = ["docker", "run", "--rm", *HARDENED, *options, *program, images[kind], *arguments]
        done = subprocess.run(whole, capture_output=True, text=True, timeout=300)
        assert done.returncode == code, f"{whole} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        return done

    return run


@pytest.fixture(scope="session")
def inner_network(daemon: docker.DockerClient) -> Iterator[tuple[str, str]]:
    """(name, address of this machine) of a network that leads to this machine and nowhere else."""
    network = daemon.networks.create(f"tlm-tests-{uuid.uuid4().hex[:8]}", driver="bridge", internal=True)
    try:
        network.reload()
        yield network.name, network.attrs["IPAM"]["Config"][0]["Gateway"]
    finally:
        network.remove()


@pytest.fixture(scope="session")
def inner_elasticsearch(inner_network: tuple[str, str]) -> Iterator[str]:
    """A real Elasticsearch that containers of the inner network reach."""
    yield from started(lambda: servers.elasticsearch(heap="512m", host=inner_network[1]))


@pytest.fixture(scope="session")
def inner_s3(inner_network: tuple[str, str]) -> Iterator[servers.S3Server]:
    """A real S3 server that containers of the inner network reach."""
    yield from started(lambda: servers.s3(host=inner_network[1]))
