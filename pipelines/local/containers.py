"""The steps in containers on this machine: hardened as on a cluster, with what leads them to their servers."""

import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import docker
from docker.errors import APIError, DockerException
from docker.types import Mount
from kfp.local import DockerRunner

from pipelines.parameters import OUTSIDE
from pipelines.resources import ADDRESSES, ELASTICSEARCH_FOLDER
from tlm.cluster.job import S3_KEYS, USER
from tlm.errors import InputError

PASSED_ON = ("TLM_THREADS", *ADDRESSES, *S3_KEYS)
FILES = {"TLM_ELASTICSEARCH_API_KEY_FILE": "api-key", "TLM_ELASTICSEARCH_CA_FILE": "ca.crt"}
LABEL = "tlm.run"


def check(parameters: Mapping[str, Any]) -> None:
    """Raises InputError for a parameter that names a file of this machine, which no container sees."""
    for name in OUTSIDE:
        value = str(parameters.get(name, "s3://"))
        if not all(part.strip().startswith("s3://") for part in value.split(",")):
            raise InputError(f"parameter '{name}': containers do not see '{value}' of this machine; give s3://…")


@contextmanager
def hardened_runner(outputs: Path, network: str) -> Iterator[DockerRunner]:
    """A runner whose containers write to `outputs` and /tmp alone; those still there at the end are removed.

    They run as the user who calls, and in root's place as 65532: `outputs` has to be theirs.

    Raises:
        InputError: no Docker daemon answers, or it has no such network.
    """
    name = uuid.uuid4().hex
    with _daemon() as daemon:
        if not daemon.networks.list(names=[network]):
            raise InputError(f"Docker has no network '{network}'; `docker network ls` lists them")
        outputs.mkdir(parents=True, exist_ok=True)
        uid, gid = os.getuid() or USER, os.getgid() or USER
        if os.getuid() == 0:
            os.chown(outputs, uid, gid)
        try:
            yield DockerRunner(
                cap_drop=["ALL"],
                environment={name: os.environ[name] for name in PASSED_ON if os.environ.get(name)},
                labels={LABEL: name},
                mounts=[_secret(name) for name in FILES if os.environ.get(name)],
                network=network,
                read_only=True,
                security_opt=["no-new-privileges"],
                shm_size="1g",
                tmpfs={"/tmp": "mode=1777"},
                user=f"{uid}:{gid}",
            )
        finally:
            ours = {"label": f"{LABEL}={name}"}
            for container in daemon.containers.list(all=True, filters=ours, ignore_removed=True):
                with suppress(APIError):  # Docker is just doing it
                    container.remove(force=True)


@contextmanager
def _daemon() -> Iterator[docker.DockerClient]:
    try:
        client = docker.from_env()
        client.ping()
    except DockerException as error:
        raise InputError(f"no Docker daemon answers ({error}); start it, or run without --docker") from None
    try:
        yield client
    finally:
        client.close()


def _secret(variable: str) -> Mount:
    path = Path(os.environ[variable])
    if not path.is_file():
        raise InputError(f"{variable} is '{path}', which is no file")
    return Mount(f"{ELASTICSEARCH_FOLDER}/{FILES[variable]}", str(path.absolute()), type="bind", read_only=True)
