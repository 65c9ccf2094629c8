"""What the tests of the Elasticsearch engine share."""

import pytest
from elasticsearch import Elasticsearch

from tlm.retrieval.search.elastic import client as elastic_client


@pytest.fixture(scope="session")
def elasticsearch(elasticsearch_url):
    """A client of the real server, to look behind the engine's back."""
    return Elasticsearch(elasticsearch_url, request_timeout=120)


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
