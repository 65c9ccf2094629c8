"""An S3 server that may be hurt, and what is stored there meanwhile."""

import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier
from typing import Any, TypeVar

import boto3

from tests.faults.attempts import environment, repeated
from tests.making import everything, expected, fill, make
from tests.servers.faulty import Trouble, faulty
from tests.servers.servers import S3Server, s3
from tlm.artifacts.artifact import MANIFEST, Artifact
from tlm.artifacts.produce import Draft
from tlm.artifacts.stores import open_store, opened

T = TypeVar("T")
Start = Callable[..., AbstractContextManager[S3Server]]
LARGE = bytes(range(256)) * (80 * 1024)  # 20 MiB: it goes up in parts


class Storing:
    """A server with a bucket; each experiment has a root of its own."""

    def __init__(self, server: S3Server) -> None:
        assert server.process is not None
        self.url, self.process = server.url, server.process
        self.client = boto3.client("s3", endpoint_url=server.url)
        self.client.create_bucket(Bucket="faults")

    @contextmanager
    def through(self, trouble: Trouble) -> Iterator[None]:
        """With trouble on the way to the server."""
        with faulty(self.url, trouble) as url, asked(AWS_ENDPOINT_URL_S3=url):
            yield

    def manifests(self, root: str) -> list[str]:
        """All that are visible under `root`."""
        with asked(AWS_ENDPOINT_URL_S3=self.url):
            return [stored.name for stored in open_store(root).list("") if stored.name.endswith(MANIFEST)]

    def uploads(self, root: str) -> list[str]:
        """Keys of what was begun in parts under `root` and never ended."""
        _, _, bucket, prefix = root.split("/")
        found = self.client.list_multipart_uploads(Bucket=bucket, Prefix=f"{prefix}/")
        return [upload["Key"] for upload in found.get("Uploads", [])]

    def restarted(self, work: Callable[[], T], chance: random.Random, seconds: float, gone: float) -> T:
        """What `work` gives in the end, while the server is killed some time in so many seconds, and is then gone."""
        with ThreadPoolExecutor(1) as pool:
            result = pool.submit(work)
            time.sleep(chance.uniform(0, seconds))
            self.process.kill()
            time.sleep(gone)
            self.process.start()
            return result.result(600)


@contextmanager
def storing(start: Start = s3, **variables: str) -> Iterator[Storing]:
    """On a server of its own, with further settings of it."""
    with (
        start(**variables) as server,
        asked(
            AWS_ENDPOINT_URL_S3=server.url, AWS_ACCESS_KEY_ID=server.access, AWS_SECRET_ACCESS_KEY=server.secret,
            AWS_SESSION_TOKEN=None, AWS_DEFAULT_REGION="us-east-1",
        ),
    ):  # fmt: skip
        yield Storing(server)


@contextmanager
def asked(**variables: str | None) -> Iterator[None]:
    """With this environment, and stores and sessions that know it."""
    with environment(**variables):
        _forget()
        yield
    _forget()


def _forget() -> None:
    boto3.DEFAULT_SESSION = None  # it remembers credentials
    opened.cache_clear()


def large(draft: Draft) -> None:
    """Files of every sort, and one that is large."""
    fill(draft)
    (draft.folder / "large.bin").write_bytes(LARGE)


def store(root: str, number: int) -> Artifact:
    """An artifact of that number, each fourth with a large file; repeated until it is there."""
    return repeated(lambda: make(root, fill if number % 4 else large, number=number), 0.2)[0]


def whole(artifact: Artifact) -> bool:
    """Whether every file, read as readers do, is what was written."""
    found = everything(artifact)
    return found.pop("large.bin", LARGE) == LARGE and found == expected()


def race(root: str, writers: int, keys: int) -> list[list[str]]:
    """For each key the URIs that processes got which all made it at once, each with other bytes."""
    context = get_context("spawn")
    start, found = context.Barrier(writers), context.Queue()
    processes = [context.Process(target=_writer, args=(root, keys, start, found, name)) for name in range(writers)]
    for process in processes:
        process.start()
    uris = [found.get(timeout=300) for _ in processes]
    for process in processes:
        process.join()
    return [[of_writer[key] for of_writer in uris] for key in range(keys)]


def _writer(root: str, keys: int, start: Barrier, found: Any, name: int) -> None:
    uris = []
    for key in range(keys):
        start.wait(300)
        uris.append(make(root, lambda draft: fill(draft, f"by {name}"), number=key).uri)
    found.put(uris)
