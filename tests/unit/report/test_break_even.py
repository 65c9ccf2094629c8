"""From how many tasks on a published model is cheaper: by hand, by the paper's numbers, and in a report."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from research.compute import UNCOUNTED, break_even, compute, tasks_to_break_even, told
from research.score_and_compute import published
from tests.toy_reports import toy_world
from tlm.artifacts.artifact import Artifact
from tlm.errors import InputError
from tlm.evaluation.report.findings import finished
from tlm.evaluation.report.lineage import compared
from tlm.evaluation.report.report import report
from tlm.evaluation.report.runs import grouped
from tlm.evaluation.score.baseline import baseline

PAGE = Path(__file__).parents[3] / "research/RESULTS.md"
flops = st.floats(1.0, 1e24)


def test_by_hand():
    """10 for pretraining; each task costs 3 from scratch and 1 after it: 10 + 5 · 1 = 5 · 3."""
    assert tasks_to_break_even(10, 3, 1) == 5
    assert tasks_to_break_even(10, 1, 1) == tasks_to_break_even(10, 1, 2) == math.inf


@given(flops, flops, flops)
def test_both_ways_cost_the_same_at_that_number(pretraining, tlm, fine_tuning):
    count = tasks_to_break_even(pretraining, tlm, fine_tuning)
    if math.isfinite(count):
        assert pretraining + count * fine_tuning == pytest.approx(count * tlm)


def test_the_page_of_results_has_the_numbers_of_table_2():
    """Without the cost of fine-tuning, which the paper does not give: so at least these numbers."""
    models = {point.name: point for point in published()}
    text = PAGE.read_text(encoding="utf-8")
    for ours, theirs in (
        ("TLM (small)", "BERT-Base"),
        ("TLM (small)", "BERT-Large"),
        ("TLM (medium)", "RoBERTa-Base"),
        ("TLM (large)", "RoBERTa-Large"),
    ):
        tlm, other = models[ours], models[theirs]
        count = math.ceil(tasks_to_break_even(other.flops, tlm.flops, 0))
        assert f"| {ours} | {tlm.score:.2f} | {theirs} | {other.score:.2f} | {count} |" in text


def world(tmp_path, skill: float, name: str = "bert-base-uncased"):
    found = toy_world(tmp_path)
    found.subsets["published"] = found.subsets["bm25"]
    uris = [found.metrics("bm25", seed, 1.0) for seed in range(3)]
    return [*uris, *(found.metrics("published", seed, skill, name=name) for seed in range(3))], found


def rows(tmp_path, uris):
    """What the break-even is computed to be for these runs, as `compute` does it."""
    made = Artifact.open(report(uris, root=str(tmp_path)))
    shown = json.loads(made.path("report.json").read_text())
    return break_even(grouped(compared(made)), finished(shown["groups"]))


def test_a_report_says_that_pretraining_never_breaks_even_where_scratch_costs_no_more(tmp_path, monkeypatch):
    """The toy runs of both arms cost the same."""
    uris, found = world(tmp_path, 1.0)
    (row,) = rows(tmp_path, [*uris, baseline(found.task)])
    assert (row["tlm"], row["published"], row["pretrained"]) == ("bm25", "published", "BERT-Base")
    assert row["flops"] == {"pretraining": 2.79e19, "tlm": 1e14, "fine_tuning": 1e14}
    assert (row["similar"], row["tasks"]) == (True, None)
    picture = tmp_path / "picture.svg"
    said = compute(report(uris, root=str(tmp_path)), to=str(picture))
    assert "Pretraining never breaks even for bm25" in said
    drawn = picture.read_text()
    for name in ("Our runs", "The paper’s models", "bm25", "TLM (small)", "RoBERTa-Large", "average test score"):
        assert name in drawn
    assert UNCOUNTED in drawn
    monkeypatch.setenv("HOME", str(tmp_path))
    compute(report(uris[:3], root=str(tmp_path)), to="~/picture.svg")
    assert UNCOUNTED not in picture.read_text()


def test_a_report_without_an_encoder_has_no_compute(tmp_path):
    found = toy_world(tmp_path)
    with pytest.raises(InputError, match="no arm of this report has FLOPs"):
        compute(report([baseline(found.task)], root=str(tmp_path)))


def test_without_similar_scores_there_is_no_number(tmp_path):
    uris, _ = world(tmp_path, 0.1)
    (row,) = rows(tmp_path, uris)
    assert (row["similar"], row["tasks"]) == (False, None)


def test_an_unknown_pretraining_is_left_out(tmp_path):
    uris, _ = world(tmp_path, 1.0, "my-own-model")
    assert rows(tmp_path, uris) == []


def test_the_sentence_has_the_number_and_both_scores():
    flops = {"pretraining": 2.79e19, "tlm": 2.74e18, "fine_tuning": 1e16}
    row = {"tlm": "bm25", "published": "published", "pretrained": "BERT-Base", "scores": [0.8051, 0.8098]}
    row["flops"] = flops
    (sentence,) = told([{**row, "similar": True, "tasks": 11}])
    assert sentence.startswith("From 11 tasks on, pretraining once costs fewer FLOPs, by the paper’s rule: bm25 (80.5,")
    assert "published (81.0;" in sentence
