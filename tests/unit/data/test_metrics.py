"""Scores against scikit-learn, against formulas written out, and where formulas divide by zero."""

import json
import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as reference

from tlm.cli.command import descriptions
from tlm.data.tasks.metrics import CLASSIFICATION, METRICS, POSITIVE, REGRESSION, score, sum_in_order
from tlm.evaluation.score.intervals import CORRELATIONS
from tlm.evaluation.score.scores import MANY, METRIC_NAMES, TOP, positive, scores
from tlm.settings.options import Problem

LABELS = ["a", "b", "c"]
WRITTEN = [  # the scores of one of two classes, of several labels and of numbers
    "n macro_f1 micro_f1 accuracy matthews f1 ece classes confusion reliability",
    "n micro_f1 macro_f1 example_f1 exact_match classes",
    "n pearson spearman mse rmse mae",
]


def random_case(size: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    chances = random.dirichlet(np.ones(3), size)
    return random.integers(0, 3, size), chances.argmax(axis=1), chances


@given(st.integers(1, 60), st.integers(0, 1000))
@settings(deadline=None, max_examples=30)
def test_classification_agrees_with_scikit_learn(size: int, seed: int) -> None:
    gold, predicted, chances = random_case(size, seed)
    found = scores(gold, predicted, chances, LABELS)
    assert found["macro_f1"] == pytest.approx(reference.f1_score(gold, predicted, average="macro", zero_division=0))
    assert found["micro_f1"] == pytest.approx(reference.f1_score(gold, predicted, average="micro"))
    assert found["accuracy"] == found["micro_f1"] == pytest.approx((gold == predicted).mean())
    assert found["matthews"] == pytest.approx(reference.matthews_corrcoef(gold, predicted))
    assert found["confusion"] == reference.confusion_matrix(gold, predicted, labels=[0, 1, 2]).tolist()
    columns = reference.precision_recall_fscore_support(gold, predicted, labels=[0, 1, 2], zero_division=0)
    for label, row in zip(LABELS, zip(*columns, strict=True), strict=True):
        assert list(found["classes"][label].values()) == pytest.approx(row)


def test_every_metric_has_a_name_in_reports_and_a_formula_of_its_own() -> None:
    """Without a formula in `scores_of`, a metric of classes would silently be macro-F1."""
    assert {*METRICS} - {"auto"} <= {*METRIC_NAMES}, "name it in METRIC_NAMES, tlm/evaluation/score/scores.py"
    known = {*re.findall(r"\w+", descriptions(Problem)["metric"])}
    assert {*METRICS} <= known, "name it in the help of metric, tlm/settings/options.py"
    gold, predicted, _ = random_case(60, 0)
    found = {name: score(name, gold, predicted) for name in CLASSIFICATION if name != "micro_f1"}  # it is the accuracy
    told = f"two metrics are alike; each needs a formula in scores_of, tlm/data/tasks/metrics.py: {found}"
    assert len({*found.values()}) == len(found), told


def test_metrics_that_can_be_negative_are_known_to_intervals() -> None:
    """Of another metric, an interval would end at 0."""
    wrong = {name: score(name, np.array([0, 1]), np.array([1, 0])) for name in (*CLASSIFICATION, POSITIVE, *REGRESSION)}
    told = "CORRELATIONS, tlm/evaluation/score/intervals.py, has the metrics that go from -1 to 1"
    assert {name for name, value in wrong.items() if value < 0} == {*CORRELATIONS}, told


def test_other_scores_need_new_versions_of_the_steps_that_write_them() -> None:
    """With the old ones, finished work would be found, which lacks the new score."""
    one, two = [0, 1], np.eye(2, dtype=int)
    found = [scores(one, one, two, ["no", "yes"]), scores(two, two, two, ["no", "yes"]), scores(one, one, None, None)]
    files = "VERSION in evaluate.py, mix.py (also that of cascades) and imported.py (tlm/evaluation/score)"
    told = f"metrics.json has other scores: raise {files}, then change WRITTEN in this file"
    assert [" ".join(names) for names in found] == WRITTEN, told


@given(st.integers(1, 60), st.integers(0, 1000))
@settings(deadline=None, max_examples=30)
def test_with_many_classes_the_top_five_count_as_in_scikit_learn(size: int, seed: int) -> None:
    random, labels = np.random.default_rng(seed), [str(number) for number in range(MANY + 1)]
    chances, gold = random.dirichlet(np.ones(len(labels)), size), random.integers(0, len(labels), size)
    found = scores(gold, chances.argmax(axis=1), chances, labels)
    expected = reference.top_k_accuracy_score(gold, chances, k=TOP, labels=range(len(labels)))
    assert found["top5"] == pytest.approx(expected)
    assert found["accuracy"] <= found["top5"]


def test_of_imported_labels_without_probabilities_the_top_five_are_the_label() -> None:
    labels = [str(number) for number in range(MANY + 1)]
    gold, predicted = [0, 1, 2, 3], [0, 1, 20, 20]
    assert scores(gold, predicted, np.eye(len(labels))[predicted], labels)["top5"] == 0.5


def test_few_classes_have_no_top_five() -> None:
    labels = [str(number) for number in range(MANY)]
    assert "top5" not in scores([0], [0], np.eye(MANY)[:1], labels)


@given(st.integers(1, 40), st.integers(0, 1000))
@settings(deadline=None, max_examples=30)
def test_f1_of_two_classes_is_scikit_learn_s_of_label_1(size: int, seed: int) -> None:
    """As GLUE scores MRPC and QQP: scikit-learn's default, the class 1 as the positive one."""
    random = np.random.default_rng(seed)
    gold, predicted = random.integers(0, 2, size), random.integers(0, 2, size)
    found = scores(gold, predicted, np.eye(2)[predicted], ["no", "yes"])
    assert found["f1"] == pytest.approx(reference.f1_score(gold, predicted, zero_division=0))
    assert score("f1", gold, predicted) == found["f1"]
    assert positive(["not_equivalent", "equivalent"]) == "equivalent"


def test_only_two_classes_have_a_positive_one() -> None:
    assert positive(LABELS) == positive([]) == ""
    assert "f1" not in scores([0, 1, 2], [0, 1, 2], np.eye(3), LABELS)
    assert "f1" not in scores([0.5], [0.5], None, None)


def test_calibration_error_by_its_definition() -> None:
    confidence = [0.95, 0.95, 0.95, 0.95, 0.6, 0.6]
    correct = [1, 1, 1, 0, 0, 1]
    chances = np.array([[c, 1 - c] for c in confidence])
    gold = [0 if right else 1 for right in correct]
    found = scores(gold, [0] * 6, chances, ["x", "y"])
    assert found["ece"] == pytest.approx(4 / 6 * abs(0.75 - 0.95) + 2 / 6 * abs(0.5 - 0.6))
    assert [(one["from"], one["n"]) for one in found["reliability"]] == [(0.5, 2), (0.9, 4)]
    thresholded = scores([1, 1], [1, 1], np.array([[0.6, 0.4]] * 2), ["x", "y"])  # answers that are not the likeliest
    assert thresholded["ece"] == pytest.approx(1 - 0.4)


def test_a_calibrated_predictor_has_a_small_error_and_an_overconfident_one_a_large_one() -> None:
    random = np.random.default_rng(0)
    chances = random.dirichlet(np.ones(3), 20_000)
    gold = np.array([random.choice(3, p=p) for p in chances])
    predicted = chances.argmax(axis=1)
    sharp = chances**4 / (chances**4).sum(axis=1, keepdims=True)
    assert scores(gold, predicted, chances, LABELS)["ece"] < 0.02
    assert scores(gold, predicted, sharp, LABELS)["ece"] > 0.15


@given(st.lists(st.tuples(st.integers(-20, 20), st.floats(-5, 5)), min_size=3, max_size=40))
@settings(deadline=None, max_examples=50)
def test_regression_by_the_formulas(pairs: list[tuple[int, float]]) -> None:
    """STS-B's targets have many ties."""
    gold, predicted = np.array([g / 4 for g, _ in pairs]), np.round([p for _, p in pairs], 1)
    found = scores(gold, predicted, None, None)
    assert found["mse"] == pytest.approx(((gold - predicted) ** 2).mean())
    assert found["rmse"] == pytest.approx(np.sqrt(((gold - predicted) ** 2).mean()))
    assert found["mae"] == pytest.approx(np.abs(gold - predicted).mean())
    for name, (x, y) in {"pearson": (gold, predicted), "spearman": (ranks(gold), ranks(predicted))}.items():
        spread = x.std() * y.std()
        expected = ((x - x.mean()) * (y - y.mean())).mean() / spread if spread else 0.0
        assert found[name] == pytest.approx(expected, abs=1e-6)


def ranks(values: np.ndarray) -> np.ndarray:
    """Average ranks, by counting."""
    return np.array([(values < value).sum() + ((values == value).sum() + 1) / 2 for value in values])


@pytest.mark.parametrize(
    ("gold", "predicted"),
    [([], []), ([0], [0]), ([0, 0, 0], [0, 0, 0]), ([0, 0, 0], [1, 1, 1]), ([0, 1, 2], [1, 1, 1]), ([2], [0])],
)
def test_degenerate_classes_give_numbers(gold: list[int], predicted: list[int]) -> None:
    found = scores(gold, predicted, np.eye(3)[predicted], LABELS)
    json.dumps(found, allow_nan=False)
    share = np.mean(np.equal(gold, predicted)) if gold else 0.0
    assert found["accuracy"] == share
    assert found["n"] == len(gold)
    if len(set(gold)) < 2 or len(set(predicted)) < 2:
        assert found["matthews"] == 0


@pytest.mark.parametrize(
    ("gold", "predicted"), [([], []), ([1.0], [2.0]), ([1.0, 1.0], [0.5, 2.0]), ([1.0, 2.0], [3.0, 3.0])]
)
def test_degenerate_targets_give_numbers(gold: list[float], predicted: list[float]) -> None:
    found = scores(gold, predicted, None, None)
    json.dumps(found, allow_nan=False)
    assert found["pearson"] == found["spearman"] == 0


def test_what_is_not_finite_or_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="not finite"):
        scores([1.0], [math.nan], None, None)
    with pytest.raises(ValueError, match="not finite"):
        scores([0], [0], [[math.inf, 0, 0]], LABELS)
    with pytest.raises(ValueError, match="2 gold values but 1"):
        scores([0, 1], [0], [[1, 0, 0]], LABELS)


def test_classes_that_do_not_occur_change_no_bit_of_a_score() -> None:
    random = np.random.default_rng(0)
    for classes in range(3, 30):
        gold, predicted = random.integers(0, classes, (2, 90))
        assert score("macro_f1", gold, predicted) == score("macro_f1", 5 * gold + 3, 5 * predicted + 3)


def test_floats_are_summed_alike_on_every_python() -> None:
    """Python 3.12's own sum has 1.0 here, and what a step writes would depend on the Python."""
    assert sum_in_order([0.1] * 10) == 0.9999999999999999
