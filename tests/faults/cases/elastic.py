"""What others do to an index, its key and its disk, and what is to come of it. Each case is given a `Searching`."""

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from elasticsearch.helpers import bulk

from tests.faults.attempts import environment, repeated
from tests.faults.searching import Searching
from tests.servers.faulty import HANG_UP, Answer, Request
from tlm.errors import InputError, Interrupted
from tlm.retrieval.search import elastic_client

EXPIRED = {"type": "security_exception", "reason": "unable to authenticate: api key is expired"}
DISK = "cluster.routing.allocation.disk"
FULL = {
    f"{DISK}.threshold_enabled": "true", f"{DISK}.watermark.low": "900tb", f"{DISK}.watermark.high": "900tb",
    f"{DISK}.watermark.flood_stage": "900tb", "cluster.info.update.interval": "10s",
}  # fmt: skip

Body = dict[str, Any]


def another_analyzer(ground: Searching) -> None:
    exchanged(ground, "analyzer", lambda text, _: text.update(analyzer="whitespace"))


def a_known_analyzer_with_another_meaning(ground: Searching) -> None:
    without = {"analyzer": {"standard": {"type": "standard", "stopwords": ["the", "a", "of"]}}}
    exchanged(ground, "meaning", lambda _, settings: settings.update(analysis=without))


def another_similarity(ground: Searching) -> None:
    exchanged(ground, "similarity", lambda _, settings: settings["similarity"]["tlm"].update(b=0))


def another_mapping(ground: Searching) -> None:
    exchanged(ground, "mapping", lambda text, _: text.update(index_options="docs"))


def exchanged(ground: Searching, name: str, change: Callable[[Body, Body], None]) -> None:
    """Somebody makes the index again with our _meta and passages, but changed: neither searched nor taken for ours."""
    index = ground.index(name)
    there = ground.name(index)
    entry = ground.client.indices.get(index=there)[there]
    settings = {"similarity": entry["settings"]["index"]["similarity"]}
    change(entry["mappings"]["properties"]["text"], settings)
    ground.client.indices.delete(index=there)
    ground.client.indices.create(index=there, mappings=entry["mappings"], settings=settings)
    documents = ({"_index": there, "_id": str(doc), "doc": doc, "text": text} for doc, text in enumerate(ground.texts))
    bulk(ground.client, documents, refresh=True)
    with pytest.raises(InputError, match=r"made from something else \(its _meta, mapping or similarity differs"):
        ground.hits(index)
    shutil.rmtree(index)
    with pytest.raises(InputError, match=r"was made from something else .*; remove it there, or choose another name"):
        ground.index(name)


def removed_while_it_is_filled(ground: Searching) -> None:
    """It is not made anew by the documents that still come, with a mapping and similarity that the server guesses."""
    numbers = count()

    def remove(request: Request) -> None:
        if "_bulk" in request.path and next(numbers) == 3:
            (index,) = ground.client.indices.get(index="tlm-removed-*")
            ground.client.indices.delete(index=index)

    with (
        ground.through(remove),
        pytest.raises(Interrupted, match=r"lost the index in the meantime .*; repeat the command"),
    ):
        ground.index("removed", k1=0.9)
    ground.index("removed", k1=0.9)
    ground.check(ground.index("removed"))


def removed_while_it_is_searched(ground: Searching) -> None:
    index = ground.index("searched")
    numbers = count()

    def remove(request: Request) -> None:
        if "_msearch" in request.path and next(numbers) == 1:
            ground.client.indices.delete(index=ground.name(index))

    with ground.through(remove), pytest.raises(Interrupted, match="lost the index in the meantime"):
        ground.hits(index)
    with pytest.raises(InputError, match=r"has no index .*; run `tlm index` again to restore it"):
        ground.hits(index)
    assert ground.index("searched") == index
    ground.check(index)


def half_built_and_read_only(ground: Searching) -> None:
    half_built(ground, "only")
    (there,) = ground.client.indices.get(index="tlm-only-*")
    ground.client.indices.put_settings(index=there, settings={"index.blocks.read_only": True})
    with pytest.raises(Interrupted, match=r"has blocked this .*read-only.*; lift that block there"):
        ground.index("only")
    ground.client.indices.put_settings(index=there, settings={"index.blocks.read_only": None})
    ground.check(ground.index("only"))


def a_server_that_is_read_only(ground: Searching) -> None:
    blocked = pytest.raises(Interrupted, match=r"has blocked this .*read-only.*; lift that block there")
    with cluster(ground, {"cluster.blocks.read_only": "true"}), blocked:
        ground.index("cluster")
    ground.check(ground.index("cluster"))


def blocked_to_readers(ground: Searching) -> None:
    index = ground.index("readers")
    ground.client.indices.put_settings(index=ground.name(index), settings={"index.blocks.read": True})
    with pytest.raises(Interrupted, match=r"has blocked this .*index read.*; lift that block there"):
        ground.hits(index)
    ground.client.indices.put_settings(index=ground.name(index), settings={"index.blocks.read": None})
    ground.check(index)


def writers_at_once(ground: Searching) -> None:
    with ThreadPoolExecutor(4) as pool:
        (index,) = set(pool.map(lambda _: ground.index("together"), range(4)))
    ground.check(index)


def overtaken_by_another_writer(ground: Searching) -> None:
    """Which closes the finished index to all who still write."""
    numbers = count()

    def overtake(request: Request) -> None:
        if "_bulk" in request.path and next(numbers) == 3:
            ground.index("overtaken")

    with ground.through(overtake):
        index = ground.index("overtaken")
    ground.check(index)


def a_key_that_expires(ground: Searching) -> None:
    numbers = count()

    def expire(request: Request) -> Answer | None:
        return Answer(401, json.dumps({"error": EXPIRED, "status": 401}).encode()) if next(numbers) > 9 else None

    with (
        ground.through(expire),
        pytest.raises(InputError, match=r"does not accept our credentials .*expired\); write a valid API key"),
    ):
        ground.index("expired")
    ground.check(ground.index("expired"))


def a_file_that_holds_no_key(ground: Searching) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "key")
        for wrong in (b"c2VjcmV0\nc2VjcmV0", "geheim€".encode(), b"user: secret", b"\xff\xfe"):
            file.write_bytes(wrong)
            with (
                environment(TLM_ELASTICSEARCH_API_KEY_FILE=str(file)),
                pytest.raises(InputError, match="holds no API key") as error,
            ):
                ground.index("keyless")
            assert "c2Vj" not in str(error.value)


def a_disk_that_is_full_before(ground: Searching) -> None:
    with cluster(ground, FULL), patch.object(elastic_client, "TRIES", 2):
        deadline = time.monotonic() + 90
        while acknowledged(ground):  # until the server has looked at its disk
            assert time.monotonic() < deadline
        with pytest.raises(Interrupted, match=r"too busy for .* documents 2 times \(unavail.*free disk space there"):
            ground.index("full-before")
    ground.check(repeated(lambda: ground.index("full-before"))[0])


def acknowledged(ground: Searching) -> bool:
    """Whether a new index gets room."""
    made = ground.client.indices.create(index="tlm-probe", timeout="5s")
    ground.client.indices.delete(index="tlm-probe")
    return bool(made["shards_acknowledged"])


def a_disk_that_gets_full(ground: Searching) -> None:
    """The server's own block at its flood stage; it lifts it itself."""
    half_built(ground, "flood")
    (there,) = ground.client.indices.get(index="tlm-flood-*")
    with cluster(ground, FULL):
        until(lambda: "read_only_allow_delete" in str(ground.client.indices.get_settings(index=there)))
        with pytest.raises(Interrupted, match=r"has blocked this .*flood-stage.*; free disk space there"):
            ground.index("flood")
    with cluster(ground, {**FULL, **{name: "1b" for name in FULL if "watermark" in name}}):
        until(lambda: "read_only_allow_delete" not in str(ground.client.indices.get_settings(index=there)))
    ground.check(ground.index("flood"))


def half_built(ground: Searching, name: str) -> None:
    """The server goes away while an index is filled."""
    numbers = count()

    def gone(request: Request) -> int | None:
        return HANG_UP if "_bulk" in request.path and next(numbers) > 4 else None

    with patch.object(elastic_client, "TRIES", 1), ground.through(gone), pytest.raises(Interrupted, match="went away"):
        ground.index(name)


@contextmanager
def cluster(ground: Searching, settings: dict[str, str]) -> Iterator[None]:
    """The server with these settings, for a while."""
    ground.client.cluster.put_settings(persistent=settings)
    try:
        yield
    finally:
        ground.client.cluster.put_settings(persistent=dict.fromkeys(settings))


def until(true: Callable[[], bool], seconds: float = 120) -> None:
    """Wait."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.5)


CASES = (
    another_analyzer, a_known_analyzer_with_another_meaning, another_similarity, another_mapping,
    removed_while_it_is_filled, removed_while_it_is_searched, half_built_and_read_only, a_server_that_is_read_only,
    blocked_to_readers, writers_at_once, overtaken_by_another_writer, a_key_that_expires, a_file_that_holds_no_key,
)  # fmt: skip
LONG_CASES = (a_disk_that_is_full_before, a_disk_that_gets_full)  # the server looks at its disk every half minute
