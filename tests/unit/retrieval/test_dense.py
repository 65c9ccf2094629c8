"""The arms dense and hybrid: exact search against brute force, fusion by hand, and the steps that follow."""

import os
import platform
import subprocess
import sys
import tracemalloc
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import threadpool_info

from tests.searchable import COOKING, task_of
from tests.unit.shallow.test_embeddings import of_model2vec
from tlm.artifacts.artifact import Artifact
from tlm.data.passages import passages
from tlm.errors import InputError
from tlm.retrieval import selectors
from tlm.retrieval.retrieve import retrieve
from tlm.retrieval.search.embed import BITS, LEARNED_BITS, StaticEmbedder, published_vectors
from tlm.retrieval.selectors import NO_HIT, RRF, Best, Nearest, fused, packed, unpacked
from tlm.retrieval.subset.export import export
from tlm.settings.selectors import BY_VECTORS, SELECTORS
from tlm.shallow.features import words_of


def lengths_and_vowels(texts):
    """Vectors with many ties."""
    return np.array([[len(text) % 3, sum(letter in "aeiou" for letter in text) % 4] for text in texts], np.float32)


@pytest.mark.parametrize(("block", "at_once"), [(1, 1), (7, 100), (7, 1 << 22), (4096, 1 << 22)])
@pytest.mark.parametrize("top_k", [1, 5, 1000])
@pytest.mark.parametrize("sign", [1, -1])
def test_the_nearest_are_those_of_brute_force_ties_included(made, monkeypatch, block, at_once, top_k, sign):
    """What has no vector is not found, although 0 would be more than the others' scores where these are below 0."""
    monkeypatch.setattr(selectors, "BLOCK", block)
    monkeypatch.setattr(selectors, "MOST_AT_ONCE", at_once)
    corpus, queries = Artifact.open(made[0]), [*COOKING, "pfft"]

    def embed(texts):
        return lengths_and_vowels(texts) * np.float32([[sign if text in queries else 1] for text in texts])

    texts = list(chain.from_iterable(batch.column("text").to_pylist() for batch in passages(corpus)))
    asking, asked = embed(queries), embed(texts)
    scores, known = asking @ asked.T, np.flatnonzero(asked.any(axis=1))
    assert 0 < len(known) < len(texts)
    for number, (docs, found) in enumerate(Nearest(corpus, embed).search(queries, top_k)):
        order = known[np.lexsort((known, -scores[number][known]))][:top_k] if asking[number].any() else []
        assert docs.tolist() == list(order)
        assert found.tolist() == scores[number][order].tolist() if len(order) else not len(found)


def test_the_nearest_do_not_depend_on_the_number_of_processes(made, monkeypatch):
    engine = Nearest(Artifact.open(made[0]), lengths_and_vowels)
    one = [(docs.tolist(), scores.tolist()) for docs, scores in engine.search(COOKING, 9)]
    monkeypatch.setattr(selectors, "SEVERAL", 1)
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "2")
    assert [(docs.tolist(), scores.tolist()) for docs, scores in engine.search(COOKING, 9)] == one


def test_hits_may_be_added_in_any_order():
    rng = np.random.default_rng(0)
    hits = packed(rng.integers(-2, 3, (3, 50)).astype(np.float32), np.tile(np.arange(50), (3, 1)))
    found = []
    for order in (np.arange(50), rng.permutation(50)):
        best = Best(3, 7)
        for some in np.array_split(order, 4):
            best.add(hits[:, some])
        found.append([(docs.tolist(), scores.tolist()) for docs, scores in best.answers()])
    assert found[0] == found[1]


@given(st.lists(st.tuples(st.floats(width=32, allow_nan=False), st.integers(0, 2**32 - 2)), min_size=1, max_size=30))
def test_hits_in_one_number_are_in_the_order_of_scores_and_passages(pairs):
    scores, docs = np.array([one for one, _ in pairs], np.float32), np.array([doc for _, doc in pairs], np.int64)
    hits = packed(scores, docs)
    assert [found.tolist() for found in unpacked(hits)] == [docs.tolist(), scores.tolist()]
    assert np.sort(hits)[::-1].tolist() == hits[np.lexsort((docs, -scores))].tolist()
    assert hits.min() > NO_HIT


def test_memory_is_that_of_the_hits(made, monkeypatch):
    """Twice 8 bytes a hit, and blocks of a bounded size, not every score of every query."""
    monkeypatch.setattr(selectors, "MOST_AT_ONCE", 1 << 14)
    queries, top_k = [f"{'a' * (number % 7)}{number}" for number in range(20_000)], 20
    engine = Nearest(Artifact.open(made[0]), lengths_and_vowels)
    tracemalloc.start()
    try:
        hits = sum(len(docs) for docs, _ in engine.search(queries, top_k))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert hits > 100_000
    assert peak < 16 * len(queries) * top_k + (4 << 20)


PROGRAM = """
import hashlib, sys
from threadpoolctl import threadpool_info
from tests.searchable import corpus_of, docstrings, task_of
from tlm.artifacts.artifact import Artifact
from tlm.retrieval.search.index import build_index
from tlm.retrieval.retrieve import retrieve
from tlm.retrieval.subset.export import export
from tlm.shallow.static import word_vectors
root, texts = sys.argv[1], list(docstrings())[:3000]
index, task = build_index(corpus_of(texts, root), root=root), task_of(texts[::100], root)
like = export(retrieve(index, task, top_k=10, root=root), root=root)
hits = retrieve(index, task, arm="dense", top_k=10, same_size_as=like, root=root)
kernels = {one["architecture"] for one in threadpool_info() if one["internal_api"] == "openblas"}
print(*kernels, hashlib.sha256(word_vectors(texts).vectors.tobytes()).hexdigest(), Artifact.open(hits).content)
"""


def test_hits_are_the_same_with_other_kernels_of_openblas(tmp_path):
    """Which differ in the last digits, as those of other processors do."""
    kernels = {one.get("architecture") for one in threadpool_info() if one["internal_api"] == "openblas"}
    if not kernels or "Nehalem" in kernels or platform.machine() != "x86_64":
        pytest.skip("numpy computes without OpenBLAS, or this processor has no other kernels than the oldest")
    found = []
    for kernel in ({}, {"OPENBLAS_CORETYPE": "Nehalem"}):  # which newer processors have as well
        setting = {**os.environ, **kernel}
        command = [sys.executable, "-c", PROGRAM, str(tmp_path / f"root{len(found)}")]
        done = subprocess.run(command, env=setting, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        found.append(done.stdout.split())
    (first, vectors, hits), (second, others, same) = found
    assert first != second
    assert vectors != others, "else this test would not see a difference"
    assert hits == same


@pytest.mark.parametrize("arm", BY_VECTORS)
def test_a_text_without_a_known_word_finds_nothing_by_its_vector(made, root, arm):
    """Its passages would come first into the subset."""
    _, index, _, subset = made
    task = task_of([*COOKING, "zyx 3a", "zyx wvu"], root)
    hits = retrieve(index, task, arm=arm, top_k=3, same_size_as=subset, root=root)
    of_words = {"dense": [], "hybrid": [3]}[arm]  # a word that is too rare for a vector, but in one passage
    found = pq.read_table(Artifact.open(hits).path("hits.parquet")).to_pydict()
    assert [doc for query, doc in zip(found["query"], found["doc"], strict=True) if query >= len(COOKING)] == of_words
    dropped = pq.read_table(Artifact.open(hits).path("dropped.parquet")).to_pylist()
    assert [row["query"] for row in dropped] == ([4, 5] if arm == "dense" else [5])
    assert {row["reason"] for row in dropped} == {"no hit"}
    assert all("none of its words has a vector" in row["detail"] for row in dropped)


def test_reciprocal_ranks_by_hand():
    """Passage 4 is first and second, 7 is second and first, 9 is third of one alone."""
    docs, scores = fused([np.array([4, 7, 9]), np.array([7, 4])], 2)
    assert docs.tolist() == [4, 7]
    assert scores == pytest.approx([1 / (RRF + 1) + 1 / (RRF + 2)] * 2)
    docs, scores = fused([np.array([4, 7, 9]), np.array([9, 7])], 9)
    assert docs.tolist() == [9, 7, 4]
    assert scores == pytest.approx([1 / 63 + 1 / 61, 2 / 62, 1 / 61])


def test_static_vectors_have_length_one_and_nothing_in_common_and_can_be_kept(made, tmp_path):
    embed = StaticEmbedder.learn(Artifact.open(made[0]), seed=0)
    texts = ["stir the soup", "park the car", "unheard-of"]
    vectors = embed(texts)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx([1, 1, 0], abs=1e-6)
    assert vectors @ embed.common == pytest.approx(np.zeros(3), abs=1e-6)
    embed.write(tmp_path / "vectors")
    assert np.array_equal(StaticEmbedder.read(tmp_path / "vectors")(texts), vectors)


def test_what_texts_have_in_common_is_their_first_component_and_learned_numbers_are_rounded(made):
    corpus = Artifact.open(made[0])
    embed = StaticEmbedder.learn(corpus, seed=0)
    texts = [text for batch in passages(corpus) for text in batch.column("text").to_pylist()]
    _, _, directions = np.linalg.svd(embed.vectors.means([words_of(text) for text in texts]))
    assert abs(directions[0] @ embed.common) == pytest.approx(1, abs=1e-5)
    for numbers, bits in ((embed.vectors.vectors, LEARNED_BITS), (embed.common, BITS), (embed(texts), BITS)):
        assert np.array_equal(numbers * 2.0**bits, np.round(numbers * 2.0**bits))


def test_vectors_are_learned_from_the_passages_that_the_seed_draws(made, monkeypatch):
    monkeypatch.setitem(SELECTORS, "dense", SELECTORS["dense"]._replace(sampled=40))
    index = Artifact.open(made[1])
    one, again, other = (selectors.dense(index, "", seed).embed(COOKING) for seed in (0, 0, 1))
    assert np.array_equal(one, again)
    assert not np.allclose(one, other)


@pytest.mark.parametrize("arm", BY_VECTORS)
def test_a_search_by_vectors_becomes_a_subset_of_the_size_of_bm25s(made, root, arm):
    _, index, task, subset = made
    given = {"arm": arm, "top_k": 10, "same_size_as": subset, "root": root}
    found = Artifact.open(retrieve(index, task, seed=1, **given))
    wanted = Artifact.open(subset).details["passages"]
    assert found.details == {"arm": arm, "query": "full", "top_k": 50, "like": wanted}
    assert found.uri == retrieve(index, task, seed=1, **given)
    assert found.uri != retrieve(index, task, seed=2, **given)
    made_of_it = Artifact.open(export(found.uri, root=root))
    assert made_of_it.details == {"arm": arm, "passages": wanted}


def test_published_embeddings_are_part_of_the_key(made, root, tmp_path: Path):
    pytest.importorskip("sentence_transformers")
    for name in ("one", "two"):
        of_model2vec(tmp_path / name)
    (tmp_path / "two" / "more.txt").write_text("more")
    _, index, task, subset = made
    given = {"arm": "dense", "top_k": 10, "same_size_as": subset, "root": root}
    one, two = (retrieve(index, task, embedder=str(tmp_path / name), **given) for name in ("one", "two"))
    assert len({one, two, retrieve(index, task, **given)}) == 3
    assert Artifact.open(one).content == Artifact.open(two).content
    vectors = published_vectors(str(tmp_path / "one"), COOKING)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(np.ones(4), abs=1e-5)


def test_wrong_settings_are_said(made, root):
    _, index, task, subset = made
    with pytest.raises(InputError, match="arm 'bm25' compares no vectors; leave --embedder out, or take dense or"):
        retrieve(index, task, arm="bm25", embedder="x", root=root)
    with pytest.raises(InputError, match="--embedder nowhere is not a folder; download the model"):
        retrieve(index, task, arm="dense", same_size_as=subset, embedder="nowhere", root=root)
