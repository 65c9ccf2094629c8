"""What the linear model sees of a pair of texts: what they share, what one of them lacks, and what was exchanged."""

import json
import math
from collections import Counter
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.toys import Row, words
from tests.unit.shallow.test_shallow import split_of
from tlm.shallow import tfidf
from tlm.shallow.features import OVERLAPS, Overlap, Shape, TextFeatures, features_of_pair, joined
from tlm.shallow.linear import Given
from tlm.shallow.tfidf import Tfidf, tune

TEXTS = st.lists(st.sampled_from(["alpha", "alphas", "beta", "Γάμμα", "漢字", "?!", "a"]), max_size=6).map(" ".join)
LABELS = ["other", "same"]


def said_again(examples: int) -> list[Row]:
    """Pairs whose second text has the words of the first in another order, or of another text: no word tells which."""
    texts, random = words(examples + 1, 6), np.random.default_rng(0)
    rows: list[Row] = []
    for place, (text, other) in enumerate(pairwise(texts)):
        second = " ".join(random.permutation((text if place % 2 else other).split()))
        rows.append((text, second, LABELS[place % 2], "train"))
    return rows


def known(rows: list[Row]) -> Given:
    cut = len(rows) * 3 // 4
    return Given(split_of(rows[:cut], LABELS), split_of(rows[cut:], LABELS, "dev"), "macro_f1", LABELS)


@pytest.mark.parametrize("large", [tfidf.LARGE, 0])
def test_whether_a_second_text_says_the_same_can_be_learned(large: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tfidf, "LARGE", large)
    rows = said_again(300)
    model = tune(known(rows[:240]))
    assert model.chosen["pair features"] == "yes"
    texts, seconds, golds, _ = (list(column) for column in zip(*rows[240:], strict=True))
    answers = [LABELS[row.argmax()] for row in model.predict(texts, seconds)]
    assert np.mean([answer == gold for answer, gold in zip(answers, golds, strict=True)]) > 0.95


def trigrams(text: str) -> set[str]:
    """Those of scikit-learn's `char_wb`: of each word between spaces; a shorter word is one of its own."""
    padded = [f" {word} " for word in text.lower().split()]
    return {word[place : place + 3] for word in padded for place in range(max(1, len(word) - 2))}


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=8), st.tuples(TEXTS, TEXTS))
def test_overlaps_are_the_weighted_shares_of_trigrams(seen: list[tuple[str, str]], new: tuple[str, str]) -> None:
    seen = [("alpha", "beta"), *seen]
    sides = [trigrams(text) for pair in seen for text in pair]
    counts = Counter(gram for side in sides for gram in side)
    idf = {gram: math.log((1 + len(sides)) / (1 + count)) + 1 for gram, count in counts.items()}
    first, second = (trigrams(text) & idf.keys() for text in new)
    shared = math.fsum(idf[gram] for gram in first & second)
    expected = list[float]()
    for grams in (first | second, first, second):
        total = math.fsum(idf[gram] for gram in grams)
        share = shared / total if total else 0
        expected += [float(share >= tenth / 10 - 1e-9) for tenth in range(11)]
    overlap = Overlap().fit(joined(*map(list, zip(*seen, strict=True))))
    found = overlap.transform(joined([new[0]], [new[1]])).toarray()[0]
    assert len(found) == len(OVERLAPS)
    assert np.allclose(found, np.array(expected) / np.linalg.norm(expected))


@given(TEXTS, TEXTS)
def test_the_other_order_exchanges_first_and_second(first: str, second: str) -> None:
    names, others = (set(features_of_pair(joined([one], [two])[0])) for one, two in ((first, second), (second, first)))
    turned = {"first": "second", "second": "first"}
    for name in names:
        kind, _, word = name.partition(" only: ")
        old, arrow, new = name.partition(" > ")
        assert (f"{new} > {old}" if arrow else f"{turned[kind]} only: {word}" if word else name) in others
    assert len(names) == len(others)


def test_exchanged_words_are_limited() -> None:
    first, second = (" ".join(f"{letter}{number}" for number in range(500)) for letter in "ab")
    assert len(features_of_pair(joined([first], [second])[0])) == 2 * 500 + 10 * 10


def test_single_texts_have_none_of_this_and_models_from_before_are_read(tmp_path: Path) -> None:
    texts = [f"{text} {label}" for text, label in zip(words(40, 4), LABELS * 20, strict=True)]
    rows: list[Row] = [(text, None, text.split()[-1], "train") for text in texts]
    model = tune(known(rows))
    assert "overlap" not in model.features.vectorizers
    assert "pair features" not in model.chosen
    model.write(tmp_path / "model")
    config = json.loads((tmp_path / "model" / "config.json").read_text("utf-8"))
    del config["shape"]["pairs"]
    (tmp_path / "model" / "config.json").write_text(json.dumps(config), "utf-8")
    assert Tfidf.read(tmp_path / "model").predict(texts).tobytes() == model.predict(texts).tobytes()


def test_names_are_those_of_the_columns() -> None:
    texts = joined(["alpha beta", "beta"], ["beta gamma", "beta"])
    features = TextFeatures(Shape(1, 2, False, 1, pairs=True), ())
    row = features.fit_transform(texts).toarray()[0]
    named = dict(zip(features.names(), row, strict=True))
    present = {name for name, value in named.items() if value}
    assert {"both: beta", "first only: alpha", "second only: gamma", "alpha > gamma", "overlap of both ≥ 0 %"} < present
    assert {"alpha", "letters: al", "overlap of first ≥ 10 %"} < present
    assert named["overlap of first ≥ 100 %"] == 0


def test_pairs_that_are_not_compared_are_read_as_one_text() -> None:
    """As title and body are: here the ends of words tell the class, and no word is there twice."""
    random, rows = np.random.default_rng(0), list[Row]()
    for place in range(160):
        drawn = ("".join(random.choice([*"abcdefghijklmnop"], 8)) + ("ing", "ed")[place % 2] for _ in range(8))
        first, second = (" ".join(islice(drawn, 4)) for _ in "12")
        rows.append((first, second, LABELS[place % 2], "train"))
    assert "pair features" not in tune(known(rows)).chosen
