"""Temperatures of linear models and mixtures: they are the right ones, and change no label."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse, special
from scipy.optimize import minimize_scalar
from sklearn.metrics import log_loss

from tests.unit.shallow.test_shallow import task_of
from tlm.artifacts.artifact import Artifact
from tlm.data.tasks.metrics import Floats, Split
from tlm.evaluation.predict.predictor import cross_fitted, fitted, open_predictor
from tlm.evaluation.score.baseline import baseline, static
from tlm.evaluation.score.mix import mix, parts_of
from tlm.shallow.linear import Given, Linear, Search
from tlm.shallow.temperature import DOUBT, fitted_temperature, tempered


def drawn(chances: Floats, seed: int = 0) -> NDArray[np.int64]:
    """Classes drawn with these probabilities."""
    found: NDArray[np.int64] = (np.random.default_rng(seed).random((len(chances), 1)) > chances.cumsum(axis=1)).sum(1)
    return found


Kind = Callable[[Floats], Any]
KINDS = pytest.mark.parametrize("kind", [sparse.csr_matrix, np.asarray], ids=["sparse", "dense"])


def chances_of(count: int, classes: int, seed: int = 0) -> Floats:
    return special.softmax(2 * np.random.default_rng(seed).normal(size=(count, classes)), axis=1)  # type: ignore[no-any-return]


@pytest.mark.parametrize("classes", [2, 3, 7])
@pytest.mark.parametrize("true", [0.4, 1.0, 2.5])
def test_the_temperature_that_was_set_is_found(classes: int, true: float) -> None:
    honest = chances_of(20_000, classes, classes)
    gold, given = drawn(honest), tempered(honest, 1 / true)
    found = fitted_temperature(given, gold)
    best = minimize_scalar(lambda log: log_loss(gold, special.softmax(np.log(given) / np.exp(log), axis=1)), (-2, 2))
    assert found == pytest.approx(np.exp(best.x), rel=0.1)
    assert found == pytest.approx(true, rel=0.1)


def test_with_few_examples_it_is_nearer_to_one() -> None:
    honest = chances_of(5_000, 3)
    gold, given = drawn(honest), tempered(honest, 0.5)  # a temperature of 2
    found = [fitted_temperature(np.tile(given[:4], (times, 1)), np.tile(gold[:4], times)) for times in (1, 5, 100)]
    assert abs(np.log(found[0])) < abs(np.log(found[1])) < abs(np.log(found[2]))
    assert np.log(found[1]) == pytest.approx(0.5 * np.log(found[2]) / (400 / (400 + DOUBT)), abs=0.01)


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("temperature", [0.3, 3.0])
@KINDS
def test_labels_stay_as_they_are(kind: Kind, classes: int, temperature: float) -> None:
    random = np.random.default_rng(2)
    features, gold = kind(random.normal(size=(300, 5))), random.integers(0, classes, 300)
    model = Linear.fit(features, gold, classes, 0.1, balanced=True)
    before, after = model.predict(features), replace(model, temperature=temperature).predict(features)
    assert after.argmax(axis=1).tolist() == before.argmax(axis=1).tolist()
    np.testing.assert_allclose(after, tempered(before, temperature), atol=1e-12)
    assert (after.max(axis=1).mean() > before.max(axis=1).mean()) == (temperature < 1)


@KINDS
def test_a_class_without_examples_still_gets_no_probability(kind: Kind) -> None:
    features = np.eye(6)
    gold = np.array([0, 1, 2] * 2)
    model = Linear.fit(kind(features), gold, 4, 1.0, balanced=False)
    assert replace(model, temperature=4.0).predict(features)[:, 3].tolist() == [0] * 6


def given_of(gold: NDArray[np.int64], train: int) -> Given:
    def split(name: str, own: NDArray[np.int64]) -> Split:
        rows = np.arange(len(own))
        return Split(name, rows, [""] * len(own), None, own, rows, np.zeros(len(own), bool))

    return Given(split("train", gold[:train]), split("dev", gold[train:]), "macro_f1", ["a", "b", "c"])


@KINDS
def test_a_search_fits_the_temperature_to_dev(kind: Kind) -> None:
    random, train = np.random.default_rng(4), 180
    features = random.normal(size=(240, 4))
    gold = drawn(special.softmax(2 * features[:, :3], axis=1))
    rows = kind(features)
    search = Search(given_of(gold, train))
    matrices = [(rows[seen], rows[unseen]) for seen, unseen in search.folds]
    search.consider("x", matrices, [0.01], weighted=[False])
    model, chosen = search.fitted(rows[:train], {}, "test")
    dev = Linear.fit(rows[:train], gold[:train], 3, 0.01, balanced=False).predict(rows[train:])
    assert model.temperature == fitted_temperature(dev, gold[train:]) == chosen["temperature"] < 0.9
    others = random.normal(size=(5_000, 4))
    truth = drawn(special.softmax(2 * others[:, :3], axis=1), seed=5)
    raw = replace(model, temperature=1.0)
    assert log_loss(truth, model.predict(others)) < log_loss(truth, raw.predict(others)) - 0.05


def test_a_mean_of_honest_parts_says_too_little_and_is_sharpened() -> None:
    """Two parts that each see half of what matters are right together more often than their mean says."""
    random = np.random.default_rng(6)
    seen = 2 * random.normal(size=(2, 6_000, 3))
    gold = drawn(special.softmax(seen[0] + seen[1], axis=1))
    parts = []
    for one in seen:
        alone = special.softmax(one, axis=1)
        parts.append(tempered(alone, fitted_temperature(alone, gold)))
    half, other = slice(0, 3_000), slice(3_000, None)
    weights = fitted([part[half] for part in parts], gold[half])
    assert weights.temperature < 0.9
    mean, mixed = replace(weights, temperature=1.0), weights.apply([part[other] for part in parts])
    plain = mean.apply([part[other] for part in parts])
    assert mixed.argmax(axis=1).tolist() == plain.argmax(axis=1).tolist()
    assert log_loss(gold[other], mixed) < log_loss(gold[other], plain)
    sure = mixed.max(axis=1)
    assert sure.mean() == pytest.approx((mixed.argmax(axis=1) == gold[other]).mean(), abs=0.03)


@pytest.mark.parametrize("own", [0.4, 2.5])
def test_the_temperature_of_a_part_is_left_out_of_account(own: float) -> None:
    parts: list[Floats] = [chances_of(200, 4, seed) * 0.9 + 0.025 for seed in (1, 2)]
    gold, group = drawn((parts[0] + parts[1]) / 2), np.arange(200)
    changed, fit = [tempered(parts[0], own), parts[1]], partial(fitted, own=[own, 1.0])
    assert fit(changed, gold).apply(changed) == pytest.approx(fitted(parts, gold).apply(parts), abs=1e-9)
    assert cross_fitted(changed, gold, group, fit) == pytest.approx(cross_fitted(parts, gold, group), abs=1e-9)  # type: ignore[arg-type]


def test_a_mixture_knows_the_temperatures_of_its_parts(tmp_path: Path) -> None:
    task, root = task_of(tmp_path, "plain"), str(tmp_path)
    linear, vectors = baseline(task, root=root), static(task, root=root)
    own = [Artifact.open(one, "metrics").json("metrics.json")["chosen"]["temperature"] for one in (linear, vectors)]
    assert 1 not in own
    mixture = Artifact.open(mix([linear, vectors], root=root), "metrics")
    parts = parts_of([Artifact.open(one, "metrics") for one in (linear, vectors)])
    assert [part.temperature for part in parts] == own
    model = mixture.input("model")
    predictor, _ = open_predictor(model.path("model"), "cpu")
    assert predictor.weights.temperature == model.details["temperature"] == model.details["chosen"]["temperature"]  # type: ignore[attr-defined]
