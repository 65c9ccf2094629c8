"""Verdicts: what counts as the paper's value, and what as the paper's order."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tlm.paper.results import Result
from tlm.paper.tables import Cell, cells
from tlm.paper.verdicts import comparisons, difference, outcomes, tally

SCORES = st.lists(st.floats(0, 100, width=32), min_size=3, max_size=8)


def runs(scores: list[float], split: str = "dev") -> dict[int, Result]:
    """Results with these scores, in hundredths."""
    found = {}
    for seed, score in enumerate(scores):
        values: dict[str, Any] = {"metric": "macro_f1", "scores": {split: {"macro_f1": score / 100}}}
        found[seed] = Result(None, values)  # type: ignore[arg-type]
    return found


def told(table: str, scale: str, task: str, scores: dict[str, list[float]], **kwargs: Any) -> dict[str, Any]:
    found = cells(table, scale, [task])
    results = {cell.key: runs(scores[cell.row], cell.split) for cell in found if cell.row in scores}
    return {one.cell.row: one for one in outcomes(found, results, judged=scale == "small", **kwargs)}


@pytest.mark.parametrize(
    ("score", "tolerance", "verdict"),
    [
        (86.07, 0, "OK"), (86.55, 0, "OK"), (85.59, 0, "OK"), (86.56, 0, "near"), (87.03, 0, "near"),
        (87.04, 0, "miss"), (85.10, 0, "miss"), (87.04, 1.0, "OK"), (84.05, 1.0, "miss"),
    ],
)  # fmt: skip
def test_within_one_published_deviation_is_ok_and_within_two_is_near(score, tolerance, verdict):
    """SciERC, BM25: 86.07 ± 0.48."""
    assert (
        told("3", "small", "scierc", {"BM25, C_BERT": [score]}, tolerance=tolerance)["BM25, C_BERT"].verdict == verdict
    )


@pytest.mark.parametrize(("score", "verdict"), [(57.5, "OK"), (56.5, "OK"), (56.49, "near"), (58.1, "miss")])
def test_without_a_published_deviation_the_table_s_tolerance_holds(score, verdict):
    """ACL-ARC without stage 2: 57.00, tolerance 0.5."""
    assert told("7", "small", "acl-arc", {"without stage 2": [score]})["without stage 2"].verdict == verdict


def test_a_published_deviation_of_zero_leaves_the_tolerance():
    """HyperPartisan, RoBERTa-Large: 95.16 ± 0.00."""
    found = next(c for c in cells("2", "large", ["hyperpartisan"]) if c.arm == "plm")
    assert outcomes([found], {found.key: runs([95.5], "test")}, judged=True)[0].verdict == "OK"


def test_what_was_not_run_is_not_run_and_seeds_are_averaged():
    found = told("3", "small", "scierc", {"BM25, C_BERT": [85.0, 87.14]})
    assert found["BM25, C_BERT"].scores["mean"] == pytest.approx(86.07)
    assert found["BM25, C_BERT"].verdict == "OK"
    assert found["random, C_BERT"].verdict == "not run"


@given(SCORES, SCORES)
def test_the_interval_of_a_difference_is_welch_s(a, b):
    """Against scipy's, whose degrees of freedom are not rounded: ours is never narrower."""
    mean, low, high = difference(a, b)
    if np.var(a) + np.var(b) < 1e-6:
        return
    theirs = stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
    assert mean == pytest.approx(np.mean(a) - np.mean(b), abs=1e-9)
    assert low <= theirs.low + 1e-6
    assert high >= theirs.high - 1e-6
    freedom = stats.ttest_ind(a, b, equal_var=False).df
    if abs(freedom - round(freedom)) < 1e-9:
        assert (low, high) == pytest.approx(tuple(theirs))


def test_equal_sizes_and_spreads_give_student_s_interval():
    mean, low, high = difference([1.0, 2.0, 3.0], [4.0, 5.0, 6.0])
    assert mean == -3
    assert (low, high) == pytest.approx((-3 - 2.7764451 * (2 / 3) ** 0.5, -3 + 2.7764451 * (2 / 3) ** 0.5))


def test_too_few_seeds_give_no_interval():
    assert difference([1.0, 2.0], [3.0, 4.0, 5.0]) == (-2.5, None, None)
    assert difference([], [1.0]) == (None, None, None)


BM25, RANDOM = "BM25, C_BERT", "random, C_BERT"


@pytest.mark.parametrize(
    ("bm25", "random", "verdict"),
    [
        ([60.0, 61.0, 62.0], [50.0, 51.0, 52.0], "shown"),
        ([50.0, 51.0, 52.0], [60.0, 61.0, 62.0], "reversed"),
        ([50.0, 60.0, 70.0], [49.0, 58.0, 69.0], "not shown"),
        ([60.0, 61.0], [50.0, 51.0, 52.0], "open"),
        ([60.0], [], "not run"),
    ],
)
def test_an_order_is_shown_only_where_an_interval_carries_it(bm25, random, verdict):
    (one,) = comparisons(list(told("3", "pocket", "scierc", {BM25: bm25, RANDOM: random}).values()))
    assert (one.chosen, one.other, one.claim, one.verdict) == (BM25, RANDOM, 1, verdict)
    assert one.paper == pytest.approx(86.07 - 83.80)


def claims(table: str, task: str, scale: str = "pocket") -> dict[str, int]:
    tasks = [*{cell.column: 0 for cell in cells(table, scale)}, task]
    found = outcomes(cells(table, scale, list(dict.fromkeys(tasks))), {}, judged=False)
    return {one.other: one.claim for one in comparisons(found) if one.task == task}


def test_the_paper_claims_what_exceeds_its_own_deviations():
    assert claims("4", "scierc") == {"task data only": 1, "top 50": 1, "top 500": 1}
    assert claims("4", "agnews") == {"task data only": 1, "top 500": 1, "top 5000": 0}
    assert claims("5", "scierc") == {"rho1 1": 1, "rho1 3": 1, "rho1 99": 1, "external only": 0}
    assert claims("6", "chemprot") == {"rho2 0": 0, "rho2 100": 0, "rho2 1000": 0}
    assert claims("6", "rct-20k")["rho2 0"] == 1


def test_a_task_that_the_paper_does_not_have_gets_the_claim_that_its_tasks_share():
    assert claims("3", "mine") == {RANDOM: 1}
    assert claims("4", "mine") == {"task data only": 1, "top 50": 1, "top 500": 1}
    assert claims("6", "mine")["rho2 0"] == 0  # SciERC says so, ChemProt does not
    assert claims("7", "scierc") == {"without stage 2": 1}


def test_where_the_paper_claims_nothing_nothing_is_shown():
    scores = {"rho2 20": [60.0, 61.0, 62.0], "rho2 100": [50.0, 51.0, 52.0]}
    found = {one.other: one for one in comparisons(list(told("6", "pocket", "scierc", scores).values()))}
    assert found["rho2 100"].verdict == "no claim"
    assert found["rho2 100"].mean == pytest.approx(10)
    assert found["rho2 0"].verdict == "not run"


def test_a_tally_counts_in_a_fixed_order():
    assert tally(["miss", "OK", "not run", "OK"]) == "2 OK, 1 miss, 1 not run"
    assert tally([]) == ""


def test_the_chosen_cell_is_judged_by_the_split_that_the_paper_scored():
    cell: Cell = cells("3", "small", ["scierc"])[2]
    assert outcomes([cell], {cell.key: runs([86.0], "test")}, judged=True)[0].verdict == "not run"
