"""An Elasticsearch cluster of two nodes, two processes of the real server."""

from contextlib import contextmanager

import pytest

from tests.conftest import started
from tests.searchable import assert_same, by_query, corpus_of, docstrings, task_of
from tests.servers.conftest import client_of
from tests.servers.servers import free_port, installed
from tlm.retrieval.retrieve import retrieve
from tlm.retrieval.search import elastic_build
from tlm.retrieval.search.elastic_build import data_nodes
from tlm.retrieval.search.index import build_index
from tlm.runs.preflight import preflight


@contextmanager
def two():
    """The URL of one of them. Raises Missing where it is not installed: these nodes are not started in containers."""
    ports = [free_port(), free_port()]
    common = [
        "discovery.type=multi-node",
        "cluster.name=two",
        "cluster.initial_master_nodes=first",
        f"discovery.seed_hosts=127.0.0.1:{ports[0]}",
    ]
    first = [*common, "node.name=first", f"transport.port={ports[0]}"]
    second = [*common, "node.name=second", f"transport.port={ports[1]}", "node.roles=data"]
    with installed(*first, heap="512m") as server, installed(*second, heap="512m"):
        yield server.url


@pytest.fixture(scope="module")
def two_nodes():
    yield from started(two)


@pytest.fixture
def nodes(two_nodes, monkeypatch):
    monkeypatch.setenv("TLM_ELASTICSEARCH_URL", two_nodes)
    return client_of(two_nodes)


def test_four_shards_on_two_nodes_give_the_hits_of_one(nodes, tmp_path, monkeypatch, capsys):
    assert data_nodes(nodes) == 2
    root, texts = str(tmp_path), list(docstrings())
    corpus, task = corpus_of(texts, root), task_of(texts[::30], root)
    whole = retrieve(build_index(corpus, engine="elasticsearch", name="whole", root=root), task, root=root)

    monkeypatch.setattr(elastic_build, "FEWEST_IN_SHARD", 100)
    preflight(engine="elasticsearch", root=root)
    said = capsys.readouterr().err
    (holder,) = {shard["node"] for shard in nodes.cat.shards(index="tlm-whole*", format="json")}
    (idle,) = {"first", "second"} - {holder}
    assert f"warning: {idle} of Elasticsearch's data nodes have no shard of 'tlm-whole-" in said

    monkeypatch.setattr(elastic_build, "MOST_IN_SHARD", -(-len(texts) // 4))
    index = build_index(corpus, engine="elasticsearch", name="in-shards", root=root)
    shards = nodes.cat.shards(index="tlm-in-shards*", format="json")
    assert sorted(shard["node"] for shard in shards) == ["first", "first", "second", "second"]
    assert_same(by_query(whole), by_query(retrieve(index, task, root=root)))

    nodes.indices.delete(index=next(iter(nodes.indices.get(index="tlm-whole*"))))
    capsys.readouterr()
    preflight(engine="elasticsearch", root=root)
    assert "warning" not in capsys.readouterr().err
