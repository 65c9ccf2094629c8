"""The arms dense and hybrid: exact search against brute force, fusion by hand, and the steps that follow."""

import re
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from tests.searchable import COOKING, cooking
from tests.unit.test_embeddings import of_model2vec
from tlm.artifacts.artifact import Artifact
from tlm.data.corpus import passages
from tlm.errors import InputError
from tlm.retrieval.search.retrieve import retrieve
from tlm.retrieval.select import nearest
from tlm.retrieval.select.embed import Published, Static
from tlm.retrieval.select.hybrid import RRF, fused
from tlm.retrieval.select.nearest import Best, Nearest
from tlm.retrieval.select.selectors import BY_VECTORS
from tlm.retrieval.subset.export import export


@pytest.fixture
def root(tmp_path):
    return str(tmp_path / "root")


@pytest.fixture
def made(root):
    return cooking(root)


def lengths_and_vowels(texts):
    """Vectors with many ties."""
    return np.array([[len(text) % 3, sum(letter in "aeiou" for letter in text) % 4] for text in texts], np.float32)


@pytest.mark.parametrize("block", [1, 7, 2048])
@pytest.mark.parametrize("top_k", [1, 5, 1000])
def test_the_nearest_are_those_of_brute_force_ties_included(made, monkeypatch, block, top_k):
    monkeypatch.setattr(nearest, "BLOCK", block)
    corpus = Artifact.open(made[0])
    texts = list(chain.from_iterable(batch.column("text").to_pylist() for batch in passages(corpus)))
    scores = lengths_and_vowels(COOKING) @ lengths_and_vowels(texts).T
    for number, (docs, found) in enumerate(Nearest(corpus, lengths_and_vowels).search(COOKING, top_k)):
        order = np.lexsort((np.arange(len(texts)), -scores[number]))[:top_k]
        assert docs.tolist() == order.tolist()
        assert found.tolist() == scores[number][order].tolist()


def test_the_nearest_do_not_depend_on_the_number_of_processes(made, monkeypatch):
    engine = Nearest(Artifact.open(made[0]), lengths_and_vowels)
    one = [(docs.tolist(), scores.tolist()) for docs, scores in engine.search(COOKING, 9)]
    monkeypatch.setattr(nearest, "SEVERAL", 1)
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "2")
    assert [(docs.tolist(), scores.tolist()) for docs, scores in engine.search(COOKING, 9)] == one


def test_hits_may_be_added_in_any_order():
    rng = np.random.default_rng(0)
    query, doc = np.repeat(np.arange(3), 50), np.tile(np.arange(50), 3)
    score = rng.integers(0, 5, 150).astype(np.float32)
    found = []
    for order in (np.arange(150), rng.permutation(150)):
        best = Best(3, 7)
        for some in np.array_split(order, 4):
            best.add(query[some], doc[some], score[some])
        found.append([(docs.tolist(), scores.tolist()) for docs, scores in best.answers()])
    assert found[0] == found[1]


def test_reciprocal_ranks_by_hand():
    """Passage 4 is first and second, 7 is second and first, 9 is third of one alone."""
    docs, scores = fused([np.array([4, 7, 9]), np.array([7, 4])], 2)
    assert docs.tolist() == [4, 7]
    assert scores == pytest.approx([1 / (RRF + 1) + 1 / (RRF + 2)] * 2)
    docs, scores = fused([np.array([4, 7, 9]), np.array([9, 7])], 9)
    assert docs.tolist() == [9, 7, 4]
    assert scores == pytest.approx([1 / 63 + 1 / 61, 2 / 62, 1 / 61])


def test_static_vectors_have_length_one_and_nothing_in_common_and_can_be_kept(made, tmp_path):
    embed = Static.learn(Artifact.open(made[0]), seed=0)
    texts = ["stir the soup", "park the car", "unheard-of"]
    vectors = embed(texts)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx([1, 1, 0], abs=1e-6)
    assert vectors @ embed.common == pytest.approx(np.zeros(3), abs=1e-6)
    embed.write(tmp_path / "vectors")
    assert np.array_equal(Static.read(tmp_path / "vectors")(texts), vectors)


@pytest.mark.parametrize("arm", BY_VECTORS)
def test_a_search_by_vectors_becomes_a_subset_of_the_size_of_bm25s(made, root, arm):
    _, index, task, subset = made
    given = {"arm": arm, "top_k": 10, "like": subset, "root": root}
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
    given = {"arm": "dense", "top_k": 10, "like": subset, "root": root}
    one, two = (retrieve(index, task, embedder=str(tmp_path / name), **given) for name in ("one", "two"))
    assert len({one, two, retrieve(index, task, **given)}) == 3
    assert Artifact.open(one).content == Artifact.open(two).content
    vectors = Published(str(tmp_path / "one"))(COOKING)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(np.ones(4), abs=1e-5)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"arm": "dense"}, "arm 'dense' needs --like with the URI of the BM25 subset"),
        ({"arm": "bm25", "embedder": "x"}, "arm 'bm25' compares no vectors; leave --embedder out, or take dense or"),
    ],
)
def test_wrong_settings_are_said(made, root, settings, expected):
    _, index, task, _ = made
    with pytest.raises(InputError, match=re.escape(expected)):
        retrieve(index, task, root=root, **settings)


def test_an_embedder_that_is_no_folder_is_said(made, root):
    _, index, task, subset = made
    with pytest.raises(InputError, match="--embedder nowhere is not a folder; download the model"):
        retrieve(index, task, arm="dense", like=subset, embedder="nowhere", root=root)
