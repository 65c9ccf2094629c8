"""Elasticsearch as an engine, on a real server: the same terms, scores and hits as the embedded engine's."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.searchable import assert_same, by_query, columns, corpus_of, docstrings, task_of
from tests.unit.retrieval.test_analyzer import CLASSES
from tlm.artifacts.artifact import Artifact
from tlm.retrieval.retrieve import retrieve
from tlm.retrieval.search import elastic_build
from tlm.retrieval.search import index as index_step
from tlm.retrieval.search.analyzer import in_pairs, terms_of_text
from tlm.retrieval.search.elastic_build import data_nodes
from tlm.retrieval.search.index import build_index
from tlm.retrieval.selectors import dense
from tlm.retrieval.subset.export import export

TOKENS_AT_ONCE = 9000  # _analyze gives 10,000 at most
LONG = st.sampled_from(["a", "a", "a", "_", "'", "é", "1", ".", "\U0001d400", "\u0301", "ก"])


def analyzed(elasticsearch, text):
    """The server's terms of a text as it is sent; no token reaches over a line's end."""
    answer = elasticsearch.indices.analyze(analyzer="standard", text=in_pairs(text))
    return [token["token"] for token in answer["tokens"]]


@settings(max_examples=200, deadline=None)
@given(texts=st.lists(st.text(st.sampled_from(CLASSES), max_size=30) | st.text(max_size=30), max_size=20))
def test_terms_of_any_text(elasticsearch, texts):
    text = "\n".join(texts)
    assert terms_of_text(text) == analyzed(elasticsearch, text)


@settings(max_examples=100, deadline=None)
@given(pieces=st.lists(LONG, min_size=200, max_size=900))
def test_terms_that_are_too_long(elasticsearch, pieces):
    text = "".join(pieces)
    assert terms_of_text(text) == analyzed(elasticsearch, text)


def test_terms_of_real_text(elasticsearch):
    for start in range(0, 3000, 100):
        text = "\n".join(passage[:1000] for passage in docstrings()[start : start + 100])
        assert terms_of_text(text) == analyzed(elasticsearch, text)


def test_every_character_between_letters(elasticsearch):
    codes = [*range(1, 0xD800), *range(0xE000, 0x20000), *range(0xE0000, 0xE0200)]
    for start in range(0, len(codes), TOKENS_AT_ONCE // 3):
        text = "\n".join(f"a{chr(code)}b" for code in codes[start : start + TOKENS_AT_ONCE // 3])
        assert terms_of_text(text) == analyzed(elasticsearch, text)


def both(texts, queries, root, top_k=50, **parameters):
    """URIs of the hits of the same corpus and task through either engine."""
    corpus, task = corpus_of(texts, root), task_of(queries, root)
    engines = ("embedded", "elasticsearch")
    indices = [build_index(corpus, engine=engine, root=root, **parameters) for engine in engines]
    return [retrieve(index, task, query="full", top_k=top_k, root=root) for index in indices]


def test_hits_in_real_text(elasticsearch_root):
    ours, theirs = both(list(docstrings()), list(docstrings()[::15]), elasticsearch_root)
    assert_same(by_query(ours), by_query(theirs))
    for name in ("queries.parquet", "dropped.parquet"):
        assert columns(ours, name) == columns(theirs, name)


def test_hits_in_texts_of_all_lengths_with_other_parameters(elasticsearch_root):
    words = [word for text in docstrings() for word in text.split()]
    rng = random.Random(5)
    lengths = [*range(1, 300), *(rng.randrange(300, 20_000) for _ in range(60))]
    texts = [" ".join(rng.choices(words, k=length)) for length in lengths]
    queries = [" ".join(rng.choices(words, k=30)) for _ in range(30)]
    ours, theirs = both(texts, queries, elasticsearch_root, top_k=len(texts), k1=0.9, b=0.4)
    assert_same(by_query(ours), by_query(theirs))


def test_hits_in_many_scripts_and_among_equal_documents(elasticsearch_root):
    rng = random.Random(6)
    texts = ["".join(rng.choices(CLASSES + "  ", k=30)) for _ in range(300)] + ["", "...", *["same text"] * 80]
    ours, theirs = both(texts, [*texts[:100], "same", "Text text same"], elasticsearch_root)
    assert_same(by_query(ours), by_query(theirs))
    equal = [[doc for doc, _ in by_query(hits)[100]] for hits in (ours, theirs)]
    assert equal[0] == equal[1] == list(range(302, 352))


def test_hits_of_very_long_queries(elasticsearch_root):
    texts = list(docstrings()[:800])
    ours, theirs = both(texts, [" ".join(texts) * 2, "the " * 30_000], elasticsearch_root, top_k=800)
    assert_same(by_query(ours), by_query(theirs))
    assert columns(theirs, "dropped.parquet")["reason"] == ["cut"]


def test_hits_do_not_depend_on_the_number_of_shards(elasticsearch_root, elasticsearch, monkeypatch):
    corpus = corpus_of(list(docstrings()), elasticsearch_root)
    task = task_of(list(docstrings()[::30]), elasticsearch_root)
    monkeypatch.setattr(elastic_build, "FEWEST_IN_SHARD", 100)
    hits = []
    for name, nodes in (("whole", 1), ("in-shards", 4)):
        monkeypatch.setattr(elastic_build, "data_nodes", lambda client, nodes=nodes: nodes)
        index = build_index(corpus, engine="elasticsearch", name=name, root=elasticsearch_root)
        (made,) = elasticsearch.indices.get(index=f"tlm-{name}").values()
        assert made["settings"]["index"]["number_of_shards"] == f"{nodes}"
        assert made["mappings"]["_source"] == {"enabled": False}
        hits.append(by_query(retrieve(index, task, root=elasticsearch_root)))
    assert_same(*hits)


def test_hits_do_not_depend_on_the_number_of_processes_that_fill_an_index(elasticsearch_root, monkeypatch):
    corpus = corpus_of(list(docstrings()), elasticsearch_root)
    task = task_of(list(docstrings()[::30]), elasticsearch_root)
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "2")
    hits = []
    for name, several in (("one-process", 3), ("two-processes", 2)):
        monkeypatch.setattr(index_step, "SEVERAL", several)
        index = build_index(corpus, engine="elasticsearch", name=name, root=elasticsearch_root)
        hits.append(by_query(retrieve(index, task, root=elasticsearch_root)))
    assert hits[0] == hits[1]


@pytest.mark.parametrize(
    ("documents", "nodes", "expected"),
    [
        (1, 1, 1), (1, 9, 1), (1_000_000, 3, 1), (1_000_001, 3, 2), (50_000_000, 3, 3), (50_000_000, 1, 1),
        (150_000_000, 1, 1), (150_000_001, 1, 2), (1_500_000_000, 3, 10), (1_500_000_000, 64, 64),
    ],
)  # fmt: skip
def test_every_node_has_a_shard_unless_they_would_be_too_small(documents, nodes, expected):
    assert elastic_build.shards(documents, nodes) == expected


def test_the_nodes_with_data_are_counted(elasticsearch):
    assert data_nodes(elasticsearch) == 1


def test_documents_are_counted_beyond_the_ten_thousand_that_the_server_counts_by_itself(elasticsearch_root):
    corpus = corpus_of([f"w{number}" for number in range(10_001)], elasticsearch_root)
    index = build_index(corpus, engine="elasticsearch", root=elasticsearch_root)
    hits = retrieve(index, task_of(["w10000"], elasticsearch_root), query="full", root=elasticsearch_root)
    assert columns(hits, "hits.parquet")["doc"] == [10_000]


def test_hits_are_the_same_artifact_by_whatever_name_the_index_has(elasticsearch_root):
    corpus, task = corpus_of(["a b", "b c", "c d"], elasticsearch_root), task_of(["a c"], elasticsearch_root)
    indices = [
        build_index(corpus, engine="elasticsearch", name=name, root=elasticsearch_root) for name in ("one", "two")
    ]
    assert indices[0] != indices[1], "each has its own place on the server"
    assert len({retrieve(index, task, root=elasticsearch_root) for index in indices}) == 1


def test_vectors_find_what_exact_search_finds(elasticsearch_root):
    """Nearly: the server's search is approximate. Its scores are inner products of rounded vectors."""
    texts, queries = list(docstrings()), list(docstrings()[::15])
    corpus = corpus_of([*texts, "???"], elasticsearch_root)  # which has no word, and so no vector
    task = task_of([*queries, "unheard-of"], elasticsearch_root)
    root = elasticsearch_root
    plain = build_index(corpus, engine="elasticsearch", root=root)
    index = build_index(corpus, engine="elasticsearch", name="vectors", vectors=True, root=root)
    like = export(retrieve(plain, task, top_k=10, root=root), root=root)
    given = {"arm": "dense", "query": "full", "top_k": 10, "same_size_as": like, "root": root}
    exact, found = by_query(retrieve(plain, task, **given)), by_query(retrieve(index, task, **given))
    assert exact.keys() == found.keys()
    shared = [len({doc for doc, _ in exact[query]} & {doc for doc, _ in found[query]}) for query in exact]
    assert sum(shared) >= 0.95 * sum(map(len, exact.values()))
    of_exact = {(query, doc): score for query, hits in exact.items() for doc, score in hits}
    both = [(of_exact[query, doc], score) for query in found for doc, score in found[query] if (query, doc) in of_exact]
    assert max(abs(one - other) for one, other in both) < 0.02
    hybrid = by_query(retrieve(index, task, **{**given, "arm": "hybrid"}))
    assert {len(hits) for hits in hybrid.values()} == {50}


def test_an_index_with_vectors_is_restored_with_them(elasticsearch_root, elasticsearch, monkeypatch):
    """By several processes, and as many passages are found as are asked for."""
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "2")
    monkeypatch.setattr(index_step, "SEVERAL", 2)
    corpus = corpus_of(list(docstrings()[:200]), elasticsearch_root)
    given = {"engine": "elasticsearch", "vectors": True, "root": elasticsearch_root}
    index = build_index(corpus, **given)
    elasticsearch.indices.delete(index=index_step.located(Artifact.open(index))["index"])
    assert build_index(corpus, **given) == index
    engine = dense(Artifact.open(index), "", 0)
    assert all(len(docs) == 7 for docs, _ in engine.search(docstrings()[:5], 7))
    assert all(len(docs) == 200 for docs, _ in engine.search(docstrings()[:2], 6000))
