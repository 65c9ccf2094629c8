"""Intervals over seeds and test examples: against plain loops, against simulation, and in cases with known answers."""

import tracemalloc
from itertools import combinations
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import f1_score, matthews_corrcoef

from tlm.data.tasks.metrics import CLASSIFICATION, POSITIVE, REGRESSION, score, scores_of, sums_of
from tlm.evaluation.score.intervals import (
    RESAMPLES,
    Arm,
    Predictions,
    _counts,
    chance,
    difference,
    differences,
    interval,
    with_interval,
)


def arm(gold, predicted, group=None, metric="accuracy", **more):
    gold = np.asarray(gold)
    group = np.arange(len(gold)) if group is None else np.asarray(group)
    return Arm((Predictions(metric, gold, np.asarray(predicted), group),), **more)


def rights(count: int, total: int) -> np.ndarray:
    """Predictions of which the first `count` are right where all gold labels are 1."""
    return (np.arange(total) < count).astype(int)


# ---- scores out of sums


@pytest.mark.parametrize("metric", [*CLASSIFICATION, *REGRESSION, POSITIVE])
@settings(deadline=None)  # the first call imports scikit-learn
@given(st.integers(0, 10**6), st.integers(1, 40), st.integers(2, 5))
def test_scores_out_of_sums_are_those_of_the_examples(metric, seed, size, classes):
    rng = np.random.default_rng(seed)
    gold, predicted = rng.integers(2 if metric == "f1" else classes, size=(2, size))
    if metric in REGRESSION:
        gold, predicted = gold + 0.5, predicted + rng.normal(0, 0.1, size).round(1)
    group = rng.integers(3, size=size)
    found = scores_of(metric, sums_of(metric, gold, predicted, group, 3).sum(axis=0))
    assert found == pytest.approx(score(metric, gold, predicted), abs=1e-9)


def test_a_class_that_one_run_alone_names_changes_no_score_of_the_others():
    gold, one, two = [0, 1, 0, 1], [0, 1, 1, 1], [0, 3, 0, 1]
    both = arm(gold, [one, two], metric="macro_f1").scores
    assert both.tolist() == [score("macro_f1", *map(np.asarray, (gold, run))) for run in (one, two)]


@settings(deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 40), st.integers(2, 4))
def test_an_answer_with_a_class_that_does_not_count_is_wrong_and_has_no_f1(seed, size, known):
    rng = np.random.default_rng(seed)
    gold, predicted = rng.integers(known, size=size), rng.integers(known + 2, size=size)
    split = Predictions("macro_f1", gold, predicted[None], np.arange(size), known)
    named = sorted({*gold, *predicted[predicted < known]})
    expected = f1_score(gold, predicted, labels=named, average="macro", zero_division=0)
    assert Arm((split,), fixed=True).scores[0] == pytest.approx(expected)


@pytest.mark.parametrize(("metric", "reference"), [("micro_f1", f1_score), ("matthews", matthews_corrcoef)])
def test_such_an_answer_is_wrong_in_every_other_score(metric, reference):
    rng = np.random.default_rng(0)
    gold, predicted = rng.integers(3, size=90), rng.integers(5, size=90)
    how = {"average": "micro"} if metric == "micro_f1" else {}
    split = Predictions(metric, gold, predicted[None], np.arange(90), 3)
    assert Arm((split,), fixed=True).scores[0] == pytest.approx(reference(gold, predicted, **how))


def test_memory_does_not_grow_with_examples_times_classes():
    gold, predicted = np.random.default_rng(0).integers(500, size=(2, 20_000))
    tracemalloc.start()
    try:
        arm(gold, [predicted], metric="macro_f1", resamples=9).mean_resampled  # noqa: B018, it is kept
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 20_000 * 500  # a byte for each of both would be too much


# ---- the interval, step by step


@pytest.mark.parametrize("metric", ["macro_f1", "pearson"])
def test_it_is_what_plain_loops_over_resampled_groups_give(metric):
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(60), 2)
    gold = rng.integers(3, size=120)
    skills = np.array([0.8, 0.6])[:, None, None]
    first, second = np.where(rng.random((2, 4, 120)) < skills, gold, rng.integers(3, size=(2, 4, 120)))
    if metric == "pearson":
        gold, first, second = gold + 0.5, first + 0.1 * rng.normal(size=(4, 120)), second * 1.0
    ours = difference(*(arm(gold, side, group, metric, resamples=4000) for side in (first, second)))

    def mean(side, rows):
        return np.mean([score(metric, gold[rows], run[rows]) for run in side])

    everything = np.arange(120)
    drawn = []
    for _ in range(300):
        rows = np.concatenate([everything[group == one] for one in rng.integers(60, size=60)])
        drawn.append(mean(first, rows) - mean(second, rows))
    seeds = [np.var([mean([run], everything) for run in side], ddof=1) / 4 for side in (first, second)]
    examples = np.var(drawn, ddof=1) + 1 / 60**2
    total = sum(seeds) + examples
    freedom = total**2 / (seeds[0] ** 2 / 3 + seeds[1] ** 2 / 3 + examples**2 / 59)
    half = stats.t.ppf(0.975, freedom) * total**0.5
    assert ours.mean == pytest.approx(mean(first, everything) - mean(second, everything))
    assert ours.high - ours.mean == pytest.approx(half, rel=0.1)  # the bootstraps have 300 and 4,000 draws
    assert ours.mean - ours.low == pytest.approx(ours.high - ours.mean)


@pytest.mark.parametrize("metric", REGRESSION)
@pytest.mark.parametrize("unit", [1e-9, 1e-6, 1e6])
def test_the_interval_of_a_correlation_depends_on_no_unit(metric, unit):
    """Targets around one in a million once had a correlation of 0.000."""
    rng = np.random.default_rng(6)
    gold = rng.normal(size=80)
    runs = gold + rng.normal(size=(3, 80))
    expected, found = (interval(arm(one * gold + one, one * runs, metric=metric)) for one in (1.0, unit))
    assert found == pytest.approx(expected, rel=1e-6)
    assert found.low > 0


@pytest.mark.parametrize(("metric", "most"), [("pearson", 1.15), ("spearman", 2.0)])
def test_a_small_test_set_does_not_hide_a_high_correlation(metric, most):
    """One more answer moves a share by 1/n, a correlation by much less: intervals were several times too wide."""
    rng = np.random.default_rng(8)
    gold = rng.normal(size=50)
    predicted = gold + 0.2 * rng.normal(size=50)
    *_, high = found = interval(arm(gold, [predicted] * 3, metric=metric))
    drawn = [rng.integers(50, size=50) for _ in range(2000)]
    expected = 2.01 * np.std([score(metric, gold[rows], predicted[rows]) for rows in drawn])
    assert 0.85 * expected < high - found.mean < most * expected


def test_the_same_predictions_have_the_same_interval():
    gold, predicted = np.random.default_rng(1).integers(3, size=(2, 50))
    assert interval(arm(gold, [predicted] * 3)) == interval(arm(gold, [predicted] * 3))


def test_equal_seeds_still_have_the_examples_to_answer_for():
    """Three equal seeds once had an interval of no width."""
    low, high = interval(arm(np.ones(65, int), [rights(45, 65)] * 3))[1:]
    assert high - low == pytest.approx(2 * 1.998 * (45 * 20 / 65**3 + 65**-2) ** 0.5, rel=0.08)  # t with 64 degrees


@pytest.mark.parametrize(("metric", "least"), [("macro_f1", 0.0), ("matthews", -1.0), ("pearson", -1.0)])
def test_an_interval_of_a_score_ends_where_scores_end(metric, least):
    few = arm([0, 1, 2, 1], [[0, 1, 1, 2]], metric=metric, fixed=True)
    assert interval(few).low < least
    assert interval(few).high > 1.0
    assert (with_interval(few)["low"], with_interval(few)["high"]) == (least, 1.0)


def test_one_more_right_answer_is_no_order_and_many_are():
    ones = np.ones(65, int)
    baseline = arm(ones, [rights(44, 65)], fixed=True)
    for more in (1, 2, 3, 4):
        assert difference(arm(ones, [rights(44 + more, 65)] * 3), baseline).sign == 0
    assert difference(arm(ones, [rights(60, 65)] * 3), baseline).sign == 1
    assert difference(baseline, arm(ones, [rights(60, 65)] * 3)).sign == -1


@pytest.mark.parametrize("seeds", [1, 2])
def test_too_few_seeds_name_no_order(seeds):
    ones = np.ones(500, int)
    worst, best = arm(ones, [rights(0, 500)] * 3), arm(ones, [rights(500, 500)] * seeds)
    assert interval(best)[1:] == (None, None)
    found = difference(best, worst)
    assert (found.mean, found.low, found.high, found.sign) == (1.0, None, None, 0)


def test_draws_are_kept_for_both_splits_with_and_without_copies():
    sizes = (20_000, 30, 20, 10)
    first = [_counts(size, RESAMPLES) for size in sizes]
    assert all(_counts(size, RESAMPLES) is kept for size, kept in zip(sizes, first, strict=True))


def test_an_arm_is_added_up_once_and_keeps_the_sums_alone():
    one = arm([0, 1, 0, 1], [[0, 1, 0, 1], [0, 1, 1, 1], [0, 0, 0, 1]])
    assert one.scores is one.scores
    assert one.mean_resampled is one.mean_resampled
    assert one.independent is one.independent
    shapes = [array.shape for array in vars(one)["_scored"]]
    assert shapes == [(3,), (1, RESAMPLES)], "what each run scores on each resample is not kept"


def test_the_chance_of_being_ahead_is_the_share_of_resamples_in_which_an_arm_is():
    rng = np.random.default_rng(7)
    gold = rng.integers(2, size=400)
    first, second = (np.where(rng.random(400) < skill, gold, 1 - gold) for skill in (0.72, 0.68))
    one, other = arm(gold, [first], fixed=True), arm(gold, [second], fixed=True)
    rows = rng.integers(400, size=(4000, 400))
    better = accuracy(gold, first, rows) - accuracy(gold, second, rows)
    share = (better > 0).mean() + (better == 0).mean() / 2
    assert chance(one, other) == pytest.approx(share, abs=0.02)
    assert chance(one, other) + chance(other, one) == pytest.approx(1)
    assert chance(one, one) == 0.5


def accuracy(gold, predicted, rows):
    return (gold == predicted)[rows].mean(axis=1)


def test_the_chance_counts_seeds_where_there_are_enough():
    ones = np.ones(1000, int)
    spread_out = [rights(count, 1000) for count in (500, 560, 620)]
    linear = arm(ones, [rights(540, 1000)], fixed=True)
    assert 0.5 < chance(arm(ones, spread_out), linear) < 0.75
    assert chance(arm(ones, [spread_out[1]]), linear) > 0.9  # of this very model, which is paired with the linear one
    single = arm(ones, [rights(540, 1000)])  # one seed of two: then the other arm's seeds do not count, either
    assert chance(arm(ones, spread_out), single) == chance(arm(ones, spread_out, draws=(0, 0, 0)), single) > 0.9


def test_runs_on_one_draw_of_text_are_one():
    """Seeds on one draw have the draw's luck in common, so draws are what there must be enough of."""
    rng = np.random.default_rng(3)
    gold = rng.integers(2, size=60)
    runs = np.where(rng.random((6, 60)) < 0.7, gold, 1 - gold)
    assert interval(arm(gold, runs, draws=(0,) * 6)).low is None
    assert interval(arm(gold, runs, draws=(0, 0, 0, 1, 1, 1))).low is None
    assert interval(arm(gold, runs, draws=(4, 9, 2, 7, 0, 1))) == interval(arm(gold, runs))
    twice = np.repeat(runs[:3], 2, axis=0)
    assert interval(arm(gold, twice, draws=(0, 0, 1, 1, 2, 2))) == pytest.approx(interval(arm(gold, runs[:3])))
    assert interval(arm(gold, runs[:3], draws=(0, 0, 0), fixed=True)).low is None


def test_a_draw_of_most_runs_has_its_share_in_the_variance():
    """All draws once counted alike: of ten runs on one draw and one on each of nine, intervals held 87 % of scores."""
    ones = np.ones(100, int)
    runs = [rights(count, 100) for count in (50, 52, 54, 56, 70, 60)]
    uneven = arm(ones, runs, draws=(0, 0, 0, 0, 1, 2))
    assert uneven.independent == pytest.approx([0.53, 0.7, 0.6])
    shares = np.array([4, 1, 1]) / 6
    assert uneven.seed_variance() == (pytest.approx(np.var([0.53, 0.7, 0.6], ddof=1) * (shares**2).sum()), 2)
    even = arm(ones, runs, draws=(0, 0, 1, 1, 2, 2))
    assert even.seed_variance()[0] == pytest.approx(np.var([0.51, 0.55, 0.65], ddof=1) / 3)


def test_a_linear_model_needs_no_seeds():
    ones = np.ones(500, int)
    baseline = arm(ones, [rights(250, 500)], fixed=True)
    assert interval(baseline).low == pytest.approx(0.5 - 1.965 * (0.25 / 500 + 500**-2) ** 0.5, abs=0.005)


def test_examples_of_one_group_count_as_one():
    rng = np.random.default_rng(2)
    gold = np.ones(100, int)
    once = [(rng.random(100) < 0.7).astype(int)]
    repeated = [np.repeat(run, 4) for run in once]
    alone = interval(arm(gold, once, fixed=True))
    together = interval(arm(np.repeat(gold, 4), repeated, np.repeat(np.arange(100), 4), fixed=True))
    apart = interval(arm(np.repeat(gold, 4), repeated, fixed=True))
    assert tuple(together) == pytest.approx(tuple(alone))
    assert apart.high - apart.low == pytest.approx((together.high - together.low) / 2, rel=0.1)


def test_differences_are_paired_by_example():
    """Two arms that are right and wrong together differ by less than their own intervals are wide."""
    rng = np.random.default_rng(3)
    easy = rng.random(400) < 0.6
    first = [np.where(rng.random(400) < 0.02, ~easy, easy).astype(int) for _ in range(3)]
    second = [np.where(rng.random(400) < 0.02, ~easy, easy).astype(int) for _ in range(3)]
    gold = np.ones(400, int)
    apart = interval(arm(gold, first))
    between = difference(arm(gold, first), arm(gold, second))
    assert between.high - between.low < 0.6 * (apart.high - apart.low)


def test_many_comparisons_widen_each_interval():
    rng = np.random.default_rng(4)
    gold = rng.integers(2, size=2000)
    arms = {name: arm(gold, np.where(rng.random((20, 2000)) < 0.7, gold, 1 - gold)) for name in "abcd"}
    found = differences(arms, [*combinations(arms, 2)])
    assert [one["first"] + one["second"] for one in found] == ["ab", "ac", "ad", "bc", "bd", "cd"]
    for one in found:
        alone = difference(arms[one["first"]], arms[one["second"]])
        ratio = (one["high"] - one["low"]) / (alone.high - alone.low)
        assert ratio == pytest.approx(stats.norm.ppf(1 - 0.025 / 6) / stats.norm.ppf(0.975), rel=0.03)


def test_pairs_without_an_interval_do_not_widen_the_others():
    gold = np.arange(200) % 2
    arms = {name: arm(gold, [rights(140 + place, 200)] * 3) for place, name in enumerate("ab")}
    arms["once"] = arm(gold, [rights(150, 200)])
    alone = differences(arms, [("a", "b")])[0]
    beside = differences(arms, [("a", "b"), ("a", "once"), ("b", "once")])
    assert [one["low"] is None for one in beside] == [False, True, True]
    assert beside[0] == alone


def test_arms_with_other_examples_are_not_compared():
    with pytest.raises(ValueError, match="different examples"):
        difference(arm(np.ones(5, int), [rights(3, 5)] * 3), arm(np.zeros(5, int), [rights(3, 5)] * 3))


def test_a_mean_over_tasks_has_the_variance_of_a_mean():
    rng = np.random.default_rng(5)
    gold = np.ones(400, int)
    splits = [
        Predictions("accuracy", gold, np.array([rng.random(400) < 0.7] * 3).astype(int), np.arange(400)) for _ in "ab"
    ]
    one, both = interval(Arm((splits[0],))), interval(Arm(tuple(splits)))
    assert both.mean == pytest.approx(np.mean([interval(Arm((split,))).mean for split in splits]))
    assert both.high - both.low == pytest.approx((one.high - one.low) / 2**0.5, rel=0.1)


# ---- what the intervals promise, by simulation


def simulated(rng, rows: int, seeds: int, gap: float, deviation: float, own: float) -> list[Arm]:
    """Two arms whose expected share of right answers differs by `gap`.

    An answer is right where the example is easy enough for the run's skill, which differs by `deviation` between
    seeds. What is easy is shared by both arms, by the seeds of an arm (`own`), and by the examples of a group.
    """
    classes = 2 if rows < 100 else 7
    shares = np.arange(classes, 0, -1) / sum(range(classes + 1))
    gold = rng.choice(classes, rows, p=shares)
    group = np.unique(rng.integers(rows // 2, size=rows), return_inverse=True)[1]
    groups = group.max() + 1
    shared = rng.normal(size=groups)
    spread = (1 + own**2 + 0.7**2) ** 0.5
    arms = []
    for ahead in (gap, 0.0):
        easy = (shared + own * rng.normal(size=groups))[group]
        runs = []
        for _ in range(seeds):
            skill = spread * NormalDist().inv_cdf(min(0.98, 0.6 + ahead + deviation * rng.normal()))
            right = easy + 0.7 * rng.normal(size=rows) < skill
            runs.append(np.where(right, gold, (gold + 1 + rng.integers(classes - 1, size=rows)) % classes))
        arms.append(arm(gold, runs, group, "macro_f1", resamples=150))
    return arms


@pytest.mark.parametrize("own", [0.3, 1.0])
@pytest.mark.parametrize("seeds", [3, 5])
@pytest.mark.parametrize("rows", [65, 974])
def test_equal_arms_are_seldom_called_different(rows, seeds, own):
    rng = np.random.default_rng([rows, seeds])
    draws = 1000 if own < 1 or rows < 100 else 300
    called = [difference(*simulated(rng, rows, seeds, 0.0, 0.02, own)).sign != 0 for _ in range(draws)]
    assert np.mean(called) <= 0.065


def test_eight_points_are_found():
    rng = np.random.default_rng(8)
    found = [difference(*simulated(rng, 974, 5, 0.08, 0.02, 0.3)).sign for _ in range(100)]
    assert np.mean(np.array(found) == 1) >= 0.5


@pytest.mark.parametrize(
    ("metric", "gold", "expected"),
    [
        ("macro_f1", [0, 0, 0, 1, 1, 2], [1 / 12, 1 / 9, 1 / 6]),  # 1/3 of the score each; 3, 2 and 1 groups
        ("accuracy", [0, 0, 0, 1, 1, 2], [3 / 6 / 4, 2 / 6 / 3, 1 / 6 / 2]),
        ("f1", [0, 0, 0, 1, 1, 0], [1 / 3]),  # of the second class alone
        ("spearman", [0.5, 1.5, 2.0, 3.0, 4.0, 5.0], [1 / 7]),
        ("micro_f1", [[1, 0], [1, 0], [1, 1], [0, 1], [0, 0], [1, 0]], [4 / 6 / 5, 2 / 6 / 3]),
        ("f1", [0] * 6, [1 / 6]),  # none of its class: one of any
        ("exact_match", [[1, 0], [1, 0], [1, 1], [0, 1], [0, 0], [1, 0]], [1 / 7]),
    ],
)
def test_one_more_answer_counts_by_how_few_its_class_has(metric, gold, expected):
    split = Predictions(metric, np.array(gold), np.array([gold]), np.arange(6))
    assert split.one_more == pytest.approx(sum(part**2 for part in expected))


def answered(rng, gold, classes, right):
    """Each answer is right with this probability, else another class."""
    wrong = (gold + 1 + rng.integers(classes - 1, size=len(gold))) % classes
    return np.where(rng.random(len(gold)) < right, gold, wrong)


@pytest.mark.parametrize("rows", [140, 500])
def test_the_interval_holds_where_classes_have_three_texts(rows):
    """Of four classes two; with one more answer of all texts, intervals hold the true score less often (asserted)."""
    rng, shares = np.random.default_rng(rows), [0.5 - 3 / rows, 0.5 - 3 / rows, 3 / rows, 3 / rows]
    population = rng.choice(4, size=1_000_000, p=shares)
    truth = score("macro_f1", population, answered(rng, population, 4, 0.97))
    held, before = [], []
    for _ in range(300):
        gold = rng.choice(4, size=rows, p=shares)
        own = arm(gold, [answered(rng, gold, 4, 0.97)], metric="macro_f1", fixed=True, resamples=200)
        (mean, low, high), ours = interval(own), own.splits[0].one_more
        resampled = np.var(own.mean_resampled[0], ddof=1)
        half = (high - mean) * ((resampled + rows**-2) / (resampled + ours)) ** 0.5
        held.append(low <= truth <= high)
        before.append(abs(mean - truth) <= half)
    assert np.mean(held) >= 0.94
    assert np.mean(before) <= 0.9


def test_a_few_large_groups_still_show_a_true_difference():
    """26 groups of 40 texts: one more whole group that differs would hide five points in three of four test sets."""
    rng, group, found = np.random.default_rng(26), np.repeat(np.arange(26), 40), {0.0: [], 0.05: []}
    for ahead, signs in found.items():
        for _ in range(100):
            gold, luck, theirs = rng.integers(7, size=1040), rng.random(1040), rng.random(1040)
            wrong = (gold + 1 + rng.integers(6, size=1040)) % 7
            answers = [np.where(0.7 * luck + 0.3 * own < skill, gold, wrong)
                       for own, skill in ((rng.random(1040), 0.65 + ahead), (theirs, 0.65))]  # fmt: skip
            arms = [arm(gold, [one], group, "macro_f1", fixed=True, resamples=200) for one in answers]
            signs.append(difference(*arms).sign)
    assert np.mean(np.abs(found[0.0])) <= 0.08
    assert np.mean(np.array(found[0.05]) == 1) >= 0.5


def test_the_interval_holds_where_one_group_has_half_of_the_texts():
    """With as many degrees of freedom as groups, 100, intervals hold the true score less often (asserted)."""
    rng, ones, group = np.random.default_rng(50), np.ones(400, int), np.r_[np.zeros(200, int), 1 + np.arange(200) // 2]
    held, before = [], []
    for _ in range(300):
        hard = 0.3 * rng.normal(size=101)[group] + 0.95 * rng.normal(size=400)
        right = (hard < NormalDist().inv_cdf(0.8) * (0.3**2 + 0.95**2) ** 0.5).astype(int)
        mean, low, high = interval(arm(ones, [right], group, fixed=True, resamples=200))
        held.append(low <= 0.8 <= high)
        effective = int(400**2 / (200**2 + 100 * 2**2))  # 3 groups of equal size
        half = (high - mean) * stats.t.ppf(0.975, 100) / stats.t.ppf(0.975, effective - 1)
        before.append(abs(mean - 0.8) <= half)
    assert np.mean(held) >= 0.95
    assert np.mean(before) <= 0.92
