"""What the tests of servers share."""

import pytest
from elasticsearch import Elasticsearch

from tlm.retrieval.search import elastic_client


@pytest.fixture(scope="session")
def elasticsearch(elasticsearch_url):
    """A client of the real server, to look behind the engine's back."""
    return client_of(elasticsearch_url)


def client_of(url):
    """A client whose requests are as plain as the engine's, so that Elasticsearch 8 takes them, too."""
    return Elasticsearch(url, request_timeout=120, transport_class=elastic_client._Transport)


@pytest.fixture
def elasticsearch_root(tmp_path, elasticsearch_url, elasticsearch, monkeypatch):
    """A root for artifacts, while the environment names the real server; its indices are removed afterwards."""
    monkeypatch.setenv("TLM_ELASTICSEARCH_URL", elasticsearch_url)
    for variable in ("TLM_ELASTICSEARCH_API_KEY_FILE", "TLM_ELASTICSEARCH_CA_FILE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(elastic_client, "LONGEST_PAUSE_SECONDS", 0.02)
    before = set(elasticsearch.indices.get(index="tlm-*"))  # a server that was given may hold other people's
    yield str(tmp_path / "root")
    for index in set(elasticsearch.indices.get(index="tlm-*")) - before:
        elasticsearch.indices.delete(index=index)
