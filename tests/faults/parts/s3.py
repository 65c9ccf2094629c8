"""An S3 server in trouble, gone or wrongly set: everything is stored exactly, or nothing is visible."""

import random
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import count

from tests.faults.attempts import trials
from tests.faults.cases.s3 import CASES, CASES_OF_ALL, Case
from tests.faults.junit import counted
from tests.faults.row import Row
from tests.faults.storing import Storing, asked, race, store, storing, whole
from tests.making import everything
from tests.servers.ceph import gateway
from tests.servers.faulty import HALF, HANG_UP, LOST, RESET, SLOW, Weather
from tests.servers.programs import Missing
from tlm.artifacts.artifact import Artifact
from tlm.cli.upkeep import gc

TROUBLES = (500, 503, RESET, HANG_UP, LOST, HALF, SLOW)
PROVED = tuple(f"tests/servers/test_{name}.py" for name in ("s3_store", "both_stores"))


def rows(seconds: int, seed: int) -> Iterator[Row]:
    """On versitygw, and on Ceph's gateway where that is installed."""
    with storing() as ground:
        yield from hurt(ground, "", CASES, seconds, seed)
    try:
        with storing(gateway) as ground:
            yield from hurt(ground, "Ceph: ", CASES_OF_ALL, seconds, seed)
    except Missing as missing:
        print(f"not tried: {missing}", file=sys.stderr)


def hurt(ground: Storing, whose: str, cases: Sequence[Case], seconds: int, seed: int) -> Iterator[Row]:
    """Trouble for so many seconds, the server gone for as long, a race, then the cases and the servers' tests."""
    yield trials(
        f"{whose}30 % of calls fail (500, 503, reset, lost, truncated, late) for {seconds} s",
        lambda number: troubled(ground, number, seconds), range(seed, seed + 5),
    )  # fmt: skip
    yield trials(
        f"{whose}server killed at a random time and gone for {seconds} s",
        lambda number: gone(ground, number, seconds), range(seed, seed + 5),
    )  # fmt: skip
    yield trials(f"{whose}8 concurrent writers, 20 keys", lambda number: raced(ground, number, 8, 20), [seed])
    yield trials(
        f"{whose}wrong or expired keys, clock skew, read-only, missing or versioned bucket, unfinished uploads",
        lambda number: cases[number](ground), range(len(cases)),
    )  # fmt: skip
    with asked(TLM_TEST_S3_URL=ground.url):
        yield from counted(list(PROVED), lambda *_: f"{whose}server tests: stores")


def troubled(ground: Storing, seed: int, seconds: float) -> None:
    """Artifacts are made for so long; all are whole, and the parts of uploads that failed can be removed."""
    root, weather = f"s3://faults/troubled-{seed}", Weather(seed, TROUBLES)
    deadline = time.monotonic() + seconds
    with ground.through(weather):
        for number in count():
            assert whole(store(root, number))
            if time.monotonic() > deadline:
                break
    assert sum(weather.given.values()) > 5, "too little trouble to learn anything"
    exact(ground, root, number + 1)


def gone(ground: Storing, seed: int, seconds: float) -> None:
    """So do those that are made while the server is killed and started again later."""
    root = f"s3://faults/gone-{seed}"

    def work() -> int:
        return len([store(root, number) for number in range(24)])

    exact(ground, root, ground.restarted(work, random.Random(seed), 2, seconds))


def exact(ground: Storing, root: str, artifacts: int) -> None:
    """So many are visible, each of them whole, and no part of an upload is left."""
    visible = ground.manifests(root)
    assert len(visible) == artifacts
    for name in visible:
        assert whole(Artifact.open(f"{root}/{name.rpartition('/')[0]}"))
    gc(keep_runs=0, unused_days=0, delete=True, root=root)
    assert ground.uploads(root) == []
    assert ground.manifests(root) == []


def raced(ground: Storing, seed: int, writers: int, keys: int) -> None:
    """Of each key there is one manifest, whose files are one writer's; all writers got its URI."""
    root = f"s3://faults/race-{seed}"
    for uris in race(root, writers, keys):
        (uri,) = set(uris)
        texts = {data.partition(b": ")[2].partition(b"\n")[0] for data in everything(Artifact.open(uri)).values()}
        assert texts <= {f"by {name}".encode() for name in range(writers)}
        assert len(texts) == 1
    assert len(ground.manifests(root)) == keys
