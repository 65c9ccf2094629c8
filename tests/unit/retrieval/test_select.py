"""Selectors without queries: direct computations, the same twice, and the steps that follow."""

import math
import re
from collections import Counter
from itertools import pairwise
from typing import get_args, get_type_hints

import numpy as np
import pytest

from pipelines.form import Compared, Draws
from research.retrieval.subsets import divergence
from tests.places import check_places, in_help
from tests.searchable import COOKING, KITCHEN_AND_ROAD, cooking, corpus_of, task_of
from tlm.artifacts.artifact import Artifact
from tlm.data.passages import passages, sample
from tlm.errors import InputError
from tlm.retrieval import selectors
from tlm.retrieval.retrieve import best, retrieve
from tlm.retrieval.search.index import open_engine
from tlm.retrieval.selectors import (
    LEAST,
    SCORERS,
    SEARCHERS,
    dsir,
    fitted,
    log_importance,
    log_odds,
    log_ratios,
    word_shares,
)
from tlm.retrieval.subset.export import Selection, export, seed_of
from tlm.runs.plan import arms_of
from tlm.settings.selectors import BY_VECTORS, RERANKED, RETRIEVED, SCORED, SELECTORS, WITH_QUERIES, draws


def grams(text):
    words = re.findall(r"[^\W_]+", text.lower())
    return Counter(words) + Counter(" ".join(pair) for pair in pairwise(words))


def test_every_selector_is_everywhere() -> None:
    """Where words are missing, a report or a card would show the bare name, and a query without hits would fail."""
    selected = {*RETRIEVED}
    choices = {*get_args(get_type_hints(retrieve)["arm"])}
    words = {name for name, selector in SELECTORS.items() if selector.card and (selector.called or name == "bm25")}
    places = {  # the names that each needs, and those that it has
        "SELECTORS, tlm/settings/selectors.py": ({*choices, *SEARCHERS, *SCORERS, RERANKED}, {*SELECTORS}),
        "words in SELECTORS, tlm/settings/selectors.py": ({*SELECTORS}, words),
        "nothing_found in SELECTORS, tlm/settings/selectors.py": (
            {*WITH_QUERIES},
            {name for name, selector in SELECTORS.items() if selector.nothing_found},
        ),
        "SCORERS, tlm/retrieval/selectors.py": ({*SCORED}, {*SCORERS}),
        "SEARCHERS, tlm/retrieval/selectors.py": ({*WITH_QUERIES} - {"bm25"}, {*SEARCHERS}),
        "option arm of retrieve, tlm/retrieval/retrieve.py": (selected, choices),
        "help of arm, tlm/retrieval/retrieve.py": (selected, in_help(retrieve, "arm")),
        "help of arms in Compared, pipelines/form.py": (selected, in_help(Compared, "arms")),
        "help of arms in Draws, pipelines/form.py": (selected, in_help(Draws, "arms")),
    }
    check_places(places)


def test_a_selector_may_search_without_vectors(made, root, monkeypatch):
    """Every search but BM25's was taken for one by vectors."""
    _, index, task, subset = made
    monkeypatch.setitem(SELECTORS, "words", SELECTORS["bm25"])
    monkeypatch.setitem(SEARCHERS, "words", lambda index, *_: open_engine(index))
    monkeypatch.setattr("tlm.retrieval.retrieve.WITH_QUERIES", (*WITH_QUERIES, "words"))
    given = {"arm": "words", "same_size_as": subset, "root": root}
    assert Artifact.open(retrieve(index, task, top_k=10, **given)).counts["hits"] > 0
    with pytest.raises(InputError, match="arm 'words' compares no vectors"):
        retrieve(index, task, embedder="model", **given)


def test_importance_is_that_of_a_direct_computation():
    """With far more buckets than words, so that hardly any share one."""
    task, corpus = sum(map(grams, COOKING), Counter()), sum(map(grams, KITCHEN_AND_ROAD), Counter())
    logs = log_ratios(word_shares(COOKING), word_shares(KITCHEN_AND_ROAD))

    def share(counts, gram):
        return counts[gram] / counts.total()

    for text, found in zip(KITCHEN_AND_ROAD, log_importance(logs, KITCHEN_AND_ROAD), strict=True):
        expected = sum(
            count * (math.log(share(task, gram) + LEAST) - math.log(share(corpus, gram) + LEAST))
            for gram, count in grams(text).items()
        )
        assert found == pytest.approx(expected, abs=1e-6)


def test_divergence_is_that_of_a_direct_computation():
    task, corpus = sum(map(grams, COOKING), Counter()), sum(map(grams, KITCHEN_AND_ROAD), Counter())
    expected = sum(
        count / task.total() * math.log((count / task.total() + LEAST) / (corpus[gram] / corpus.total() + LEAST))
        for gram, count in task.items()
    )
    assert divergence(word_shares(COOKING), word_shares(KITCHEN_AND_ROAD)) == pytest.approx(expected, abs=1e-6)
    assert divergence(word_shares(COOKING), word_shares(COOKING)) == 0


def test_dsir_draws_in_proportion_to_importance(root):
    """The first of many draws falls on a passage as often as its share of all importance says."""
    texts = ["soup salt", "soup car", "car oil", "oil park"]
    corpus = Artifact.open(corpus_of(texts, root))
    weights = np.exp(log_importance(log_ratios(word_shares(["soup salt soup", "car"]), word_shares(texts)), texts))
    first = Counter(int(dsir(corpus, ["soup salt soup", "car"], seed).argmax()) for seed in range(1000))
    found = np.array([first[doc] for doc in range(len(texts))]) / 1000
    assert found == pytest.approx(weights / weights.sum(), abs=0.05)


def test_the_classifier_tells_a_task_from_a_corpus():
    odds = log_odds(fitted(COOKING, KITCHEN_AND_ROAD), ["stir the soup with salt", "park the car with oil"])
    assert odds[0] > 0 > odds[1]


def test_a_sample_is_uniform_and_the_same_twice(root):
    texts = [f"text {number}" for number in range(100)]
    corpus = Artifact.open(corpus_of(texts, root))
    drawn = list(sample(corpus, 30, seed=3))
    assert len(set(drawn)) == 30
    assert set(drawn) <= set(texts)
    assert drawn == list(sample(corpus, 30, seed=3))
    assert sorted(sample(corpus, 1000, seed=3)) == sorted(texts)


def test_the_best_come_first_and_of_equal_ones_the_first():
    docs, scores = best(np.array([1.0, 3.0, 2.0, 3.0, 0.0]), 4)
    assert docs.tolist() == [1, 3, 2, 0]
    assert scores.tolist() == [3, 3, 2, 1]


@pytest.mark.parametrize("arm", SCORED)
def test_a_selection_becomes_a_subset_of_the_size_of_bm25s(made, root, arm):
    _, index, task, subset = made
    hits = retrieve(index, task, arm=arm, same_size_as=subset, seed=1, root=root)
    made_of_it = Artifact.open(export(hits, root=root))
    assert made_of_it.details == {"arm": arm, "passages": Artifact.open(subset).details["passages"]}
    texts = [text for batch in passages(made_of_it) for text in batch.column("text").to_pylist()]
    on_topic = [text for text in texts if "soup" in text and "drive" not in text and "park" not in text]
    assert len(on_topic) > len(texts) / 2


@pytest.mark.parametrize("arm", SCORED)
def test_dev_and_test_texts_select_nothing(made, root, arm):
    _, index, task, subset = made
    more = task_of(COOKING, root, held_out=("drive the car with oil", "park the car"))
    one, other = (retrieve(index, of, arm=arm, same_size_as=subset, root=root) for of in (task, more))
    assert one != other
    assert Artifact.open(one).content == Artifact.open(other).content


@pytest.mark.parametrize("larger", [False, True])
@pytest.mark.parametrize("arm", SCORED)
def test_a_selection_is_the_same_twice_and_another_with_another_seed_if_it_draws(made, monkeypatch, arm, larger):
    """The classifier draws where the corpus is larger than its sample."""
    corpus = Artifact.open(made[0])
    if larger:
        monkeypatch.setitem(SELECTORS, "classifier", SELECTORS["classifier"]._replace(sampled=20))
    one, again, other = (SCORERS[arm](corpus, COOKING, seed) for seed in (0, 0, 1))
    assert np.array_equal(one, again)
    assert np.array_equal(one, other) != draws(arm, corpus.details["passages"])


@pytest.mark.parametrize("arm", [arm for arm in RETRIEVED if arm != "bm25"])
def test_what_is_computed_again_in_another_root_has_the_same_content(tmp_path, arm):
    found = []
    for root in (str(tmp_path / "one"), str(tmp_path / "two")):
        _, index, task, subset = cooking(root)
        hits = retrieve(index, task, arm=arm, top_k=10, same_size_as=subset, seed=1, root=root)
        found.append([Artifact.open(one).content for one in (subset, hits, export(hits, root=root))])
    assert found[0] == found[1]
    assert len({*found[0]}) == 3


def test_an_arm_that_draws_has_a_subset_for_each_seed_and_the_others_have_one(made, root):
    """The first draw is the subset that `retrieve` and `export` make without a seed."""
    _, index, task, subset = made
    names = ", ".join(["task-only", "bm25", "random", "dsir", *BY_VECTORS, "classifier"])
    found = [Selection.parse(text) for text in arms_of(names, "0,1,5", task, subset)]
    assert [(arm.name, arm.seed) for arm in found] == [
        ("task-only", 0), ("bm25", 0), *(("random", seed) for seed in (0, 1, 5)),
        *(("dsir", seed) for seed in (0, 1, 5)), ("dense", 0), ("hybrid", 0), ("classifier", 0),
    ]  # fmt: skip
    drawn = [Artifact.open(arm.subset(root=root)) for arm in found if arm.name == "random"]
    assert drawn[0].uri == export(retrieve(index, task, arm="random", same_size_as=subset, root=root), root=root)
    assert len({one.content for one in drawn}) == 3
    assert [seed_of(one) for one in drawn] == [0, 1, 5]
    assert len({one.details["passages"] for one in drawn}) == 1


def test_what_learns_from_a_sample_draws_where_the_corpus_is_larger():
    for arm, least in ((arm, SELECTORS[arm].sampled) for arm in ("classifier", "dense", "hybrid")):
        assert [draws(arm, passages) for passages in (least, least + 1)] == [False, True]
        assert draws(arm, least + 1, vectors=True) == (arm == "classifier")  # those of the index, or a model's
    assert [draws(arm, 1) for arm in ("random", "dsir", "bm25", "task-only", "rerank")] == [True, True, *[False] * 3]


def test_scores_do_not_depend_on_the_number_of_processes(made, monkeypatch):
    corpus = Artifact.open(made[0])
    one = selectors.scores_of_all(corpus, lengths)
    monkeypatch.setattr(selectors, "SEVERAL", 1)
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "2")
    assert np.array_equal(one, selectors.scores_of_all(corpus, lengths))


def lengths(texts):
    return np.array([float(len(text)) for text in texts])
