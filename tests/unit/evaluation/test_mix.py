"""Mixtures: the weights against a search in plain loops, and the step `mix` from metrics to a model that predicts."""

import json
import shutil
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from tests.toys import Row, make, make_task, random_model, read_json, words
from tests.unit.shallow.test_shallow import subset_of
from tlm.artifacts.artifact import Artifact
from tlm.cli.upkeep import download
from tlm.data.tasks.examples import read_splits
from tlm.errors import InputError
from tlm.evaluation.predict.predict import predict
from tlm.evaluation.predict.predictor import EQUAL, TEMPERATURES, Weights, cross_fitted, fitted, loss, open_predictor
from tlm.evaluation.report.findings import challenger
from tlm.evaluation.report.report import report
from tlm.evaluation.score.baseline import VERSIONS, baseline, static
from tlm.evaluation.score.evaluate import evaluate
from tlm.evaluation.score.imported import import_predictions
from tlm.evaluation.score.mix import mix, mixtures, parts_of
from tlm.shallow import tfidf

LABELS = ["blue", "green", "red"]
SPLITS = ["train"] * 60 + ["dev"] * 260 + ["test"] * 20


# Weights


def chances_of(random: np.random.Generator, count: int, sharp: float = 1.0) -> np.ndarray:
    return random.dirichlet(np.full(3, 1 / sharp), count)


def drawn(random: np.random.Generator, chances: np.ndarray) -> np.ndarray:
    """Gold labels that have exactly these chances."""
    return (random.random((len(chances), 1)) > chances.cumsum(axis=1)).sum(axis=1).clip(max=chances.shape[1] - 1)


def noisy_parts(seed: int, parts: int, numbers: bool, count: int = 300) -> tuple[list[np.ndarray], np.ndarray]:
    """Parts that each know something else of the truth."""
    random = np.random.default_rng(seed)
    if numbers:
        gold = random.normal(size=count)
        return [gold[:, None] + random.normal(0, 0.4 + part / 5, (count, 1)) for part in range(parts)], gold
    truth = chances_of(random, count, 3)
    gold = drawn(random, truth)
    found = []
    for part in range(parts):
        blurred = (truth + 0.01) ** random.choice([0.5, 1, 2, 3]) * random.uniform(0.2, 1 + part / 3, truth.shape)
        found.append(blurred / blurred.sum(axis=1, keepdims=True))
    return found, gold


def plain_loss(rows: list[list[float]], gold: list[Any], numbers: bool) -> float:
    total = 0.0
    for row, right in zip(rows, gold, strict=True):
        total += (row[0] - right) ** 2 if numbers else -np.log(row[right])
    return total / len(rows)


def plainly_tempered(row: list[float], temperature: float) -> list[float]:
    powers = [chance ** (1 / temperature) for chance in row]
    return [power / sum(powers) for power in powers]


def plainly_on_line(part: np.ndarray, gold: np.ndarray) -> np.ndarray:
    """Numbers on the line of least squares, if lines through all other examples predict each one better than it."""
    errors = []
    for left_out, (number, right) in enumerate(zip(part[:, 0], gold, strict=True)):
        others = np.arange(len(gold)) != left_out
        slope, intercept = np.polyfit(part[others, 0], gold[others], 1)
        errors.append(slope * number + intercept - right)
    slope, intercept = np.polyfit(part[:, 0], gold, 1)
    better = np.square(errors).sum() < np.square(part[:, 0] - gold).sum()
    return slope * part + intercept if better else part  # type: ignore[no-any-return]


def plain_search(
    parts: list[np.ndarray], gold: np.ndarray, numbers: bool
) -> tuple[list[float], tuple[float, ...], float]:
    """Each part's best temperature, the best shares of them (tenths, or all equal), and their loss."""
    right = gold.tolist()
    rows = [(plainly_on_line(part, gold) if numbers else part).tolist() for part in parts]
    temperatures = [1.0] * len(parts)
    if not numbers:
        for place, part in enumerate(rows):
            losses = {}
            for temperature in (0.125, 0.18, 0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 5.6, 8.0):
                losses[plain_loss([plainly_tempered(row, temperature) for row in part], right, False)] = temperature
            temperatures[place] = losses[min(losses)]
            rows[place] = [plainly_tempered(row, temperatures[place]) for row in part]
    best: tuple[float, tuple[float, ...]] = (float("inf"), ())
    grids = [tuple(tenth / 10 for tenth in one) for one in product(range(11), repeat=len(parts)) if sum(one) == 10]
    for shares in [*grids, tuple(1 / len(parts) for _ in parts)]:
        mixed = []
        for index in range(len(right)):
            columns = range(len(rows[0][0]))
            mixed.append([sum(share * part[index][k] for share, part in zip(shares, rows)) for k in columns])  # noqa: B905
        best = min(best, (plain_loss(mixed, right, numbers), shares))
    return temperatures, best[1], best[0]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("numbers", [False, True])
@pytest.mark.parametrize("count", [2, 3])
def test_weights_are_those_of_a_search_in_plain_loops(count: int, numbers: bool, seed: int) -> None:
    parts, gold = noisy_parts(seed, count, numbers)
    temperatures, shares, lowest = plain_search(parts, gold, numbers)
    found = fitted(parts, gold)
    assert list(found.temperatures) == temperatures
    assert loss(replace(found, shares=shares, temperature=1.0).apply(parts), gold) == pytest.approx(lowest, rel=1e-9)
    trust = len(gold) / (len(gold) + 100)
    assert np.allclose(found.shares, [trust * share + (1 - trust) / count for share in shares])


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_a_part_that_is_too_sure_or_too_unsure_gets_its_temperature_back(temperature: float) -> None:
    random = np.random.default_rng(1)
    honest = chances_of(random, 4000) + 0.05
    honest /= honest.sum(axis=1, keepdims=True)
    gold = drawn(random, honest)
    powers = honest**temperature
    wrong = powers / powers.sum(axis=1, keepdims=True)
    found = fitted([wrong, honest], gold)
    assert found.temperatures == (temperature, 1.0)
    assert Weights((temperature,), (1.0,)).apply([wrong]) == pytest.approx(honest, abs=1e-6)


@pytest.mark.parametrize("numbers", [False, True])
def test_a_part_that_knows_nothing_gets_no_weight(numbers: bool) -> None:
    random = np.random.default_rng(2)
    gold = random.normal(size=500) if numbers else random.integers(0, 3, 500)
    good = gold[:, None] + random.normal(0, 0.01, (500, 1)) if numbers else np.eye(3)[gold] * 0.97 + 0.01
    bad = random.normal(0, 9, (500, 1)) if numbers else chances_of(random, 500)
    rest = EQUAL / (500 + EQUAL) / 3
    assert fitted([bad, good, bad[::-1]], gold).shares == pytest.approx((rest, 1 - 2 * rest, rest))


@pytest.mark.parametrize("numbers", [False, True])
def test_the_fewer_examples_the_nearer_to_equal_weights(numbers: bool) -> None:
    parts, gold = noisy_parts(0, 3, numbers, 2000)
    parts[0] = parts[0][::-1]  # knows nothing
    shares = [fitted([part[:count] for part in parts], gold[:count]).shares[0] for count in (0, 20, 200, 2000)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] == 1 / 3
    assert shares[1] >= EQUAL / (20 + EQUAL) / 3
    assert shares[3] < shares[0] / 2


@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("numbers", [False, True])
def test_parts_that_are_the_same_are_weighted_equally(count: int, numbers: bool) -> None:
    for seed in range(5):
        parts, gold = noisy_parts(seed, 1, numbers)
        assert fitted(parts * count, gold).shares == pytest.approx((1 / count,) * count)


@given(st.integers(0, 10**6), st.sampled_from([20, 300]), st.floats(5, 50), st.floats(0.1, 20))
@settings(max_examples=30, deadline=None)
def test_numbers_of_another_mean_and_deviation_are_corrected(seed: int, size: int, shift: float, factor: float) -> None:
    """A part whose numbers are shifted and shrunk gives the mixture that it would give on its line."""
    parts, gold = noisy_parts(seed, 2, True, size)
    on_line = plainly_on_line(100 + parts[0], gold)
    expected = fitted([on_line, parts[1]], gold)
    moved = [factor * parts[0] + shift, parts[1]]
    found = fitted(moved, gold)
    assert found.shares == pytest.approx(expected.shares)
    assert found.apply(moved) == pytest.approx(expected.apply([on_line, parts[1]]))


def test_two_examples_give_no_line() -> None:
    parts = [np.array([[5.0], [6.0]]), np.array([[1.0], [3.0]])]
    assert fitted(parts, np.array([1.0, 2.0])).lines == ((1, 0), (1, 0))


@given(
    st.integers(0, 10**6), st.sampled_from([1, 2, 20, 200]), st.sampled_from([(1e-6, 0.0), (10.0, 40.0), (1e6, -3e6)])
)
@settings(max_examples=30, deadline=None)
def test_a_mixture_in_another_unit_is_the_same_mixture(seed: int, size: int, unit: tuple[float, float]) -> None:
    parts, gold = noisy_parts(seed, 3, True, size)
    factor, shift = unit
    moved = [factor * part + shift for part in parts]
    expected, found = fitted(parts, gold), fitted(moved, factor * gold + shift)
    assert found.shares == pytest.approx(expected.shares)
    assert (found.apply(moved) - shift) / factor == pytest.approx(expected.apply(parts), abs=1e-6)


def test_a_part_that_is_wrong_about_the_order_is_not_turned_around() -> None:
    gold = np.arange(30.0)
    found = fitted([-gold[:, None], gold[:, None]], gold)
    assert min(slope for slope, _ in found.lines) >= 0


def test_a_mixture_of_an_older_version_has_no_lines() -> None:
    older = {"temperatures": [1.0, 1.0], "shares": [0.5, 0.5]}
    assert Weights.read(older).apply([np.ones((2, 1)), 3 * np.ones((2, 1))]).tolist() == [[2], [2]]


@given(st.integers(0, 10**6), st.integers(2, 4), st.booleans(), st.sampled_from([0, 1, 5, 50, 200, 260]))
@settings(max_examples=30, deadline=None)
def test_a_mixture_is_no_worse_than_equal_weights(seed: int, count: int, numbers: bool, size: int) -> None:
    random = np.random.default_rng(seed)
    gold = random.normal(size=size) if numbers else random.integers(0, 3, size)
    parts = [random.normal(size=(size, 1)) if numbers else chances_of(random, size, 20) for _ in range(count)]
    if not numbers:
        parts[0] = np.eye(3)[parts[0].argmax(axis=1)]  # hard labels: log-loss of those that are wrong has no end
    found = fitted(parts, gold)
    mixed, plain = found.apply(parts), replace(found, temperature=1.0)
    assert sum(found.shares) == pytest.approx(1)
    assert min(found.shares) >= 0
    assert numbers or np.allclose(mixed.sum(axis=1), 1)
    assert numbers or mixed.min(initial=0) >= 0
    if size:
        equal = replace(plain, shares=(1 / count,) * count).apply(parts)
        assert loss(plain.apply(parts), gold) <= loss(equal, gold) * (1 + 1e-11)
        assert loss(mixed, gold) <= loss(plain.apply(parts), gold) * (1 + 1e-11)


def grouped_parts(numbers: bool = False) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """Five groups of 80 in which three parts differ; groups are not in a row."""
    parts, gold = noisy_parts(5, 3, numbers, 400)
    return parts, gold, np.arange(400) % 5 * 7


@pytest.mark.parametrize("numbers", [False, True])
def test_each_group_is_predicted_with_weights_of_the_others(numbers: bool) -> None:
    parts, gold, group = grouped_parts(numbers)
    found = cross_fitted(parts, gold, group)
    assert found.shape == parts[0].shape
    chosen = set()
    for one in np.unique(group):
        others, own = group != one, group == one
        weights = fitted([part[others] for part in parts], gold[others])
        chosen.add(weights)
        assert np.array_equal(found[own], weights.apply([part[own] for part in parts]))
    assert len(chosen) > 1  # so that predictions of the wrong group's weights would be seen
    assert numbers or np.allclose(found.sum(axis=1), 1)


@pytest.mark.parametrize(("one", "large"), [(0, False), (7, False), (28, False), (0, True)])
def test_the_gold_of_a_group_has_no_effect_on_its_own_predictions(one: int, large: bool) -> None:
    parts, gold, group = grouped_parts()
    if large:  # more than a fold
        group = np.where(np.arange(400) < 180, 0, np.arange(400))
    moved = np.where(group == one, parts[2].argmin(axis=1), gold)
    before, after = cross_fitted(parts, gold, group), cross_fitted(parts, moved, group)
    assert np.array_equal(before[group == one], after[group == one])
    assert (before[group != one] != after[group != one]).any(axis=1).mean() > 0.9


# The step


def rows_of(numbers: bool) -> list[Row]:
    """Texts of which a word tells the answer, in three of four."""
    random = np.random.default_rng(3)
    signs = dict(zip(LABELS, ("sea", "grass", "fire"), strict=True))
    rows: list[Row] = []
    for text, split in zip(words(len(SPLITS), 8), SPLITS, strict=True):
        label = LABELS[random.integers(3)]
        sign = signs[label] if random.random() < 0.75 else signs[LABELS[random.integers(3)]]
        amount = float(text.count("alpha") - text.count("beta") + random.normal())
        rows.append((f"{text} {sign}", None, amount if numbers else label, split))
    return rows


def task_of(root: Path, numbers: bool = False) -> str:
    return make_task(root, rows_of(numbers), "pearson" if numbers else "macro_f1", None if numbers else LABELS)


def encoder(root: Path, task: str, seed: int, arm: str = "task-only") -> str:
    """Metrics of a random encoder that says that it is of this seed."""
    checkpoint, _ = random_model(root, task, words(50, 9))
    folder = Artifact.open(random_model(root, task, words(50, 9), scale=seed + 1.0)[1]).path("model")

    def write(draft: Any) -> None:
        shutil.copytree(folder, draft.folder / "model")
        cost = {"steps": 7, "tokens": 70, "flops": 7000 + seed, "paper_flops": 9000, "padded_tokens": 90}
        draft.details.update(arm=arm, seed=seed, parameters=1000, cost=cost)
        draft.run.update(device="cpu", threads=1)

    seeded = make("model", root, write, {"seed": seed, "arm": arm}, {"checkpoint": checkpoint})
    return evaluate(seeded, task, device="cpu", root=str(root))


class Store:
    """A store with a task and metrics of each kind of model, with encoders of these seeds."""

    def __init__(self, root: Path, numbers: bool = False, seeds: tuple[int, ...] = ()) -> None:
        self.root = root
        self.task = task_of(root, numbers)
        self.baseline = baseline(self.task, root=str(root))
        self.static = static(self.task, root=str(root))
        self.encoders = [encoder(root, self.task, seed) for seed in seeds]

    def mixed(self, *metrics: str) -> Artifact:
        return Artifact.open(mix(list(metrics), root=str(self.root)))


def values_of(metrics: str | Artifact, split: str) -> np.ndarray:
    found = Artifact.open(metrics) if isinstance(metrics, str) else metrics
    rows = [row for row in pq.read_table(found.path("predictions.parquet")).to_pylist() if row["split"] == split]
    return np.array([row["probabilities"] or [row["predicted"]] for row in rows])


def gold_of(numbers: bool, split: str) -> np.ndarray:
    return np.array([row[2] if numbers else LABELS.index(str(row[2])) for row in rows_of(numbers) if row[3] == split])


def answered(model: str, numbers: bool = False) -> np.ndarray:
    """What a model (or the model of metrics) answers to the test texts."""
    rows = list(predict(model, [row[0] for row in rows_of(numbers) if row[3] == "test"], device="cpu"))
    return np.array([[row["value"]] if numbers else [row["probabilities"][label] for label in LABELS] for row in rows])


def members_of(store: Store, kind: str) -> list[str]:
    return {
        "shallow": [store.baseline, store.static],
        "encoder": [store.encoders[0], store.baseline],
        "seeds": [*store.encoders, store.baseline],
        "all": [store.baseline, *store.encoders, store.static],
    }[kind]


def parts_in(store: Store, kind: str, split: str) -> list[np.ndarray]:
    """By hand: what the parts of a mixture say, with the seeds of an arm averaged."""
    shallow = [values_of(store.baseline, split), values_of(store.static, split)]
    first, second = (values_of(uri, split) for uri in store.encoders)
    return {
        "shallow": shallow,
        "encoder": [first, shallow[0]],
        "seeds": [(first + second) / 2, shallow[0]],
        "all": [shallow[0], (first + second) / 2, shallow[1]],
    }[kind]


KINDS = {
    "shallow": "baseline + static-task-only",
    "encoder": "task-only + baseline",
    "seeds": "task-only × 2 + baseline",
    "all": "baseline + task-only × 2 + static-task-only",
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_mixture_is_what_its_weights_make_of_its_parts(kind: str, store: Store) -> None:
    found = store.mixed(*members_of(store, kind))
    members = parts_of([Artifact.open(uri) for uri in members_of(store, kind)])
    fit = partial(fitted, own=[part.temperature for part in members])
    weights = fit(parts_in(store, kind, "dev"), gold_of(False, "dev"))
    model = found.input("model")
    assert tuple(model.details["shares"]) == weights.shares
    assert tuple(model.details["temperatures"]) == weights.temperatures
    assert np.allclose(values_of(found, "test"), weights.apply(parts_in(store, kind, "test")), rtol=0, atol=1e-12)
    group = read_splits(Artifact.open(store.task), "dev")["dev"].group
    dev = cross_fitted(parts_in(store, kind, "dev"), gold_of(False, "dev"), group, fit)
    assert np.allclose(values_of(found, "dev").sum(axis=1), 1)
    assert np.allclose(values_of(found, "dev"), dev, rtol=0, atol=1e-9)
    assert found.details["arm"] == KINDS[kind]
    assert found.details["seed"] == (1 if kind == "encoder" else 0), "that of its members only if it is one run of each"
    assert len(found.details["arm"].split(" + ")) == len(weights.shares)
    assert found.details["stage"] == "mixture"
    if kind == "seeds":
        first, second = (values_of(uri, "test") for uri in store.encoders)
        assert np.abs(first - second).max() > 0.01  # so that the mean is neither


@pytest.mark.parametrize("kind", KINDS)
def test_the_saved_mixture_predicts_what_was_scored(kind: str, store: Store, tmp_path: Path) -> None:
    found = store.mixed(*members_of(store, kind))
    expected = values_of(found, "test")
    assert np.abs(answered(found.uri) - expected).max() < 1e-6
    folder = download(found.input("model").uri, str(tmp_path / "fetched"))
    assert np.abs(answered(folder) - expected).max() < 1e-6
    assert np.abs(answered(store.baseline) - expected).max() > 1e-3


def test_a_mixture_of_numbers(numbers: Store, tmp_path: Path) -> None:
    found = numbers.mixed(numbers.baseline, numbers.static)
    parts = {
        name: [values_of(uri, name) for uri in (numbers.baseline, numbers.static)] for name in ("dev", "test")
    }  # fmt: skip
    weights = fitted(parts["dev"], gold_of(True, "dev"))
    assert np.allclose(values_of(found, "test"), weights.apply(parts["test"]))
    assert tuple(found.input("model").details["temperatures"]) == (1, 1)
    assert any(line != [1, 0] for line in found.input("model").details["lines"])
    assert np.abs(answered(found.uri, True) - values_of(found, "test")).max() < 1e-6
    folder = download(found.input("model").uri, str(tmp_path / "fetched"))
    assert np.abs(answered(folder, True) - values_of(found, "test")).max() < 1e-6
    assert found.details["test"] == pytest.approx(
        np.corrcoef(values_of(found, "test")[:, 0], gold_of(True, "test"))[0, 1]
    )


def test_mixtures_in_two_stores_are_the_same(store: Store, tmp_path: Path) -> None:
    other = Store(tmp_path)
    first, second = store.mixed(store.baseline, store.static), other.mixed(other.baseline, other.static)
    assert first.content == second.content
    assert first.input("model").content == second.input("model").content
    assert other.mixed(other.baseline, other.static, other.baseline, f"{other.baseline}/").uri == second.uri


@pytest.mark.parametrize("kind", ["seeds", "all"])
def test_the_costs_of_all_members_are_kept(kind: str, store: Store) -> None:
    found = store.mixed(*members_of(store, kind))
    values = read_json(found, "metrics.json")
    flops = sorted(cost["flops"] for cost in values["cost"].values() if cost)
    assert flops == [7000, 7000, 7001, 7002]  # stage 1 and stage 2 of both seeds
    assert len(values["cost"]) == (5 if kind == "seeds" else 6)
    assert set(found.run()["stages"]) == set(values["cost"])
    assert all(facts["device"] == "cpu" for facts in found.run()["stages"].values())
    shallow = [Artifact.open(uri).input("model").details["parameters"] for uri in (store.baseline, store.static)]
    assert values["parameters"] == 2000 + sum(shallow[: 1 if kind == "seeds" else 2])


def test_models_of_one_arm_and_one_seed_all_count(store: Store) -> None:
    """Such as runs with other settings: no member's cost hides another's."""
    models = [random_model(store.root, store.task, words(50, 9), scale=scale)[1] for scale in (7.0, 9.0)]
    same = [evaluate(model, store.task, device="cpu", root=str(store.root)) for model in models]
    found = store.mixed(*same, store.baseline)
    assert len(read_json(found, "metrics.json")["cost"]) == 5
    assert np.abs(answered(found.uri) - values_of(found, "test")).max() < 1e-6


def test_mixtures_of_encoders_with_other_settings_are_no_seeds(store: Store) -> None:
    models = [random_model(store.root, store.task, words(50, 9), scale=scale)[1] for scale in (7.0, 9.0)]
    encoders = [evaluate(model, store.task, device="cpu", root=str(store.root)) for model in models]
    mixed = [store.mixed(one, store.baseline).uri for one in encoders]
    told = Artifact.open(report([*encoders, *mixed, store.baseline], root=str(store.root))).json("report.json")
    assert len(told["groups"]) == 5
    assert {len(group["seeds"]) for group in told["groups"]} == {1}
    alone = [group | {"dev": {"mean": 1.0}} for group in told["groups"] if group["kind"] == "encoder"]
    others = [group for group in told["groups"] if group["kind"] != "encoder"]
    assert challenger([*alone, *others])["kind"] == "encoder + linear", "each mixture stands for its encoder alone"
    assert challenger([*alone, *others[:-1]])["kind"] == "encoder"


def test_models_that_two_versions_of_a_step_made_are_no_seeds(tmp_path: Path, monkeypatch: Any) -> None:
    """After an upgrade, a report of old and new models gave their mean, as if they were seeds."""
    store, version = Store(tmp_path), VERSIONS["baseline"]
    monkeypatch.setitem(VERSIONS, "baseline", 1000)
    monkeypatch.setattr(tfidf, "SHAPES", tfidf.OF_MANY)
    both = [store.baseline, baseline(store.task, root=str(tmp_path))]
    mixed = [store.mixed(one, store.static).uri for one in both]
    told = Artifact.open(report([*both, *mixed], root=str(tmp_path))).json("report.json")
    assert [group["seeds"] for group in told["groups"]] == [[0]] * 4
    names = {group["name"] for group in told["groups"]}
    assert {f"linear (version of baseline={number})" for number in (version, 1000)} < names
    assert len(names) == 4


def test_a_mixture_of_a_mixture_stands_beside_one_of_the_same_models(store: Store) -> None:
    inner = store.mixed(store.baseline, store.static)
    both = [
        store.mixed(inner.uri, store.encoders[0]).uri,
        store.mixed(store.baseline, store.static, store.encoders[0]).uri,
    ]
    told = Artifact.open(report([*both, store.baseline], root=str(store.root))).json("report.json")
    assert len({group["name"] for group in told["groups"]}) == 3


def test_a_mixture_of_a_mixture(store: Store) -> None:
    inner = store.mixed(store.baseline, store.static)
    outer = store.mixed(inner.uri, store.encoders[0])
    assert np.abs(answered(outer.uri) - values_of(outer, "test")).max() < 1e-6
    weights = fitted([values_of(inner, "dev"), values_of(store.encoders[0], "dev")],
                     gold_of(False, "dev"))  # fmt: skip
    assert tuple(outer.input("model").details["shares"]) == weights.shares
    assert len(read_json(outer, "metrics.json")["cost"]) == 4


def test_evaluate_scores_a_mixture(store: Store) -> None:
    mixed = store.mixed(*members_of(store, "shallow"))
    again = Artifact.open(evaluate(mixed.input("model").uri, store.task, root=str(store.root)))
    assert again.details["test"] == mixed.details["test"]
    assert np.abs(values_of(again, "test") - values_of(mixed, "test")).max() < 1e-6


def test_a_task_with_few_examples_on_dev(tmp_path: Path) -> None:
    rows, dev = rows_of(False), 4
    task = make_task(tmp_path, rows[: 60 + dev] + rows[320:], "macro_f1", LABELS)
    found = Artifact.open(mix([step(task, root=str(tmp_path)) for step in (baseline, static)], root=str(tmp_path)))
    assert {*found.input("model").details["chosen"]} == {"weight of linear", "weight of static-task-only"}
    assert found.input("model").details["shares"] == pytest.approx([0.5, 0.5], abs=0.5 * dev / (dev + EQUAL) + 1e-9)
    assert len(values_of(found, "dev")) == dev
    assert np.abs(answered(found.uri) - values_of(found, "test")).max() < 1e-6


def test_a_report_lists_mixtures_beside_their_parts(store: Store) -> None:
    uris = [store.baseline, store.static, *store.encoders, store.mixed(*members_of(store, "all")).uri]
    found = Artifact.open(report(uris, root=str(store.root)))
    groups = {group["arm"]: group for group in read_json(found, "report.json")["groups"]}
    assert set(groups) == {"baseline", "static-task-only", "task-only", KINDS["all"]}
    assert groups["task-only"]["seeds"] == [1, 2]
    mixed = groups[KINDS["all"]]
    flops = [stage["flops"]["mean"] for stage in mixed["stages"].values()]
    assert sorted(count for count in flops if count is not None) == [7000, 7000, 7001, 7002]
    page = found.path("report.md").read_text(encoding="utf-8")
    assert all(group["name"] in page for group in groups.values())


def imported(store: Store) -> str:
    file = store.root / "answers.jsonl"
    rows = [json.dumps({"id": f"e{index}", "label": row[2]}) for index, row in enumerate(rows_of(False)) if index >= 60]
    file.write_text("\n".join(rows))
    return import_predictions(str(file), store.task, name="oracle", root=str(store.root))


@pytest.mark.parametrize(
    "case", ["one model", "nothing", "one model twice", "two tasks", "imported", "five arms", "a model"]
)
def test_what_cannot_be_mixed_is_said_in_a_sentence(case: str, store: Store, numbers: Store, tmp_path: Path) -> None:
    if case == "five arms":
        other = make_arms(store)
    metrics, said = {
        "nothing": ([], "models: 0, arms: 0; expected 2 or more models, of at most 4 arms"),
        "one model": ([store.baseline], "models: 1, arms: 1; expected 2 or more"),
        "one model twice": ([store.baseline, store.baseline, f"{store.baseline}/"], "models: 1, arms: 1; expected 2"),
        "two tasks": ([store.baseline, numbers.static], "are of different tasks; mix models of one task"),
        "imported": ([store.baseline, imported(store)], "has no model; expected metrics of evaluate"),
        "five arms": ([store.baseline, *(other if case == "five arms" else [])], "models: 5, arms: 5; expected"),
        "a model": ([store.baseline, Artifact.open(store.static).input("model").uri], "is a model; expected metrics"),
    }[case]
    models = len(list((store.root / "model").iterdir()))
    with pytest.raises(InputError, match=said):
        mix(metrics, root=str(store.root))
    assert len(list((store.root / "model").iterdir())) == models  # refused before work


def make_arms(store: Store) -> list[str]:
    """Metrics of four arms, by name only."""

    def named(arm: str) -> str:
        def write(draft: Any) -> None:
            (draft.folder / "metrics.json").write_text("{}")
            draft.details.update(arm=arm, seed=0)

        return make("metrics", store.root, write, {"arm": arm},
                    {"model": Artifact.open(store.baseline).input("model").uri, "task": store.task})  # fmt: skip

    return [named(f"arm {number}") for number in range(4)]


def test_the_mixtures_of_a_pipeline(store: Store) -> None:
    made = [
        Artifact.open(uri) for uri in mixtures(store.baseline, [store.static, *store.encoders], root=str(store.root))
    ]
    encoder = [(f"task-only{static} + baseline", seed) for seed in (1, 2) for static in ("", " + static-task-only")]
    assert [(one.details["arm"], one.details["seed"]) for one in made] == [("static-task-only + baseline", 0), *encoder]
    fixed = [read_json(one, "metrics.json")["fixed"] for one in made]
    assert fixed == [True, False, False, False, False], "a mixture is the same with every seed if all parts are"


def test_an_encoder_is_mixed_with_the_static_model_of_its_own_draw(tmp_path: Path) -> None:
    """That of its seed; a text that was not drawn has one static model, for all seeds."""
    store = Store(tmp_path / "store")
    own = static(store.task, seed=2, root=str(store.root))
    metrics = [store.static, own, *(encoder(store.root, store.task, seed) for seed in (1, 2))]
    made = [Artifact.open(uri) for uri in mixtures(store.baseline, metrics, root=str(store.root))]
    first, second = (Artifact.open(uri).manifest.key for uri in (store.static, own))
    mixed = [one.input("model").manifest.inputs for one in made if one.details["arm"].count("+") == 2]
    assert [{first, second} & {part.key for part in one.values()} for one in mixed] == [{first}, {second}]


def test_a_published_model_without_text_is_mixed_with_the_static_model_of_bm25_s(tmp_path: Path) -> None:
    store, root = Store(tmp_path), str(tmp_path)
    subsets = [subset_of(tmp_path, words(60, seed), arm) for seed, arm in enumerate(("random", "bm25"))]
    text = [static(store.task, subset=subset, root=root) for subset in subsets]
    made = mixtures(store.baseline, [*text, encoder(tmp_path, store.task, 1, "published-mini")], root=root)
    assert [Artifact.open(uri).details["arm"] for uri in made] == [
        "static-random + baseline", "static-bm25 + baseline",
        "published-mini + baseline", "published-mini + static-bm25 + baseline",
    ]  # fmt: skip


@pytest.mark.parametrize("place", ["../other", "/etc", ".", "0-0/../../other", ""])
def test_a_mixture_has_its_models_in_its_own_folder(place: str, tmp_path: Path) -> None:
    """Their files are verified with it; those elsewhere would be read unseen."""
    splits = ["train"] * 9 + ["dev"] * 3 + ["test"] * 3
    rows: list[Row] = [(f"a text of {LABELS[at % 3]}", None, LABELS[at % 3], split) for at, split in enumerate(splits)]
    task = make_task(tmp_path, rows, "macro_f1", LABELS)
    linear = baseline(task, root=str(tmp_path))
    for name, metrics in (("other", linear), ("mixed", mix([linear, static(task, root=str(tmp_path))]))):
        shutil.copytree(Artifact.open(metrics).input("model").path("model"), tmp_path / name)
    config = json.loads((tmp_path / "mixed/config.json").read_text())
    (tmp_path / "mixed/config.json").write_text(json.dumps(config | {"parts": [[place], *config["parts"][1:]]}))
    with pytest.raises(InputError, match="names models elsewhere; expected names such as 0-0"):
        open_predictor(tmp_path / "mixed", "cpu")
    own = json.loads((tmp_path / "other/config.json").read_text())
    (tmp_path / "other/config.json").write_text(json.dumps(own | {"labels": [*own["labels"], "black"]}))
    with pytest.raises(InputError, match="weights of 3 classes, and 4 labels"):
        open_predictor(tmp_path / "other", "cpu")
    arrays = load_file(tmp_path / "other/weights.safetensors")
    save_file(arrays | {"weights": arrays["weights"][:0]}, tmp_path / "other/weights.safetensors")
    with pytest.raises(InputError, match="weights of 0 classes, and 4 labels"):
        open_predictor(tmp_path / "other", "cpu")
    (tmp_path / "mixed/config.json").write_text('{"tlm_family": "mixture"}')
    with pytest.raises(
        InputError, match=r"is no complete model \(KeyError: 'labels'\); copy the model again .*or upgrade"
    ):
        open_predictor(tmp_path / "mixed", "cpu")
