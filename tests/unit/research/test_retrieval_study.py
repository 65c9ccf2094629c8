"""The retrieval study: its numbers are those that sets, loops and the published formula give."""

import math
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from research.fewer_labels import fewer_labels
from research.retrieval.step import retrieval_study
from research.retrieval.study import ranks, shared_by
from research.retrieval.subsets import Subset, divergence, overlap, sources
from research.retrieval.words import chosen_rows, log_odds
from tests.searchable import tiny_index
from tests.toy_reports import Page, is_safe, toy_world
from tests.toys import make, read_json, save
from tlm.artifacts.artifact import Artifact
from tlm.errors import InputError
from tlm.retrieval.retrieve import retrieve
from tlm.retrieval.selectors import word_shares
from tlm.retrieval.subset.export import export
from tlm.settings.options import Filters


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Root, and a BM25 and a random subset of the tiny corpus, through the real steps."""
    root, _, task, index = tiny_index(tmp_path_factory.mktemp("study"))
    found = export(retrieve(index, task, top_k=8, root=root), filters=Filters(overlap=False), root=root)
    drawn = export(
        retrieve(index, task, arm="random", same_size_as=found, root=root), filters=Filters(overlap=False), root=root
    )
    return root, found, drawn


def rows_of(uri: str, pattern: str = "passages-*.parquet") -> list[dict]:
    artifact = Artifact.open(uri)
    tables = [pq.ParquetFile(artifact.verified(entry)).read() for entry in artifact.entries(pattern)]
    return [row for table in tables for row in table.to_pylist()]


def test_numbers_are_those_that_sets_give(tiny):
    root, found, drawn = tiny
    study = Artifact.open(retrieval_study([found, drawn], root=root), "study")
    told = read_json(study, "study.json")
    docs = [{row["doc"] for row in rows_of(uri)} for uri in (found, drawn)]
    corpus = {row["doc"]: row for row in rows_of(Artifact.open(found).input("corpus").uri)}
    assert [one["passages"] for one in told["subsets"]] == [len(part) for part in docs]
    assert told["subsets"][0]["share"] == pytest.approx(len(docs[0]) / len(corpus))
    assert told["overlap"]["shared"][0][1] == len(docs[0] & docs[1])
    assert told["overlap"]["jaccard"][1][0] == pytest.approx(len(docs[0] & docs[1]) / len(docs[0] | docs[1]))
    assert told["overlap"]["inside"][0][1] == pytest.approx(len(docs[0] & docs[1]) / len(docs[0]))
    for row in told["sources"]:
        for part, share in zip(docs, row["subsets"], strict=True):
            assert share == pytest.approx(sum(corpus[doc]["source"] == row["source"] for doc in part) / len(part))
    by_name = {row["source"]: row for row in told["sources"]}
    assert by_name["other"]["corpus"] == pytest.approx(0.4, abs=0.02)
    assert by_name["other"]["subsets"][0] < 0.1  # BM25 leaves what is off the topic
    assert by_name["other"]["subsets"][1] == pytest.approx(0.4, abs=0.12)


def test_most_asked_passages_with_the_examples_that_asked(tiny):
    root, found, _ = tiny
    told = read_json(Artifact.open(retrieval_study([found], top=4, root=root)), "study.json")["subsets"][0]
    subset = Artifact.open(found)
    hits = subset.input("hits")
    examples = {row["query"]: row["examples"] for row in rows_of(hits.uri, "queries.parquet")}
    labels = [row["label"] for row in rows_of(hits.input("task").uri, "examples.parquet")]
    asking = {row["doc"]: sorted({e for query in row["queries"] for e in examples[query]}) for row in rows_of(found)}
    best = sorted(asking, key=lambda doc: (-len(asking[doc]), doc))[:4]
    assert [one["doc"] for one in told["most_asked"]] == best
    for one in told["most_asked"]:
        assert one["asked"] == len(asking[one["doc"]])
        assert {row["label"]: row["count"] for row in one["labels"]} == Counter(labels[e] for e in asking[one["doc"]])
        assert len(one["examples"]) == min(3, one["asked"])
    assert told["asked"]["mean"] == pytest.approx(np.mean([len(found) for found in asking.values()]))
    assert sum(row["passages"] for row in told["shared_by"]) == len(asking)


def test_examples_without_labels_ask_for_passages_too(tiny, tmp_path):
    root, found, _ = tiny
    hits = Artifact.open(found).input("hits")
    few = fewer_labels(hits.input("task").uri, per_class=1, keep_texts=True, root=root)
    subset = export(
        retrieve(hits.input("index").uri, few, top_k=8, root=root), filters=Filters(overlap=False), root=root
    )
    told = read_json(Artifact.open(retrieval_study([subset], root=root)), "study.json")["subsets"][0]
    shown = {one["label"] for passage in told["most_asked"] for one in passage["examples"]}
    assert "no label" in shown
    assert max(sum(row["count"] for row in passage["labels"]) for passage in told["most_asked"]) <= 3


def test_the_kl_reduction_is_that_of_a_direct_computation(tiny):
    root, found, drawn = tiny
    told = read_json(Artifact.open(retrieval_study([found, drawn], root=root)), "study.json")["subsets"]
    subset = Artifact.open(found)
    task = [
        row for row in rows_of(subset.input("hits").input("task").uri, "examples.parquet") if row["split"] == "train"
    ]
    wanted = [row["text"] for row in task]
    texts = {name: [row["text"] for row in rows_of(uri)] for name, uri in (("bm25", found), ("random", drawn))}
    texts["corpus"] = [row["text"] for row in rows_of(subset.input("corpus").uri)]
    distances = {name: divergence(word_shares(wanted), word_shares(of)) for name, of in texts.items()}
    for one in told:
        assert one["kl_reduction"] == pytest.approx(distances["corpus"] - distances[one["name"]])
    assert told[0]["kl_reduction"] > max(0, told[1]["kl_reduction"])


def test_words_of_the_topics_come_up_and_others_go_down(tiny):
    root, found, _ = tiny
    words = read_json(Artifact.open(retrieval_study([found], top=8, root=root)), "study.json")["subsets"][0]["words"]
    from tests.tiny import OFF_TOPIC, TOPICS

    topical = {word for topic in TOPICS.values() for word in topic}
    assert {word["word"] for word in words["over"]} <= topical
    assert {word["word"] for word in words["under"]} <= set(OFF_TOPIC)
    assert len(words["over"]) == len(words["under"]) == 8


def test_pages_are_whole_and_the_same_each_time(tiny, tmp_path):
    root, found, drawn = tiny
    uri = retrieval_study([found, drawn], root=root)
    assert retrieval_study([found, drawn], root=root) == uri
    shutil.copytree(root, tmp_path, ignore=shutil.ignore_patterns("study"), dirs_exist_ok=True)
    assert Artifact.open(retrieval_study([found, drawn], root=str(tmp_path))).content == Artifact.open(uri).content
    html = Artifact.open(uri).path("study.html").read_text(encoding="utf-8")
    is_safe(html)
    for words in ("Sources", "Overlap", "bm25: passages retrieved for the most examples", "Monroe et al. 2008"):
        assert words in Page(html).text
    assert "random: passages retrieved for" not in Page(html).text
    for name in ("ranks", "shared", "sources", "overlap", "words-00"):
        assert Artifact.open(uri).path(f"{name}.svg").read_text().startswith("<?xml")
    assert "## Overlap" in Artifact.open(uri).path("study.md").read_text()


def test_a_subset_whose_ancestors_are_gone_still_tells_its_size(tmp_path):
    import shutil

    world = toy_world(tmp_path)
    for kind in ("hits", "corpus", "index", "task"):
        shutil.rmtree(tmp_path / kind)
    told = read_json(Artifact.open(retrieval_study([world.subsets["bm25"]], root=str(tmp_path))), "study.json")
    assert told["subsets"][0]["passages"] > 0
    assert told["subsets"][0]["share"] is None
    assert "Deleted or changed" in told["gone"]


def test_what_cannot_be_compared_is_refused_in_a_sentence(tiny):
    root, found, drawn = tiny
    elsewhere = toy_world(Path(root)).subsets["bm25"]
    for subsets, options, expected in [
        ([found, elsewhere], {"names": ["a", "b"]}, "not known to be from the same corpus"),
        ([found, found], {}, "are both called 'bm25"),
        ([], {}, "at least one subset"),
        ([found, drawn], {"names": ["a"]}, "1 names for 2 subsets"),
        ([found], {"top": 0}, "top is 0"),
        ([Artifact.open(found).input("hits").uri], {}, "expected a subset"),
    ]:
        with pytest.raises(InputError, match=expected):
            retrieval_study(subsets, root=root, **options)


# ---- the pieces


def subset_of(docs: list[int]) -> Subset:
    nothing = np.zeros(len(docs), np.int32)
    return Subset("", "bm25", None, None, None, None, np.array(sorted(docs), np.int64), nothing, nothing)  # type: ignore[arg-type]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sets(st.integers(0, 40)), min_size=2, max_size=4))
def test_overlap_is_that_of_sets(sets):
    found = overlap([subset_of(list(docs)) for docs in sets])
    for row, a in enumerate(sets):
        for column, b in enumerate(sets):
            assert found["shared"][row][column] == len(a & b)
            assert found["jaccard"][row][column] == pytest.approx(len(a & b) / max(1, len(a | b)))
            assert found["inside"][row][column] == pytest.approx(len(a & b) / max(1, len(a)))


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_log_odds_is_the_published_formula(data):
    """Monroe et al. 2008, equations 16, 20 and 22, word by word."""
    size = data.draw(st.integers(2, 6))
    counts = st.lists(st.integers(0, 500), min_size=size, max_size=size).filter(any)
    mine, others = data.draw(counts), data.draw(counts)
    found = log_odds(np.array(mine), np.array(others), 500)
    total = sum(mine) + sum(others)
    for word in range(size):
        together = mine[word] + others[word]
        if together in (0, total):  # a word that is not there, or that is alone, tells nothing
            assert found[word] == 0
            continue
        prior = 500 * together / total
        odds = [(y + prior) / (n + 500 - y - prior) for y, n in ((mine[word], sum(mine)), (others[word], sum(others)))]
        variance = 1 / (mine[word] + prior) + 1 / (others[word] + prior)
        assert found[word] == pytest.approx(math.log(odds[0] / odds[1]) / math.sqrt(variance), abs=1e-6)
    assert log_odds(np.array(others), np.array(mine), 500) == pytest.approx(-found, abs=1e-6)


def test_the_prior_holds_rare_words_back():
    """A word seen once in one text alone must not beat a word that is common and clearly more frequent."""
    z = log_odds(np.array([1, 600, 9399]), np.array([0, 300, 9700]))
    assert 0 < z[0] < 1.2
    assert z[1] > 8


@pytest.mark.parametrize(("size", "sample"), [(10, 20), (100_000, 500), (5_000_000, 20_000), (30_001, 30_000)])
def test_sampled_rows(size, sample):
    rows = chosen_rows(size, sample, 3)
    assert len(rows) == min(size, sample)
    assert (np.diff(rows) > 0).all()
    assert 0 <= rows[0] <= rows[-1] < size
    assert (chosen_rows(size, sample, 3) == rows).all()
    assert len(np.unique(rows // 10_000)) <= 200


def test_shared_by_and_ranks():
    asked = np.array([0, 1, 1, 2, 3, 4, 40, 500], np.int32)
    found = {row["examples"]: row["passages"] for row in shared_by(asked)}
    assert found == {"1": 2, "2–3": 2, "4–7": 1, "8–15": 0, "16–31": 0, "32+": 2}
    points = dict(map(tuple, ranks(np.array([1, 1, 3, 10], np.int32))))
    assert points[1] == 0.5
    assert points[3] == 0.75
    assert points[10] == 1.0


def test_sources_over_shards(tmp_path: Path):
    """Two shards, several portions: shares as counted by hand."""

    def write(draft):
        names = ["a", "b", "a", "c", "b", "b"]
        for shard in (0, 1):
            part = slice(3 * shard, 3 * shard + 3)
            columns = {
                "doc": list(range(6))[part],
                "id": list("uvwxyz")[part],
                "text": names[part],
                "source": names[part],
            }
            save(draft, f"passages-{shard:05d}.parquet", columns)
        draft.details.update(passages=6)

    def of(docs):
        columns = {"doc": np.array(docs, np.int64)}
        made = make("subset", tmp_path, lambda draft: save(draft, "passages-00000.parquet", columns), {"docs": docs})
        return replace(subset_of(docs), artifact=Artifact.open(made))

    corpus = Artifact.open(make("corpus", tmp_path, write, {}))
    found = {row["source"]: row for row in sources([of([1, 3, 4]), of([])], corpus)}
    assert {name: row["passages"] for name, row in found.items()} == {"a": 2, "b": 3, "c": 1}
    assert found["b"]["subsets"] == [pytest.approx(2 / 3), 0]
    assert found["a"]["subsets"] == [0, 0]
