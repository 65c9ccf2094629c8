"""Thresholds of labels, and the scores of texts that may have several, beside direct computations."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from sklearn import metrics as reference

from tlm.data.tasks.metrics import (
    METRICS,
    OF_SEVERAL,
    UNFITTED,
    Split,
    above,
    cross_decided,
    fitted_thresholds,
    held_out,
    metric_for,
    score,
    scores_of,
    sums_of,
)
from tlm.errors import InputError
from tlm.evaluation.score.scores import Prediction


def as_libmultilabel_does(values: np.ndarray, gold: np.ndarray) -> list[float]:
    """``train_thresholding`` of LibMultiLabel 0.10.0 (CIKM 2023, Supplementary D) for the one fold of these examples.

    Its steps in plain Python: labels from the most frequent one on; the examples are cut off one by one in the order of
    their values, and the last cut of the highest micro-F1 + macro-F1 wins.
    """
    count, labels = gold.shape
    thresholds, true, false, missed = [0.0] * labels, 0, 0, 0
    for done, label in enumerate(np.flip(np.argsort(gold.sum(axis=0), kind="stable")), start=1):
        order = sorted(range(count), key=lambda row: values[row, label])
        tp, fp, fn = int(gold[:, label].sum()), count - int(gold[:, label].sum()), 0

        def objective(tp: int, fp: int, fn: int, done: int = done, before: tuple = (true, false, missed)) -> float:
            whole = tp + before[0], fp + before[1], fn + before[2]
            macro, micro = (2 * a / (2 * a + b + c) if a else 0.0 for a, b, c in ((tp, fp, fn), whole))
            return micro + macro / done

        best, kept, cut = objective(tp, fp, fn), (tp, fp, fn), -1
        for place, row in enumerate(order):
            if gold[row, label]:
                tp, fn = tp - 1, fn + 1
            else:
                fp -= 1
            if objective(tp, fp, fn) >= best:
                best, kept, cut = objective(tp, fp, fn), (tp, fp, fn), place
        ordered = [values[row, label] for row in order]
        if cut == -1:
            thresholds[label] = np.nextafter(ordered[0], -np.inf)
        elif cut == count - 1:
            thresholds[label] = np.nextafter(ordered[-1], np.inf)
        else:
            thresholds[label] = (ordered[cut] + ordered[cut + 1]) / 2
        true, false, missed = true + kept[0], false + kept[1], missed + kept[2]
    return thresholds


def example(seed: int, count: int = 60, labels: int = 7) -> tuple[np.ndarray, np.ndarray]:
    """Values without ties, of labels from frequent to absent, and the gold labels that they hint at."""
    random = np.random.default_rng(seed)
    gold = (random.random((count, labels)) < np.linspace(0.6, 0, labels)).astype(np.int64)
    return 1 / (1 + np.exp(-random.normal(2 * gold - 2, 1.0))), gold


@pytest.mark.parametrize("seed", range(20))
def test_thresholds_are_those_of_libmultilabel(seed):
    values, gold = example(seed)
    assert fitted_thresholds(values, gold).tolist() == pytest.approx(as_libmultilabel_does(values, gold), abs=1e-15)


def test_a_label_that_no_text_has_is_not_predicted():
    values, gold = example(0)
    assert not gold[:, -1].any()
    assert not above(values, fitted_thresholds(values, gold))[:, -1].any()
    alone = values[:, -1:], gold[:, -1:]  # all thresholds are as good
    assert not above(alone[0], fitted_thresholds(*alone)).any()


@pytest.mark.parametrize("ulps", [0, 1])
def test_a_threshold_divides_two_numbers_without_any_between_them(ulps):
    values = (np.array([0.1, 0.1]).view(np.int64) + np.arange(ulps, ulps + 2)).view(np.float64)[:, None]
    gold = np.array([[0], [1]])
    assert above(values, fitted_thresholds(values, gold)).tolist() == gold.tolist()


def test_thresholds_of_logits_and_of_probabilities_decide_alike():
    values, gold = example(1)
    logits = np.log(values / (1 - values))
    assert (above(values, fitted_thresholds(values, gold)) == above(logits, fitted_thresholds(logits, gold))).all()


@settings(max_examples=60, deadline=None)
@given(
    values=arrays.arrays(np.float64, 12, elements=st.sampled_from([0.1, 0.2, 0.2000001, 0.9])), seed=st.integers(0, 99)
)
def test_equal_values_are_decided_alike_and_as_well_as_any_threshold_can(values, seed):
    gold = (np.random.default_rng(seed).random((12, 1)) < 0.4).astype(np.int64)

    def f1(threshold: float) -> float:
        return score("micro_f1", gold, above(values[:, None], [threshold]))

    found = fitted_thresholds(values[:, None], gold)[0]
    assert f1(found) == pytest.approx(max(map(f1, [0.0, 0.15, 0.2, 0.5, 1.0])), abs=1e-12)


def test_without_examples_the_threshold_is_a_half():
    assert fitted_thresholds(np.zeros((0, 3)), np.zeros((0, 3), int)).tolist() == [UNFITTED] * 3


def test_each_group_is_decided_by_thresholds_of_the_others():
    values, gold = example(2)
    group = np.arange(60) // 6
    found = cross_decided(values, gold, group)
    changed = gold.copy()
    changed[group == 3] = 1 - changed[group == 3]  # what a group's own gold labels are does not matter to it
    assert (cross_decided(values, changed, group)[group == 3] == found[group == 3]).all()
    assert (cross_decided(values, changed, group) != found).any()
    assert [len(own) for _, own in held_out(group)] == [12] * 5
    assert (cross_decided(values, gold, np.zeros(60, int)) == above(values, fitted_thresholds(values, gold))).all()


def test_dev_is_decided_by_thresholds_of_other_groups_and_test_by_those_of_the_model():
    values, gold = example(2)
    count, group = np.arange(60), np.arange(60) // 6
    ours = fitted_thresholds(values, gold).tolist()
    expected = {"dev": cross_decided(values, gold, group), "test": above(values, ours)}
    assert (expected["dev"] != expected["test"]).any()
    for name, decided in expected.items():
        split = Split(name, count, [""] * 60, None, gold, group, np.zeros(60, bool))
        assert np.array_equal(Prediction.of(split, values, ours).predicted, decided)


# ---- scores


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 30), st.integers(2, 5), st.integers(0, 10**6))
def test_scores_agree_with_scikit_learn(count, labels, seed):
    random = np.random.default_rng(seed)
    gold, predicted = (random.integers(0, 2, (count, labels)) * random.integers(0, 2, (count, 1)) for _ in range(2))
    occurs = np.flatnonzero((gold + predicted).any(axis=0))
    expected = {
        "micro_f1": reference.f1_score(gold, predicted, average="micro", zero_division=0),
        "macro_f1": reference.f1_score(gold, predicted, average="macro", labels=occurs, zero_division=0)
        if len(occurs)
        else 0,
        "example_f1": reference.f1_score(gold, predicted, average="samples", zero_division=1),
        "exact_match": reference.accuracy_score(gold, predicted),
    }
    assert {name: score(name, gold, predicted) for name in OF_SEVERAL} == pytest.approx(expected)


@pytest.mark.parametrize("metric", OF_SEVERAL)
def test_sums_of_groups_give_the_score_of_the_groups_together(metric):
    values, gold = example(3)
    predicted, group = above(values, [0.3] * 7), np.arange(60) % 11
    sums = sums_of(metric, gold, predicted, group, 11)
    assert scores_of(metric, sums.sum(axis=0)) == pytest.approx(score(metric, gold, predicted))
    some = np.isin(group, [2, 5])
    assert scores_of(metric, sums[[2, 5]].sum(axis=0)) == pytest.approx(score(metric, gold[some], predicted[some]))


def test_the_metric_of_several_labels():
    assert metric_for(["a", "b"], "auto", several=True) == "micro_f1"
    assert {metric_for(["a", "b"], name, several=True) for name in OF_SEVERAL} == set(OF_SEVERAL) < set(METRICS)
    with pytest.raises(InputError, match=r"metric 'f1' does not fit: the task is one with 2 labels, several a text"):
        metric_for(["a", "b"], "f1", several=True)
    with pytest.raises(InputError, match=r"'example_f1' does not fit: the task is a classification with 3 classes"):
        metric_for(["a", "b", "c"], "example_f1")
