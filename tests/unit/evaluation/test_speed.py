"""How fast models predict: what is timed, counted and added up, and that it never changes what is published."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.toys import make_task, random_model, words
from tlm.artifacts.artifact import Artifact
from tlm.artifacts.spending import Amount
from tlm.data.tasks.metrics import Split
from tlm.evaluation.score import evaluate as speed
from tlm.evaluation.score.baseline import baseline, static
from tlm.evaluation.score.evaluate import MOST_ALONE, SPEED, evaluate, measured, one_at_a_time, together
from tlm.evaluation.score.mix import mix

LABELS = ["blue", "green", "red"]


class Counting:
    """A model that notes how many texts each call has."""

    labels = LABELS
    thresholds = None

    def __init__(self) -> None:
        self.calls: list[int] = []

    def predict(self, texts: Any, pairs: Any = None, label: str = "") -> NDArray[np.float64]:
        assert pairs is None or len(pairs) == len(texts)
        self.calls.append(len(texts))
        return np.zeros((len(texts), 3))


def split(count: int, pairs: bool = False) -> Split:
    texts, rows = words(count, 0), np.arange(count)
    return Split("dev", rows, texts, texts if pairs else None, rows % 3, rows, rows < 0)


def task(root: Path) -> str:
    rows = [(text, None, LABELS[row % 3], "train" if row < 30 else "dev" if row < 40 else "test")
            for row, text in enumerate(words(60, 0))]  # fmt: skip
    return make_task(root, rows, "macro_f1", LABELS)  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [0, 1, 7, 250])
@pytest.mark.parametrize("pairs", [False, True])
def test_a_hundred_texts_at_most_are_predicted_alone_after_one_that_is_not_timed(
    count: int, pairs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speed, "MOST_SECONDS", 1e9)
    model = Counting()
    measured = min(count, MOST_ALONE)
    assert len(one_at_a_time(model, split(count, pairs))) == measured
    assert model.calls == [1] * (measured + 1 if count else 0)


def test_a_slow_model_is_not_asked_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "MOST_SECONDS", -1.0)
    model = Counting()
    assert one_at_a_time(model, split(50)) == []
    assert model.calls == []


def test_all_texts_are_timed_by_the_kind_of_processor() -> None:
    splits = {"dev": split(2), "test": split(1, pairs=True)}
    for device, worker, other in (("cpu", "cpu_seconds", "gpu_seconds"), ("cuda:1", "gpu_seconds", "cpu_seconds")):
        found, facts = measured(Counting(), device, splits)
        assert {name: len(values) for name, values in found.items()} == {"dev": 2, "test": 1}
        assert (facts["texts"], facts["alone"]["texts"]) == (3, 2)
        assert worker in facts
        assert other not in facts
        assert facts["peak_memory"] > 1e6
    assert facts["gpu_seconds"] == facts["seconds"] > 0


@pytest.mark.parametrize(("amount", "expected"), [(Amount(5.0), 5), (Amount(0.0, 1), None)])
def test_energy_that_was_not_measured_is_no_sum(
    amount: Amount, expected: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a counter can no longer be read."""
    monkeypatch.setattr(speed.Spending, "joules", lambda _: {"cpu_joules": amount})
    _, facts = measured(Counting(), "cpu", {"dev": split(1)})
    assert facts.get("cpu_joules") == expected


def test_a_mixture_takes_what_its_members_take_as_far_as_all_were_measured() -> None:
    first = {"texts": 9, "seconds": 1.0, "cpu_seconds": 2.0, "cpu_joules": 5.0, "bytes": 100,
             "peak_memory": 5, "alone": {"texts": 9, "median_ms": 1.0, "p99_ms": 2.0}}  # fmt: skip
    second = {"texts": 9, "seconds": 0.5, "cpu_seconds": 0.25, "bytes": 11, "peak_memory": 5}
    assert together([first, second]) == {"texts": 9, "seconds": 1.5, "cpu_seconds": 2.25, "bytes": 111}
    both = together([first, {**second, "cpu_joules": 1.5}])
    assert both["cpu_joules"] == 6.5
    on_both = together([first, {"texts": 9, "seconds": 0.5, "gpu_seconds": 0.5, "bytes": 11}])
    assert (on_both["cpu_seconds"], on_both["gpu_seconds"]) == (2.0, 0.5)
    of_cascade = together([first, second], [1, 0.5])
    assert of_cascade == {"texts": 9, "seconds": 1.25, "cpu_seconds": 2.125, "bytes": 111}
    assert together([first, {"texts": 9, "seconds": 1.0, "gpu_seconds": 4.0}], [1, 0]).keys() == {
        "texts", "seconds", "cpu_seconds",
    }, "a model that is never asked takes nothing"  # fmt: skip
    alone = together([first, {**second, "alone": {"texts": 3, "median_ms": 0.5, "p99_ms": 4.0}}])["alone"]
    assert alone == {"median_ms": 1.5, "p99_ms": 6.0}
    assert together([first, {}]) == together([]) == together([first, {**second, "texts": 8}]) == {}


def test_every_step_that_scores_says_how_fast_and_large_its_model_is(tmp_path: Path) -> None:
    examples, root = task(tmp_path), str(tmp_path)
    _, model = random_model(tmp_path, examples, words(50, 9))
    linear, vectors = baseline(examples, root=root), static(examples, root=root)
    for uri in (evaluate(model, examples, device="cpu", root=root), linear, vectors):
        metrics = Artifact.open(uri)
        told = metrics.run()[SPEED]
        assert told["texts"] == 30
        assert told["cpu_seconds"] > 0
        alone = told.get("alone", {"texts": 0})  # fewer than ten where the machine is slow
        assert 0 <= alone["texts"] <= 10
        assert not alone["texts"] or 0 < alone["median_ms"] <= alone["p99_ms"]
        folder = metrics.input("model").path("model")
        assert told["bytes"] == sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        assert SPEED not in metrics.path("metrics.json").read_text()
    mixed = Artifact.open(mix([linear, vectors], root=root)).run()[SPEED]
    members = [Artifact.open(uri).run()[SPEED] for uri in (linear, vectors)]
    assert mixed["texts"] == 30
    assert mixed["cpu_seconds"] == pytest.approx(sum(one["cpu_seconds"] for one in members))
    assert mixed["bytes"] == sum(one["bytes"] for one in members)
    for name in ("median_ms", "p99_ms"):
        assert mixed["alone"][name] == pytest.approx(sum(one["alone"][name] for one in members))


def test_what_was_measured_is_no_part_of_the_content(tmp_path: Path) -> None:
    made = []
    for name in ("one", "two"):
        root = tmp_path / name
        uri = baseline(task(root), root=str(root))
        made.append((Artifact.open(uri).content, Artifact.open(uri).manifest.key, Artifact.open(uri).run()[SPEED]))
    (content, key, first), (other_content, other_key, second) = made
    assert (content, key) == (other_content, other_key)
    assert first != second
