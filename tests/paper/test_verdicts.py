"""Verdicts: what counts as the paper's value, and what as the paper's order."""

from typing import Any

import pytest

from research.paper.page import comparisons, outcomes, tally
from research.paper.results import Result, arm_of
from research.paper.tables import Cell, cells
from tests.paper.kept import rights
from tlm.evaluation.score.intervals import difference


def runs(scores: list[float], split: str = "dev", kept: bool = False) -> dict[int, Result]:
    """Results with these scores, in hundredths; with `kept` predictions of which so many of 1,000 are right."""
    found = {}
    for seed, score in enumerate(scores):
        values: dict[str, Any] = {"metric": "accuracy" if kept else "macro_f1", "arm": "bm25"}
        values["scores"] = {split: {values["metric"]: score / 100}}
        if kept:
            values["examples"] = {"labels": ["no", "yes"], split: rights(round(10 * score), 1000, seed)}
        found[seed] = Result("", values)
    return found


def told(
    table: str, scale: str, task: str, scores: dict[str, list[float]], kept: bool = False, **kwargs: Any
) -> dict[str, Any]:
    found = cells(table, scale, [task])
    results = {cell.key: runs(scores[cell.row], cell.split, kept) for cell in found if cell.row in scores}
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
    found = next(c for c in cells("2", "large", ["hyperpartisan"]) if c.arm == "published")
    assert outcomes([found], {found.key: runs([95.5], "test")}, judged=True)[0].verdict == "OK"


def test_what_was_not_run_is_not_run_and_seeds_are_averaged():
    found = told("3", "small", "scierc", {"BM25, C_BERT": [85.0, 87.14]})
    assert found["BM25, C_BERT"].scores["mean"] == pytest.approx(86.07)
    assert found["BM25, C_BERT"].verdict == "OK"
    assert found["random, C_BERT"].verdict == "not run"


def test_the_interval_is_that_of_the_report():
    """One function for both."""
    scores = {BM25: [60.0, 63.0, 66.0], RANDOM: [50.0, 52.0, 57.0]}
    (one,) = comparisons(list(told("3", "pocket", "scierc", scores, kept=True).values()))
    arms = [arm_of(list(runs(scores[row], "dev", True).values()), "dev") for row in (BM25, RANDOM)]
    theirs = difference(*arms)
    assert (one.mean, one.low, one.high) == pytest.approx(tuple(100 * value for value in theirs))


def test_runs_without_predictions_carry_no_verdict():
    """Intervals over seeds alone claim too much."""
    scores = {BM25: [60.0, 61.0, 62.0], RANDOM: [50.0, 51.0, 52.0]}
    found = told("3", "pocket", "scierc", scores)
    (one,) = comparisons(list(found.values()))
    assert (one.mean, one.low, one.high, one.verdict) == (pytest.approx(10), None, None, "seeds only")
    assert found[BM25].scores["seeds_only"]
    assert not told("3", "pocket", "scierc", scores, kept=True)[BM25].scores["seeds_only"]


def test_runs_on_other_examples_are_not_compared():
    found = told("3", "pocket", "scierc", {BM25: [60.0, 61.0, 62.0], RANDOM: [50.0, 51.0, 52.0]}, kept=True)
    other = found[RANDOM]._replace(arm=arm_of([Result("", {
        "metric": "accuracy", "arm": "bm25", "examples": {"labels": ["no", "yes"], "dev": rights(50, 90, 0)}
    })] * 3, "dev"))  # fmt: skip
    (one,) = comparisons([found[BM25], other])
    assert one.verdict == "seeds only"


def test_many_rows_widen_each_interval():
    rows = {"task data only": [50.0] * 3, "top 50": [51.0] * 3, "top 500": [52.0] * 3, "top 5000": [60.0] * 3}
    few = {name: rows[name] for name in ("task data only", "top 5000")}
    widths = []
    for scores in (few, rows):
        found = {one.other: one for one in comparisons(list(told("4", "pocket", "scierc", scores, kept=True).values()))}
        widths.append(found["task data only"].high - found["task data only"].low)
    assert widths[1] > 1.15 * widths[0]


BM25, RANDOM = "BM25, C_BERT", "random, C_BERT"


@pytest.mark.parametrize(
    ("bm25", "random", "verdict"),
    [
        ([60.0, 61.0, 62.0], [50.0, 51.0, 52.0], "shown"),
        ([50.0, 51.0, 52.0], [60.0, 61.0, 62.0], "reversed"),
        ([50.0, 60.0, 70.0], [49.0, 58.0, 69.0], "not shown"),
        ([60.2, 60.2, 60.2], [60.0, 60.0, 60.0], "not shown"),
        ([60.0, 61.0], [50.0, 51.0, 52.0], "open"),
        ([60.0], [], "not run"),
    ],
)
def test_an_order_is_shown_only_where_an_interval_carries_it(bm25, random, verdict):
    (one,) = comparisons(list(told("3", "pocket", "scierc", {BM25: bm25, RANDOM: random}, kept=True).values()))
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
