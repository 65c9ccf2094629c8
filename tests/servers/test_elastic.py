"""Elasticsearch as an engine, on a real server: the same terms, scores and hits as the embedded engine's."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.searchable import columns, corpus_of, docstrings, task_of
from tests.unit.test_analyzer import CLASSES
from tlm.artifacts.artifact import Artifact
from tlm.retrieval.search.analyzer import terms
from tlm.retrieval.search.index import build_index, open_engine
from tlm.retrieval.search.retrieve import retrieve

TOKENS_AT_ONCE = 9000  # _analyze gives 10,000 at most
LONG = st.sampled_from(["a", "a", "a", "_", "'", "é", "1", ".", "\U0001d400", "\u0301", "ก"])


def analyzed(elasticsearch, text):
    """The server's terms; no token reaches over a line's end."""
    answer = elasticsearch.indices.analyze(analyzer="standard", text=text)
    return [token["token"] for token in answer["tokens"]]


@settings(max_examples=200, deadline=None)
@given(texts=st.lists(st.text(st.sampled_from(CLASSES), max_size=30) | st.text(max_size=30), max_size=20))
def test_terms_of_any_text(elasticsearch, texts):
    text = "\n".join(texts)
    assert terms(text) == analyzed(elasticsearch, text)


@settings(max_examples=100, deadline=None)
@given(pieces=st.lists(LONG, min_size=200, max_size=900))
def test_terms_that_are_too_long(elasticsearch, pieces):
    text = "".join(pieces)
    assert terms(text) == analyzed(elasticsearch, text)


def test_terms_of_real_text(elasticsearch):
    for start in range(0, 3000, 100):
        text = "\n".join(passage[:1000] for passage in docstrings()[start : start + 100])
        assert terms(text) == analyzed(elasticsearch, text)


def test_every_character_between_letters(elasticsearch):
    codes = [*range(1, 0xD800), *range(0xE000, 0x20000), *range(0xE0000, 0xE0200)]
    for start in range(0, len(codes), TOKENS_AT_ONCE // 3):
        text = "\n".join(f"a{chr(code)}b" for code in codes[start : start + TOKENS_AT_ONCE // 3])
        assert terms(text) == analyzed(elasticsearch, text)


def both(texts, queries, root, top_k=50, **parameters):
    """URIs of the hits of the same corpus and task through either engine."""
    corpus, task = corpus_of(texts, root), task_of(queries, root)
    engines = ("embedded", "elasticsearch")
    indices = [build_index(corpus, engine=engine, root=root, **parameters) for engine in engines]
    return [retrieve(index, task, query="full", top_k=top_k, root=root) for index in indices]


def by_query(hits):
    """For each query its documents and scores, best first."""
    found = columns(hits, "hits.parquet")
    queries: dict[int, list[tuple[int, float]]] = {}
    for query, doc, score in zip(found["query"], found["doc"], found["score"], strict=True):
        queries.setdefault(query, []).append((doc, score))
    return queries


def assert_same(ours, theirs):
    """Scores equal but for rounding, and so are the documents but for those that rounding makes change places."""
    assert ours.keys() == theirs.keys()
    overlaps = []
    for query, hits in ours.items():
        assert [score for _, score in hits] == pytest.approx([score for _, score in theirs[query]], rel=2e-6)
        overlaps.append(len({doc for doc, _ in hits} & {doc for doc, _ in theirs[query]}) / len(hits))
    assert np.mean(overlaps) >= 0.999


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


def test_hits_do_not_depend_on_the_number_of_shards(elasticsearch_root, elasticsearch):
    hits = both(list(docstrings()), list(docstrings()[::30]), elasticsearch_root)[1]
    engine = open_engine(Artifact.open(hits).input("index"))
    settings = {"index.number_of_shards": 4, "index.number_of_replicas": 0, "index.blocks.write": None}
    elasticsearch.indices.split(index=engine.index, target="tlm-split", settings=settings)
    elasticsearch.cluster.health(index="tlm-split", wait_for_status="green", timeout="60s")
    elasticsearch.indices.forcemerge(index="tlm-split", max_num_segments=1)  # what was split off no longer counts
    elasticsearch.indices.refresh(index="tlm-split")
    engine.index = "tlm-split"
    answers = engine.search(columns(hits, "queries.parquet")["text"], 50)
    found = {
        query: list(zip(docs.tolist(), scores.tolist(), strict=True)) for query, (docs, scores) in enumerate(answers)
    }
    assert_same(by_query(hits), found)


def test_hits_are_the_same_artifact_by_whatever_name_the_index_has(elasticsearch_root):
    corpus, task = corpus_of(["a b", "b c", "c d"], elasticsearch_root), task_of(["a c"], elasticsearch_root)
    indices = [
        build_index(corpus, engine="elasticsearch", name=name, root=elasticsearch_root) for name in ("one", "two")
    ]
    assert indices[0] != indices[1], "each has its own place on the server"
    assert len({retrieve(index, task, root=elasticsearch_root) for index in indices}) == 1
