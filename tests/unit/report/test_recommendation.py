"""Which model the report says to use: chosen on dev, with the test's word between it and the linear model."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tlm.evaluation.report.findings import LIKELY, chance_text, findings, planned, recommended


def row(
    name: str, kind: str, dev: float, test: float = 0.5, *, text: str = "", seeds: int = 0, mixes: Sequence[str] = ()
) -> dict[str, Any]:
    """A group of one fixed model, or of so many seeds, which mixes the models of other groups."""
    low = None if 0 < seeds < 3 else test - 0.05
    spread = {"mean": test, "std": None, "low": low, "high": low}
    return {
        "name": name, "models": [name], "mixes": mixes,
        "kind": kind, "text": text, "stage": "stage 2", "draws": 0, "fixed": not seeds,
        "seeds": list(range(seeds or 1)), "repeats": f"{seeds} seeds", "dev": {"mean": dev, "std": None},
        "test": spread, "taught_by": [], "together": [], "mlm_loss": {"mean": None}, "stages": {},
        "cost": {"paper_flops": {"mean": 0}},
    }  # fmt: skip


def said(groups: list[dict[str, Any]], probability: float) -> tuple[str, str]:
    """The first sentence and the model's name, where each first of a pair is ahead with this probability."""
    test = {group["name"]: group["test"]["mean"] for group in groups}
    known = {group["name"]: group["test"]["low"] is not None for group in groups}
    found = [
        {
            "first": one.first, "second": one.second, "question": one.question, "chance": probability, "ahead": "",
            "mean": test[one.first] - test[one.second],
            "low": -0.1 if known[one.first] and known[one.second] else None, "high": 0.1,
        }
        for one in planned(groups)
    ]  # fmt: skip
    return findings(groups, "macro-F1", found)[0], recommended(groups, found)[0]["name"]


LINEAR = row("linear", "linear", 0.50, 0.45)
MIXED = row("static-bm25 + linear", "static + linear", 0.54, 0.53, text="bm25")


def test_what_the_best_on_dev_scores_and_how_likely_it_is_ahead() -> None:
    sentence, name = said([LINEAR, MIXED], 0.974)
    assert sentence == (
        "Use static-bm25 + linear: 53.0 macro-F1 on test. That is 8.0 points above the linear model (95 % interval "
        "-10.0 to +10.0): probably better on new texts, too (97 %)."
    )
    assert name == "static-bm25 + linear"


@pytest.mark.parametrize(
    ("probability", "word"),
    [
        (0.996, "very probably better on new texts, too (over 99 %)"),
        (0.9, "probably"),
        (0.8, "perhaps"),
        (0.55, "perhaps"),
    ],
)
def test_how_sure_it_is_in_words(probability: float, word: str) -> None:
    assert word in said([LINEAR, MIXED], probability)[0]


def test_a_model_that_test_finds_behind_is_not_named() -> None:
    sentence, name = said([LINEAR, MIXED | {"test": row("", "", 0, 0.44)["test"]}], 0.3)
    assert name == "linear"
    assert sentence == (
        "Use the linear model: 45.0 macro-F1 on test. static-bm25 + linear is 4.0 points above it on dev, but 1.0 "
        "points below it on test (30 % likely to be ahead on new texts)."
    )


def test_a_difference_that_rounds_to_nothing_is_called_so() -> None:
    level = row("static", "static", LINEAR["dev"]["mean"], LINEAR["test"]["mean"] + 0.0004)
    assert said([LINEAR, level], 0.5)[0] == (
        "Use the linear model: 45.0 macro-F1 on test. static is as good as it on dev, and as "
        "good as it on test (50 % likely to be ahead on new texts)."
    )


@pytest.mark.parametrize(("gap", "probability", "expected"), [
    (0.004, 0.79, "linear"), (0.004, 0.8, "other"), (0.006, 0.51, "other"), (0.006, 0.49, "linear"),
    (-0.01, 0.79, "linear"), (-0.01, 0.8, "other"),
])  # fmt: skip
def test_the_linear_model_is_named_where_nothing_is_likely_better(
    gap: float, probability: float, expected: str
) -> None:
    other = row("other", "static", LINEAR["dev"]["mean"] + gap)
    assert said([LINEAR, other], probability)[1] == expected


def test_half_a_point_on_dev_does_not_make_up_for_a_network() -> None:
    network = row("bm25 + linear", "encoder + linear", 0.544, seeds=3)
    sentence, name = said([LINEAR, MIXED, network], 0.9)
    assert name == "static-bm25 + linear"
    assert sentence.endswith(
        "bm25 + linear is only 0.4 points above it on dev, which does not justify a neural network."
    )
    assert said([LINEAR, MIXED, row("bm25", "encoder", 0.546, seeds=3)], 0.9)[1] == "bm25"


def test_one_run_is_judged_as_it_is() -> None:
    sentence, name = said([LINEAR, row("bm25", "encoder", 0.6, 0.5, seeds=1)], 0.91)
    assert name == "bm25"
    assert "probably better on new texts, too (91 %). This holds for this very run" in sentence


def test_without_a_linear_model_dev_decides() -> None:
    sentence, _ = said([MIXED, row("static", "static", 0.5)], 0.9)
    assert sentence == "Use static-bm25 + linear: 53.0 macro-F1 on test. It is the best of these models on dev."
    network = row("bm25 + linear", "encoder + linear", 0.544, seeds=3)
    passed = "on test. bm25 + linear is only 0.4 points above it on dev, which does not justify a neural network."
    assert said([MIXED, network], 0.9)[0].endswith(passed)


def test_a_mixture_stands_for_its_part_also_where_settings_are_in_their_names() -> None:
    names = [f"static-bm25 (top_k={top_k})" for top_k in (5, 50)]
    parts = [row(name, "static", dev) for name, dev in zip(names, (0.6, 0.56), strict=True)]
    mixed = "static-bm25 + linear (static-bm25: top_k=5)"
    groups = [LINEAR, *parts, row(mixed, "static + linear", 0.55, mixes=[names[0], "linear"])]
    assert said(groups, 0.9)[1] == names[1], "whose mixture is not there"
    assert said([*groups[:2], *groups[3:]], 0.9)[1] == mixed


def test_predictions_of_others_are_compared_with_what_is_recommended_but_never_it() -> None:
    others = row("llm", "imported", 0.9, 0.9)
    assert said([LINEAR, others], 0.9) == (
        "Only the linear model was trained: 45.0 macro-F1 on test.", "linear",
    )  # fmt: skip
    pairs = [(one.first, one.second) for one in planned([LINEAR, MIXED, others])]
    assert ("linear", "llm") in pairs
    assert ("static-bm25 + linear", "llm") in pairs
    alone = "Use static-bm25 + linear: 53.0 macro-F1 on test. It is the best of the models made here on dev."
    assert said([MIXED, others], 0.9)[0] == alone
    assert said([others], 0.9)[0] == "Use llm: 90.0 macro-F1 on test. It is the best of these models on dev."


@given(st.floats(0, 1))
def test_a_probability_is_never_certain(probability: float) -> None:
    assert chance_text(probability) not in ("0 %", "100 %")


@given(
    st.lists(st.tuples(st.sampled_from(["static", "encoder", "static + linear"]), st.floats(0, 1)), min_size=1),
    st.floats(0, 1),
)
def test_the_linear_model_is_never_named_where_the_other_is_likely_better(
    others: list[tuple[str, float]], probability: float
) -> None:
    groups = [LINEAR, *(row(f"{kind} {number}", kind, dev) for number, (kind, dev) in enumerate(others))]
    sentence, name = said(groups, probability)
    assert (name == "linear") <= (probability < LIKELY)
    assert sentence.startswith("Use the linear model" if name == "linear" else f"Use {name}: ")
