"""Elasticsearch 8: the same tests, on a server that refuses what the client of version 9 sends by default."""

from contextlib import contextmanager

import pytest

from tests.conftest import started
from tests.servers.conftest import client_of
from tests.servers.programs import ELASTICSEARCH_8
from tests.servers.servers import installed
from tests.servers.test_elastic import (
    test_hits_in_many_scripts_and_among_equal_documents,
    test_hits_in_real_text,
    test_vectors_find_what_exact_search_finds,
)
from tests.servers.test_elastic_users import test_stores_that_end_at_once_leave_no_index

__all__ = [
    "test_hits_in_many_scripts_and_among_equal_documents",
    "test_hits_in_real_text",
    "test_stores_that_end_at_once_leave_no_index",
    "test_vectors_find_what_exact_search_finds",
]


@contextmanager
def eight():
    """The URL of a server, which is not started in a container where it is not installed."""
    with installed(heap="512m", version=ELASTICSEARCH_8) as server:
        yield server.url


@pytest.fixture(scope="module")
def elasticsearch_url():
    yield from started(eight)


@pytest.fixture(scope="module")
def elasticsearch(elasticsearch_url):
    return client_of(elasticsearch_url)


def test_the_server_is_of_version_8(elasticsearch):
    (node,) = elasticsearch.nodes.info(filter_path="nodes.*.version")["nodes"].values()
    assert node["version"] == ELASTICSEARCH_8
