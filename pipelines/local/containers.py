"""Run steps in containers on this machine, hardened as on a cluster, with access to Elasticsearch and the store."""

import os
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import docker
from docker.errors import APIError, DockerException
from docker.types import DeviceRequest, Mount
from kfp.local import DockerRunner

from pipelines.resources import ADDRESSES, ELASTICSEARCH_FOLDER
from tlm.cluster.job import S3_KEYS, USER
from tlm.errors import InputError
from tlm.training.distributed.cards import LOCKS, VISIBLE

PASSED_ON = ("TLM_THREADS", VISIBLE, *ADDRESSES, *S3_KEYS)
FILES = {"TLM_ELASTICSEARCH_API_KEY_FILE": "api-key", "TLM_ELASTICSEARCH_CA_FILE": "ca.crt"}
LABEL = "tlm.run"


@contextmanager
def hardened_runner(outputs: Path, network: str, gpus: bool) -> Iterator[DockerRunner]:
    """Yield a runner whose containers can write to `outputs` and /tmp only; it removes remaining containers at the end.

    They run as the calling user, or as user 65532 if that is root; `outputs` then belongs to that user. With `gpus`
    they see all GPUs, and steps that need some lock them in `outputs`.

    Raises:
        InputError: No Docker daemon answers, or it has no such network.
    """
    name = uuid.uuid4().hex
    with closing(_daemon()) as daemon:
        if not daemon.networks.list(names=[network]):
            raise InputError(f"Docker has no network '{network}'; `docker network ls` lists them")
        outputs.mkdir(parents=True, exist_ok=True)
        try:
            yield DockerRunner(**hardened(outputs, network, gpus), labels={LABEL: name})
        finally:
            ours = {"label": f"{LABEL}={name}"}
            for container in daemon.containers.list(all=True, filters=ours, ignore_removed=True):
                with suppress(APIError):  # Docker is removing it already
                    container.remove(force=True)


def hardened(outputs: Path, network: str, gpus: bool) -> dict[str, Any]:
    """The options of `hardened_runner`'s containers."""
    uid, gid = os.getuid() or USER, os.getgid() or USER
    if os.getuid() == 0:
        os.chown(outputs, uid, gid)
    environment = {name: os.environ[name] for name in PASSED_ON if os.environ.get(name)}
    return {
        "cap_drop": ["ALL"],
        "device_requests": [DeviceRequest(count=-1, capabilities=[["gpu"]])] if gpus else [],
        "environment": environment | {LOCKS: str(outputs / "gpus")},
        "mounts": [_secret(name) for name in FILES if os.environ.get(name)],
        "network": network,
        "read_only": True,
        "security_opt": ["no-new-privileges"],
        "shm_size": "1g",
        "tmpfs": {"/tmp": "mode=1777"},
        "user": f"{uid}:{gid}",
    }


def _daemon() -> docker.DockerClient:
    try:
        client = docker.from_env()
        client.ping()
    except DockerException as error:
        raise InputError(f"no Docker daemon answers ({error}); start it, or run without --docker") from None
    return client


def _secret(variable: str) -> Mount:
    path = Path(os.environ[variable])
    if not path.is_file():
        raise InputError(f"{variable} is '{path}', which is no file")
    return Mount(f"{ELASTICSEARCH_FOLDER}/{FILES[variable]}", str(path.absolute()), type="bind", read_only=True)
