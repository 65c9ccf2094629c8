"""Which rows a report compares: by dev alone, few, and each for a reason."""

from typing import Any

import pytest

from tlm.evaluation.report import findings as found
from tlm.evaluation.report.findings import AHEAD, ENCODERS, NETWORK, OTHERS, PRETRAINED, TEXT, challenger, planned
from tlm.evaluation.score.mix import ReportRow


@pytest.mark.parametrize(
    ("arm", "stage", "expected"),
    [
        ("baseline", "baseline", ("linear", "linear", "")),
        ("bm25", "stage 2", ("bm25", "encoder", "bm25")),
        ("static-random", "static", ("static-random", "static", "random")),
        ("static-task-only + baseline", "mixture", ("static-task-only + linear", "static + linear", "task-only")),
        ("bm25 + baseline", "mixture", ("bm25 + linear", "encoder + linear", "bm25")),
        ("baseline + static-bm25 + bm25", "mixture", ("linear + static + bm25", "encoder + static + linear", "bm25")),
        ("bm25 + static-bm25 + baseline", "mixture", ("bm25 + static + linear", "encoder + static + linear", "bm25")),
        ("bm25 × 5", "mixture", ("bm25 × 5", "encoder × 5", "bm25")),
        ("bm25 + random", "mixture", ("bm25 + random", "encoder + encoder", "bm25 + random")),
        ("bm25 + static-random", "mixture", ("bm25 + static-random", "encoder + static", "bm25 + random")),
        ("published-mini-lm", "stage 2", ("published-mini-lm", "published", "")),
        ("published-mini-lm-task-only", "stage 2", ("published-mini-lm-task-only", "published", "task-only")),
        (
            "published-b-bm25 + static-bm25 + baseline",
            "mixture",
            ("published-b-bm25 + static + linear", "published + static + linear", "bm25"),
        ),
        (
            "published-b + static-bm25 + baseline",
            "mixture",
            ("published-b + static-bm25 + linear", "published + static + linear", "bm25"),
        ),
        ("published", "stage 2", ("published", "published", "")),
        ("published-bm25", "stage 2", ("published-bm25", "published", "bm25")),
        ("label-names", "label-names", ("label-names", "label-names", "")),
        ("label-names + baseline", "mixture", ("label-names + linear", "label-names + linear", "")),
        ("gpt + baseline", "imported", ("gpt + baseline", "imported", "")),
    ],
)
def test_what_the_name_of_an_arm_says(arm: str, stage: str, expected: tuple[str, str, str]) -> None:
    assert ReportRow.of(arm, stage) == expected


def row(name: str, kind: str, text: str, dev: float, test: float = 0.5, *, seeds: int = 3) -> dict[str, Any]:
    low = None if seeds < 3 else test - 0.05
    group = {"name": name, "kind": kind, "text": text, "dev": {"mean": dev}, "test": {"mean": test, "low": low}}
    return group | {"models": [name], "mixes": name.split(" + ") if " + " in name else []}


LINEAR = row("linear", "linear", "", 0.60)
STATIC = [row(f"static-{text}", "static", text, dev) for text, dev in (("random", 0.55), ("bm25", 0.58))]
MIXED = [
    row(f"static-{text} + linear", "static + linear", text, dev) for text, dev in (("random", 0.66), ("bm25", 0.68))
]
NETWORKS = [row(text, "encoder", text, dev) for text, dev in (("task-only", 0.5), ("random", 0.54), ("bm25", 0.56))]
OTHER = row("gpt", "imported", "", 0.9)


def test_models_without_a_network_answer_two_questions() -> None:
    assert planned([LINEAR, *STATIC, *MIXED]) == [
        ("static-bm25 + linear", "linear", AHEAD),
        ("static-bm25 + linear", "static-random + linear", TEXT),
    ]


def test_networks_are_held_against_the_best_without_one() -> None:
    found = planned([LINEAR, *STATIC, *NETWORKS, *MIXED])
    assert ("bm25", "linear", AHEAD) in found
    assert ("bm25", "static-bm25 + linear", NETWORK) in found
    assert {one[:2] for one in found if one.question == ENCODERS} == {
        ("task-only", "random"),
        ("task-only", "bm25"),
        ("random", "bm25"),
    }
    assert len(found) == 7


def test_published_models_are_networks_and_text_is_compared_within_one_model() -> None:
    rows = [
        row(f"published-{name}-{text}", "published", text, dev)
        for name, text, dev in (("a", "bm25", 0.9), ("a", "random", 0.7), ("b", "bm25", 0.8), ("b", "task-only", 0.7))
    ]
    found = planned([LINEAR, *STATIC, row("published-a", "published", "", 0.6), *rows])
    assert {one[:2] for one in found if one.question == TEXT} == {
        ("published-a-bm25", "published-a-random"),
        ("published-b-bm25", "published-b-task-only"),
    }
    assert ("published-a-bm25", "linear", NETWORK) not in found  # asked already, as the best one
    assert ("published-a-bm25", "linear", AHEAD) in found


def test_encoders_alone_are_compared_as_fetched_text_and_with_each_other() -> None:
    found = planned(NETWORKS)
    assert {one[:2]: one.question for one in found} == {
        ("bm25", "random"): TEXT,
        ("bm25", "task-only"): TEXT,
        ("task-only", "random"): ENCODERS,
    }


def test_imported_predictions_are_compared_with_our_best_and_never_chosen() -> None:
    assert challenger([LINEAR, *MIXED, OTHER])["name"] == "static-bm25 + linear"
    assert ("static-bm25 + linear", "gpt", OTHERS) in planned([LINEAR, *MIXED, OTHER])
    assert ("linear", "gpt", OTHERS) in planned([LINEAR, *MIXED, OTHER])
    assert challenger([LINEAR, OTHER]) is LINEAR
    assert planned([LINEAR, OTHER]) == [("linear", "gpt", OTHERS)]


def test_a_published_model_is_compared_with_ours_and_text_also_where_it_leads() -> None:
    published = row("published-bert + linear", "published + linear", "", 0.70)
    found = planned([LINEAR, *MIXED, published])
    assert ("published-bert + linear", "static-bm25 + linear", NETWORK) in found
    own = row("bm25", "encoder", "bm25", 0.69)
    assert ("bm25", "published-bert + linear", PRETRAINED) in planned([LINEAR, *MIXED, published, own])
    assert ("static-bm25 + linear", "static-random + linear", TEXT) in found


def test_a_mixture_stands_for_its_part_alone_however_far_that_is_ahead_on_dev() -> None:
    alone = [row(f"static-{text}", "static", text, 0.9) for text in ("random", "bm25")]
    assert challenger([LINEAR, *alone, *MIXED])["name"] == "static-bm25 + linear"
    assert ("static-bm25 + linear", "static-random + linear", TEXT) in planned([LINEAR, *alone, *MIXED])
    assert challenger([LINEAR, *alone])["name"] == "static-random"
    network = [row("bm25", "encoder", "bm25", 0.99), row("bm25 + linear", "encoder + linear", "bm25", 0.8)]
    assert challenger([LINEAR, *alone, *MIXED, *network])["name"] == "bm25 + linear"
    found = planned([LINEAR, *alone, *MIXED, *network])
    assert [one[:2] for one in found if one.question == NETWORK] == [("bm25 + linear", "static-bm25 + linear")]


def test_of_two_linear_models_the_better_on_dev_is_the_one_to_beat() -> None:
    weak = row("linear (spans=< >)", "linear", "", 0.5)
    assert planned([weak, LINEAR, *MIXED])[0] == ("static-bm25 + linear", "linear", AHEAD)


def test_nothing_is_planned_for_one_row() -> None:
    assert planned([LINEAR]) == []
    assert challenger([LINEAR]) is LINEAR


def test_a_single_run_counts_like_several_because_test_judges_it() -> None:
    alone = row("bm25", "encoder", "bm25", 0.99, seeds=1)
    assert challenger([LINEAR, *MIXED, alone]) is alone
    assert ("static-bm25 + linear", "static-random + linear", TEXT) in planned([LINEAR, *MIXED, alone])


def test_test_scores_choose_nothing() -> None:
    worse_on_test = [
        one | {"test": {"mean": 1 - one["dev"]["mean"], "low": 0.1}} for one in [LINEAR, *STATIC, *NETWORKS]
    ]
    assert planned(worse_on_test) == planned([LINEAR, *STATIC, *NETWORKS])


def test_of_many_comparisons_those_with_other_kinds_of_models_are_said_first() -> None:
    more: Any = {"stage": "stage 2", "seeds": [0], "draws": 0, "fixed": False, "repeats": "1"}
    more |= {"test": {"mean": 0.5, "std": None}, "cost": {"paper_flops": {"mean": 0}}}
    rows: Any = [row(f"bm25 (lr=0.{tried})", "encoder", "bm25", tried / 100) | more for tried in range(10, 40)]
    rows.append(row("theirs", "imported", "", 0.3) | more)
    about: Any = {"ahead": "", "chance": 0.5, "mean": 0.0, "low": -1.0, "high": 1.0}
    differences: Any = [pair._asdict() | about for pair in planned(rows)]
    told = found.findings(rows, "macro-F1", differences)
    assert len(differences) == 436
    assert told[-1] == "More comparisons are below, in “Differences on test”: 416."
    first = "No order is claimed between bm25 (lr=0.39) and theirs, between bm25 (lr=0.10) and bm25 (lr=0.39), between"
    assert told[1].startswith(first)
    assert told[1].count("bm25 (lr=0.39)") == found.MOST_SAID
    assert "below" not in "".join(found.findings(rows, "macro-F1", differences[:20]))
    few_seeds: Any = [one | {"low": None, "high": None} for one in differences]  # none of them is said
    assert "below" not in "".join(found.findings(rows, "macro-F1", few_seeds))
