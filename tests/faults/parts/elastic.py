"""Elasticsearch that is killed, busy, cut off, blocked or altered: the same documents and hits, or one sentence."""

import tempfile
from collections.abc import Iterator

from tests.faults.attempts import repeated, trials
from tests.faults.cases.elastic import CASES, LONG_CASES
from tests.faults.junit import counted
from tests.faults.row import Row
from tests.faults.searching import Searching, searching
from tests.servers.faulty import HALF, HANG_UP, LOST, RESET, Weather

PROVED = tuple(
    f"tests/{name}.py"
    for name in ("servers/test_elastic_faults", "servers/test_elastic_security", "k8s/test_elasticsearch_keys")
)
TROUBLES = (429, 503, 502, RESET, HANG_UP, LOST, HALF)


def rows(seconds: int, seed: int) -> Iterator[Row]:
    """The server killed, then trouble on the way to it, then the cases and what the servers' tests prove."""
    del seconds
    with tempfile.TemporaryDirectory() as root, searching(root, 12_000, 1500) as ground:
        yield trials(
            "Elasticsearch killed at a random time during an index build",
            lambda number: killed_while_filled(ground, number), range(seed, seed + 10),
        )  # fmt: skip
        yield trials(
            "Elasticsearch killed at a random time during queries",
            lambda number: killed_while_searched(ground, number), range(seed, seed + 5),
        )  # fmt: skip
    with tempfile.TemporaryDirectory() as root, searching(root, 2000, 200) as ground:
        yield trials(
            "30 % of requests fail (429, 502, 503, reset, lost, truncated) during index build and queries",
            lambda number: troubled(ground, number), range(seed, seed + 20),
        )  # fmt: skip
        yield trials(
            "index changed, blocked or deleted; key expired; disk full",
            lambda number: (*CASES, *LONG_CASES)[number](ground), range(len(CASES) + len(LONG_CASES)),
        )  # fmt: skip
    yield from counted(list(PROVED), lambda *_: "server tests: faults, keys, roles, TLS")


def killed_while_filled(ground: Searching, seed: int) -> None:
    """The build goes on by itself, or when it is repeated."""
    index, _ = ground.restarted(lambda: ground.index(f"killed-{seed}"), ground.build_seconds, seed)
    ground.check(index, killed=True)


def killed_while_searched(ground: Searching, seed: int) -> None:
    """So do the queries."""
    index = ground.index("undisturbed")
    found, _ = ground.restarted(lambda: ground.hits(index), ground.search_seconds, seed)
    assert found == ground.undisturbed
    ground.check(index)


def troubled(ground: Searching, seed: int) -> None:
    """Build and queries with trouble, then a look at the index without it."""
    weather = Weather(seed, TROUBLES)
    with ground.through(weather):
        index, _ = repeated(lambda: ground.index(f"troubled-{seed}"), 0.1)
        assert repeated(lambda: ground.hits(index), 0.1)[0] == ground.undisturbed
    assert sum(weather.given.values()) > 5, "too little trouble to learn anything"
    ground.check(index)
