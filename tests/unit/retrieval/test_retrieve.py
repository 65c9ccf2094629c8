"""Index and retrieve as steps: which queries are asked, what is found, what is recorded, what is refused."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.searchable import columns, corpus_of, docstrings, task_of
from tests.tiny import refused
from tests.toys import make_task
from tlm.artifacts.artifact import Artifact
from tlm.artifacts.produce import Draft, Recipe, produce
from tlm.errors import InputError
from tlm.retrieval import retrieve as retrieve_module
from tlm.retrieval.retrieve import retrieve, shares
from tlm.retrieval.search import index as index_step
from tlm.retrieval.search.index import build_index
from tlm.retrieval.search.query import MOST_TERMS, choose, make_queries
from tlm.retrieval.subset.export import Selection, export
from tlm.settings.options import Filters

PASSAGES = ["red green", "green blue", "blue red red", "yellow", "grey yellow", "..."]


@pytest.fixture
def index(root):
    return build_index(corpus_of(PASSAGES, root), root=root)


def subset_of(hits, passages, root):
    """A subset with so many passages, made from these hits."""

    def write(draft: Draft) -> None:
        draft.details = {"passages": passages}

    made = Artifact.open(hits)
    inputs = {"hits": made, "corpus": made.input("index").input("corpus")}
    return produce(Recipe("subset", "subset-of", 1, {"n": passages}, inputs), root, write)


def test_hits_are_ranked_and_queries_know_their_examples(root, index):
    task = task_of(["red", "yellow", "Red", "red"], root)
    hits = retrieve(index, task, query="full", top_k=2, root=root)
    found = columns(hits, "hits.parquet")
    assert found["query"] == [0, 0, 1, 1, 2, 2]
    assert found["doc"] == [2, 0, 3, 4, 2, 0]
    assert found["rank"] == [1, 2] * 3
    assert found["score"][0] > found["score"][1]
    queries = columns(hits, "queries.parquet")
    assert queries == {"query": [0, 1, 2], "text": ["red", "yellow", "Red"], "examples": [[0, 3], [1], [2]]}
    artifact = Artifact.open(hits, "hits")
    assert artifact.details == {"arm": "bm25", "query": "full", "top_k": 2, "like": None}
    assert artifact.counts == {"examples": 4, "queries": 3, "hits": 6}
    assert {entry.logical: entry.rows for entry in artifact.entries()} == {
        "hits.parquet": 6,
        "queries.parquet": 3,
        "dropped.parquet": 0,
    }


def share_world(root, counts, passages=400):
    """An index of passages with one word in common, and a task whose classes have so many examples."""
    index = build_index(corpus_of([f"red {number}" for number in range(passages)], root), root=root)
    rows = [(f"red {label} {number}", None, label, "train") for label, count in counts.items() for number in
            range(count)]  # fmt: skip
    return index, make_task(Path(root), rows, "macro_f1", sorted(counts))


def test_classes_share_the_hits_evenly_and_each_query_keeps_its_best(root):
    counts = {"common": 30, "middle": 6, "rare": 1}
    index, task = share_world(root, counts)
    given = {"query": "full", "top_k": 6, "root": root}
    shared = retrieve(index, task, share="classes", **given)
    number = columns(shared, "hits.parquet")["query"]
    by_query = Counter(number)
    part = 6 * 37 / 3  # for each class
    assert [by_query[query] for query in range(37)] == [round(part / 30)] * 30 + [round(part / 6)] * 6 + [5 * 6]
    assert number == sorted(number)
    deep = columns(retrieve(index, task, query="full", top_k=30, root=root), "hits.parquet")
    kept = [place for place, rank in enumerate(deep["rank"]) if rank <= by_query[deep["query"][place]]]
    for name, column in columns(shared, "hits.parquet").items():
        assert column == [deep[name][place] for place in kept]
    assert Artifact.open(shared).details["share"] == "classes"


def test_a_text_of_two_classes_retrieves_as_many_as_the_rarer_one(root):
    index, _ = share_world(root, {"a": 1}, 100)
    rows = [(f"red a {number}", None, "a", "train") for number in range(9)]
    rows += [("red", None, label, "train") for label in ("a", "b")]
    hits = retrieve(index, make_task(Path(root), rows, "macro_f1", ["a", "b"]), top_k=4, share="classes", root=root)
    assert Counter(columns(hits, "hits.parquet")["query"])[9] == 5 * 4


def test_shared_by_examples_hits_have_the_key_that_they_had(root):
    index, task = share_world(root, {"a": 3, "b": 1}, 20)
    given = {"query": "full", "top_k": 2, "root": root}
    plain = retrieve(index, task, **given)
    assert retrieve(index, task, share="examples", **given) == plain
    assert Artifact.open(plain).manifest.settings == {"arm": "bm25", "query": "full", "top_k": 2}
    assert retrieve(index, task, share="classes", **given) != plain


def test_other_arms_share_their_hits_as_bm25_did(root):
    index, task = share_world(root, {"a": 12, "b": 1}, 200)
    filters = Filters(near_duplicates=False, overlap=False, min_words=0)
    hits = retrieve(index, task, query="full", top_k=2, share="classes", root=root)
    like = export(hits, filters=filters, root=root)
    found = Artifact.open(Selection("hybrid", task, like).subset(filters, root)).input("hits")
    assert found.manifest.settings["share"] == "classes"


@given(st.lists(st.sampled_from(["a", "b", "c", None, ("a", "b"), ()]), min_size=1, max_size=60), st.integers(1, 50))
def test_a_class_has_its_part_unless_a_limit_stops_it(labels, top_k):
    most = shares(dict(enumerate(labels)), top_k)
    assert list(most) == list(range(len(labels)))
    own = {row: [label] if isinstance(label, str) else label or () for row, label in enumerate(labels)}
    sizes = Counter(label for given in own.values() for label in given)
    part = top_k * sizes.total() / max(1, len(sizes))
    for row, count in most.items():
        if not own[row]:
            assert count == top_k
        elif (size := min(sizes[label] for label in own[row])) and 1 < count < 5 * top_k:
            assert abs(count * size - part) <= size / 2
    if len({*labels}) == 1:
        assert {*most.values()} == {top_k}


def test_a_share_that_makes_no_sense_is_refused(root, index):
    rows = [(word, None, float(place), split) for split in ("train", "dev", "test") for place, word in
            enumerate(("red", "blue"))]  # fmt: skip
    with pytest.raises(InputError, match="is a regression, so no classes can share the hits"):
        retrieve(index, make_task(Path(root), rows, "pearson", None), share="classes", root=root)


def test_only_training_examples_ask(root, index):
    hits = retrieve(index, task_of(["red"], root, held_out=("yellow", "green")), root=root)
    assert columns(hits, "queries.parquet")["text"] == ["red"]


def test_the_texts_of_a_pair_are_one_query(root, index):
    hits = retrieve(index, task_of(["red", "blue"], root, pairs=("green", None)), query="full", root=root)
    assert columns(hits, "queries.parquet")["text"] == ["red green", "blue"]


def test_silence_is_recorded(root, index):
    hits = retrieve(index, task_of(["red", "?!", "purple"], root), query="full", root=root)
    dropped = columns(hits, "dropped.parquet")
    assert dropped["query"] == [1, 2]
    assert dropped["reason"] == ["empty", "no hit"]
    counts = Artifact.open(hits).counts
    assert (counts["queries"], counts["empty"], counts["no hit"]) == (3, 1, 1)


def test_a_long_query_loses_its_least_telling_terms(root):
    words = [f"w{number}" for number in range(MOST_TERMS - 2)]
    passages = [
        "common often" + " rare" * 40,
        *["common often"] * 9,
        *(" ".join(words[start::10]) for start in range(10)),
    ]
    index = build_index(corpus_of(passages, root), root=root)
    kept = [*words, "rare", *["often"] * 30]  # a common word that is asked for often tells more than a rare one
    whole = " ".join([*words, "rare", "often"])  # just as many terms as a query may have
    hits = retrieve(index, task_of([" ".join(["Common", "unheard", *kept]), whole], root), query="full", root=root)
    assert columns(hits, "dropped.parquet") == {
        "query": [0],
        "reason": ["cut"],
        "detail": [f"2 of {MOST_TERMS + 2} distinct terms are left out: the lowest by tf·idf"],
    }
    assert columns(hits, "queries.parquet")["text"] == [" ".join(kept), whole]
    assert set(columns(hits, "hits.parquet")["doc"]) == set(range(20))


def test_rake_asks_for_keywords(root, index):
    text = "The red green thing is of the blue kind, and the blue kind was grey."
    hits = retrieve(index, task_of([text, "the of and"], root), query="rake", root=root)
    assert columns(hits, "queries.parquet")["text"] == ["red green thing blue kind", ""]
    assert columns(hits, "dropped.parquet")["reason"] == ["empty"]


@pytest.mark.parametrize(("words", "kind"), [(20, "full"), (100, "full"), (101, "rake")])
def test_auto_looks_at_the_length_of_training_texts(root, index, words, kind, capsys):
    texts = [" ".join(["red"] * words), " ".join(["blue"] * words), "short"]
    assert choose(texts) == kind
    hits = retrieve(index, task_of(texts, root), query="auto", root=root)
    assert Artifact.open(hits).details["query"] == kind
    whole = retrieve(index, task_of(texts, root), root=root)
    assert Artifact.open(whole).details["query"] == "full", "nobody asked for keywords"
    assert ("RAKE" in capsys.readouterr().err) == (kind == "rake")


def test_what_auto_chose_is_the_same_as_choosing_it(root, index):
    task = task_of(["red", "blue"], root)
    chosen, given = (retrieve(index, task, query=kind, root=root) for kind in ("auto", "full"))
    assert Artifact.open(chosen).content == Artifact.open(given).content


def test_equal_query_texts_are_one_query():
    queries = make_queries([(4, "The red."), (7, "a red"), (9, "The red.")], "rake")
    assert [(query.text, query.examples) for query in queries] == [("red", [4, 7, 9])]


def test_equal_inputs_give_equal_content_anywhere(tmp_path, monkeypatch):
    monkeypatch.setattr(retrieve_module, "HITS_IN_GROUP", 1000)
    contents = []
    for name in ("one", "other"):
        root = str(tmp_path / name)
        index = build_index(corpus_of(list(docstrings()), root), root=root)
        hits = retrieve(index, task_of(list(docstrings()[::100]), root), query="full", top_k=300, root=root)
        contents.append((Artifact.open(index).content, Artifact.open(hits).content))
    assert contents[0] == contents[1]
    found = columns(hits, "hits.parquet")
    per_query = Counter(found["query"])
    assert found["query"] == sorted(found["query"])
    assert found["rank"] == [rank for query in sorted(per_query) for rank in range(1, per_query[query] + 1)]


def test_a_finished_search_is_found_again_without_searching(root, index, monkeypatch):
    task = task_of(["red"], root)
    first = retrieve(index, task, root=root)
    monkeypatch.delattr(retrieve_module, "open_engine")
    assert retrieve(index, task, root=root) == first


def test_random_passages(root, index):
    task = task_of(["red"], root)
    like = subset_of(retrieve(index, task, root=root), 2, root)
    draws = [retrieve(index, task, arm="random", same_size_as=like, seed=seed, root=root) for seed in (0, 1, 2, 0)]
    assert draws[0] == draws[3]
    found = [columns(hits, "hits.parquet") for hits in draws[:3]]
    for hits in found:
        assert sorted(hits["doc"]) == list(range(6))  # 2·2 + 1000, or all there are
        assert set(hits["query"]) == {-1}
        assert set(hits["score"]) == {0.0}
        assert hits["rank"] == list(range(1, 7))
    assert len({tuple(hits["doc"]) for hits in found}) > 1
    assert columns(draws[0], "queries.parquet") == {"query": [-1], "text": [""], "examples": [[]]}
    assert Artifact.open(draws[0]).details == {"arm": "random", "query": None, "top_k": None, "like": 2}


def test_there_are_more_random_passages_than_are_wanted(root):
    index = build_index(corpus_of([f"word {number}" for number in range(1500)], root), root=root)
    task = task_of(["word"], root)
    like = subset_of(retrieve(index, task, root=root), 20, root)
    docs = columns(retrieve(index, task, arm="random", same_size_as=like, root=root), "hits.parquet")["doc"]
    assert len(set(docs)) == len(docs) == 1040


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"arm": "random"}, "needs --same-size-as"),
        ({"same_size_as": "root/subset/123"}, "arm 'bm25' takes no --same-size-as"),
    ],
)
def test_wrong_settings_are_refused_before_any_work(root, index, settings, sentence, monkeypatch):
    task = task_of(["red"], root)
    monkeypatch.delattr(retrieve_module, "produce")
    with pytest.raises(InputError, match=sentence):
        retrieve(index, task, root=root, **settings)


def test_a_subset_of_another_corpus_is_refused(root, index):
    other = build_index(corpus_of(["something else"], root), root=root)
    task = task_of(["else"], root)
    like = subset_of(retrieve(other, task, root=root), 1, root)
    with pytest.raises(InputError, match="was not taken from the corpus of"):
        retrieve(index, task, arm="random", same_size_as=like, root=root)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"name": "-x"}, "is no index name"),
        ({"k1": -0.1}, "k1 is -0.1; expected 0 or more"),
    ],
)
def test_wrong_index_settings_are_refused(root, settings, sentence):
    with pytest.raises(InputError, match=sentence):
        build_index(corpus_of(PASSAGES, root), root=root, **settings)


def test_a_corpus_that_is_too_large_for_one_machine_is_refused(root, monkeypatch):
    monkeypatch.setattr(index_step, "MOST_EMBEDDED", 4)
    with pytest.raises(InputError, match=r"has 5 passages; the embedded engine takes at most 4, so choose the engine"):
        build_index(corpus_of(list("abcde"), root), root=root)


def test_the_index_tells_what_it_is(root, index):
    artifact = Artifact.open(index, "index")
    assert artifact.details == {
        "engine": "embedded", "analyzer": "standard", "k1": 1.2, "b": 0.75, "documents": 6,
        "corpus_content": artifact.input("corpus").content,
    }  # fmt: skip
    assert artifact.counts == {"documents": 6, "terms": 5, "tokens": 10, "postings": 9}


def test_no_server_is_named(root, monkeypatch):
    monkeypatch.delenv("TLM_ELASTICSEARCH_URL", raising=False)
    with pytest.raises(InputError, match="TLM_ELASTICSEARCH_URL is not set"):
        build_index(corpus_of(PASSAGES, root), engine="elasticsearch", root=root)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("elastic:secret@es:9200", "'es:9200'; expected https://host:port"),
        ("https://elastic:secret@es:no", "'https://…@es:no'; expected https://host:port"),
        ("https://elastic:secret@[es", "'https://…@[es'; expected https://host:port"),
        ("http://elastic:secret@192.0.2.1:9200", "http://…@192.0.2.1:9200: without TLS anybody"),
        ("http://elastic:secret@127.0.0.1:1", "http://…@127.0.0.1:1, but Elasticsearch does not answer there"),
    ],
)
def test_an_address_is_shown_without_its_password(address, shown, root, monkeypatch):
    monkeypatch.setenv("TLM_ELASTICSEARCH_URL", address)
    said = refused(build_index, corpus_of(PASSAGES, root), engine="elasticsearch", root=root)
    assert said.startswith(f"TLM_ELASTICSEARCH_URL is {shown}")
    assert "secret" not in said
