"""Sure and unsure answers: those marked as unsure, the coverage of a report, and cascades."""

import csv
import json
import tracemalloc
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from tests.tiny import write_tiny
from tests.toys import make, read_json, save
from tests.unit.evaluation.test_mix import LABELS, Store, answered, chances_of, drawn, gold_of, rows_of, values_of
from tlm.artifacts.artifact import Artifact
from tlm.cli.upkeep import download
from tlm.data.tasks.examples import read_splits
from tlm.data.tasks.metrics import score
from tlm.data.tasks.task import load_task
from tlm.errors import InputError
from tlm.evaluation.origins.explain import explained
from tlm.evaluation.predict.files import predict_command
from tlm.evaluation.predict.models import located
from tlm.evaluation.predict.predict import predict
from tlm.evaluation.predict.predictor import ABOVE_ALL, Cascade, Mixture, Weights, fitted_cascade, open_predictor
from tlm.evaluation.predict.written import Tally
from tlm.evaluation.report.report import report
from tlm.evaluation.score.baseline import baseline
from tlm.evaluation.score.evaluate import SPEED, evaluate, rate, together
from tlm.evaluation.score.mix import ReportRow, mix, mixed
from tlm.evaluation.score.scores import _answers, coverage, predictions_of
from tlm.serving.app import Server
from tlm.serving.protocol import Served

TOLERANCE = 0.05
TEXTS = [row[0] for row in rows_of(False) if row[3] == "test"]


def middle(model: str) -> float:
    """A threshold with answers above and below it, and one that just reaches it."""
    return float(sorted(row["probability"] for row in predict(model, TEXTS))[len(TEXTS) // 2])


# Answers


def test_without_the_option_rows_are_the_same(store: Store, tmp_path: Path) -> None:
    source, at_least = tmp_path / "in.txt", middle(store.baseline)
    source.write_text("\n".join(TEXTS))
    found = {}
    for form in ("jsonl", "csv"):
        for marked in (0.0, at_least):
            to = tmp_path / f"out-{marked}.{form}"
            predict_command(store.baseline, source=str(source), to=str(to), to_format=form, at_least=marked)  # type: ignore[arg-type]
            text = to.read_text()
            found[form, marked] = (
                [*map(json.loads, text.splitlines())] if form == "jsonl" else [*csv.DictReader(to.open())]
            )
    for form in ("jsonl", "csv"):
        plain, marked_rows = found[form, 0.0], found[form, at_least]
        assert [{name: value for name, value in row.items() if name != "unsure"} for row in marked_rows] == plain
        assert "unsure" not in plain[0]
        unsure = [row["unsure"] for row in marked_rows]
        below = [float(row["probability"]) < at_least for row in plain]
        assert unsure == (below if form == "jsonl" else [str(one).lower() for one in below])
        assert 0 < sum(below) < len(TEXTS)
    assert [row["unsure"] for row in predict(store.baseline, TEXTS, at_least=at_least)] == below


def test_a_bad_row_is_neither_sure_nor_unsure(store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in.txt").write_text(f"{TEXTS[0]}\n  \n")
    to = tmp_path / "out.csv"
    given_values: dict[str, Any] = {"to": str(to), "to_format": "csv", "at_least": 1.0}
    predict_command(store.baseline, source=str(tmp_path / "in.txt"), **given_values)
    assert "1 rows predicted, 1 of them unsure, 1 bad rows" in capsys.readouterr().err
    assert [row["unsure"] for row in csv.DictReader(to.open())] == ["true", ""]


def test_the_last_line_shows_a_change_of_the_texts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_tiny(tmp_path, documents=1)
    root, source = str(tmp_path / "store"), tmp_path / "in.txt"
    metrics = baseline(load_task(str(tmp_path / "task"), root=root), root=root)
    model = Artifact.open(metrics).input("model").uri
    texts = [json.loads(line) for line in (tmp_path / "task" / "train.jsonl").open()]
    source.write_text("".join(f"{row['text']}\n" for row in texts if row["label"] == "bread"))
    predict_command(model, source=str(source), to=str(tmp_path / "out.jsonl"))
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").open()]
    assert {row["label"] for row in rows} == {"bread"}
    mean = sum(row["probability"] for row in rows) / len(rows)
    assert f"; mean probability {mean:.2f}; labels: bread 100% (task: 33%)\n" in capsys.readouterr().err
    on_dev = predictions_of(Artifact.open(metrics), "dev")["predicted"].to_pylist()
    made = report([metrics], root=root)
    Artifact.open(metrics).path("predictions.parquet").unlink()  # may be large; a bucket would send it each time
    for known in (metrics, made):  # which know what the model answered on dev
        predict_command(known, source=str(source), to=str(tmp_path / "out.jsonl"))
        beside = f"bread 100% (dev: {on_dev.count('bread') / len(on_dev):.0%})"
        assert f"; mean probability {mean:.2f}; labels: {beside}\n" in capsys.readouterr().err


def test_the_last_line_names_the_commonest_labels_and_none_for_numbers() -> None:
    tally = Tally(good=10, labels=Counter({f"class {n}": n for n in range(1, 8)}))
    named = ", ".join(f"class {n} {n / 28:.0%}" for n in (7, 6, 5, 4, 3))
    assert list(tally.described("task", {})) == [f"labels: {named} and 2 more"]
    tally = Tally()
    tally.add({"row": 1, "text": "a", "value": 3.5})
    assert (tally.good, list(tally.described("task", {}))) == (1, [])
    tally = Tally()
    for row in ({"error": "first"}, {"error": "second"}, {"label": "a", "probability": 0.5}):
        tally.add(row)
    assert (tally.bad, tally.error, next(tally.described("task", {}))) == (2, "first", "mean probability 0.50")


def test_both_protocols_mark_what_predict_marks(store: Store) -> None:
    at_least = middle(store.baseline)
    expected = list(predict(store.baseline, TEXTS, at_least=at_least))
    predictor, _ = open_predictor(located(store.baseline)[0], "cpu")
    tensor = {"name": "text", "shape": [len(TEXTS)], "datatype": "BYTES", "data": TEXTS}
    shown = {}
    for least in (0.0, at_least):
        with TestClient(Server(Served(predictor, "toy", "1", least)).app()) as client:
            first = client.post("/v1/models/toy:predict", json={"instances": TEXTS}).json()["predictions"]
            second = client.post("/v2/models/toy/infer", json={"inputs": [tensor]}).json()["outputs"]
            about = client.get("/v2/models/toy").json()
            unsure = sum(row["unsure"] for row in expected) if least else 0
            assert f"tlm_unsure_texts_total {2 * unsure}.0" in client.get("/metrics").text
            shown[least] = first, second, about["outputs"], about["parameters"]
    first, second, outputs, parameters = shown[at_least]
    assert [row["unsure"] for row in first] == [row["unsure"] for row in expected] == second[-1]["data"]
    assert second[-1] == {"name": "unsure", "datatype": "BOOL", "shape": [len(TEXTS)], "data": second[-1]["data"]}
    assert outputs[-1] == {"name": "unsure", "datatype": "BOOL", "shape": [-1]}
    assert parameters == {"classes": LABELS, "at_least": at_least}
    for row in first:
        del row["unsure"]
    assert shown[0.0] == (first, second[:-1], outputs[:-1], {"classes": LABELS})


@pytest.mark.parametrize("at_least", [-0.1, 1.1, float("nan")])
def test_a_threshold_is_a_probability(at_least: float, store: Store) -> None:
    with pytest.raises(InputError, match=r"at_least is .*; expected a probability from 0 to 1"):
        list(predict(store.baseline, TEXTS, at_least=at_least))


def test_numbers_and_several_labels_are_never_unsure(numbers: Store, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the model answers with numbers; --at-least needs one label a text"):
        list(predict(numbers.baseline, TEXTS, at_least=0.5))
    (tmp_path / "config.json").write_text('{"tlm_family": "linear", "labels": ["a", "b"], "thresholds": [0.5, 0.5]}')
    with pytest.raises(InputError, match="several labels a text, each with a threshold of its own; --at-least"):
        list(predict(str(tmp_path), TEXTS, at_least=0.5))


# Coverage


def metrics_of(root: Path, task: str, splits: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> Artifact:
    """Metrics with these probabilities of two answers for each split, of which some are right."""

    def write(draft: Any) -> None:
        names = [name for name, chances in splits.items() for _ in chances]
        chances = [[float(one), 1 - float(one)] for values in splits.values() for one in values]
        gold = ["yes" if hit else "no" for name in splits for hit in right[name]]
        columns = {"split": names, "gold": gold, "predicted": ["yes"] * len(names), "probabilities": chances}
        save(draft, "predictions.parquet", columns)

    size = {name: len(values) for name, values in splits.items()}
    return Artifact.open(make("metrics", root, write, {"size": size}, {"task": task}))


def test_thresholds_of_dev_hold_on_test_as_theory_has_it(store: Store) -> None:
    """If chances are uniform on (0.5, 1), c of dev is answered from 1 - c/2 on, with accuracy 1 - c/4."""
    random = np.random.default_rng(0)
    splits = {name: random.uniform(0.5, 1, size) for name, size in (("dev", 30_000), ("test", 40_000))}
    right = {name: random.random(len(chances)) < chances for name, chances in splits.items()}
    found = coverage(metrics_of(store.root, store.task, splits, right), ["yes", "no"])
    assert found is not None
    for share, row in zip((0.2, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0), found, strict=True):
        for split in ("dev", "test"):
            assert row[split]["share"] == pytest.approx(share, abs=0.01)
            assert row[split]["accuracy"] == pytest.approx(1 - share / 4, abs=0.01)
        assert row["at_least"] == (pytest.approx(1 - share / 2, abs=0.01) if share < 1 else 0)


@pytest.mark.parametrize("case", ["no dev", "no test", "all alike"])
def test_where_there_is_nothing_to_show(case: str, store: Store) -> None:
    sizes = {"no dev": (0, 5), "no test": (5, 0), "all alike": (7, 7)}[case]
    splits = {name: np.linspace(0.6, 0.9, size) for name, size in zip(("dev", "test"), sizes, strict=True)}
    splits = {name: np.full(len(values), 0.75) for name, values in splits.items()} if case == "all alike" else splits
    right = {name: np.ones(len(values), bool) for name, values in splits.items()}
    assert coverage(metrics_of(store.root, store.task, splits, right), ["yes", "no"]) is None


def test_the_report_shows_what_the_thresholds_gave(store: Store) -> None:
    found = Artifact.open(report([store.baseline, store.static], root=str(store.root)))
    contents = read_json(found, "report.json")
    best = contents["best"]["metrics"]
    (uri,) = (one for one in (store.baseline, store.static) if Artifact.open(one).manifest.key == best)
    rows = contents["coverage"]
    assert len(rows) == 7
    for row in rows:
        for split in ("dev", "test"):
            values, gold = values_of(uri, split), gold_of(False, split)
            sure = values.max(axis=1) >= row["at_least"]
            assert row[split]["share"] == sure.mean()
            assert row[split]["accuracy"] == (values.argmax(axis=1) == gold)[sure].mean()
    assert all(0.2 <= row["dev"]["share"] <= 1 for row in rows)
    page = found.path("report.md").read_text()
    assert "Sure and unsure answers" in page
    assert f"{100 * rows[0]['test']['accuracy']:.1f}" in page.partition("Sure and unsure answers")[2]


def test_a_report_of_numbers_has_no_coverage(numbers: Store) -> None:
    found = Artifact.open(report([numbers.baseline], root=str(numbers.root)))
    assert read_json(found, "report.json")["coverage"] is None
    assert "Sure and unsure answers" not in found.path("report.md").read_text()


def test_probabilities_are_read_without_an_object_for_each() -> None:
    chances, answers = np.random.default_rng(0).random((1000, 200)), pa.array(["0", "1"] * 500)
    labels = [*map(str, range(200))]
    rows = pa.table({"probabilities": list(chances), "gold": answers, "predicted": pa.repeat("1", 1000)})
    tracemalloc.start()
    try:
        own, right = _answers(rows, labels)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (own == chances[:, 1]).all()
    assert (right == (np.arange(1000) % 2 == 1)).all()
    assert peak < chances.nbytes
    assert [len(one) for one in _answers(rows.slice(0, 0), labels)] == [0, 0]


# Cascades


def two(seed: int, count: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Probabilities of a model that knows little and of one that knows more, and gold labels."""
    random = np.random.default_rng(seed)
    truth = chances_of(random, count, 3)
    blurred = (truth + 0.3) * random.uniform(0.3, 1, truth.shape)
    return [blurred / blurred.sum(axis=1, keepdims=True), truth], drawn(random, truth)


@settings(deadline=None)
@given(st.integers(0, 1000), st.lists(st.floats(0, 1), min_size=2, max_size=6))
def test_fewer_are_answered_at_once_as_the_threshold_rises(seed: int, thresholds: list[float]) -> None:
    (first, second), _ = two(seed, 40)
    shares = [Cascade(at_least).share(first) for at_least in sorted(thresholds)]
    assert all(low <= high for low, high in pairwise(shares))
    assert Cascade(float(first.max(axis=1).max())).share(first) == 39 / 40, (
        "what reaches the threshold is not passed on"
    )
    assert np.array_equal(Cascade(0).apply([first, second]), first)
    assert np.array_equal(Cascade(ABOVE_ALL).apply([first, second]), second)
    for at_least in thresholds:
        answers = Cascade(at_least).apply([first, second])
        assert all(
            (row == (one if one.max() >= at_least else other)).all()
            for row, one, other in zip(answers, first, second, strict=True)
        )


@settings(deadline=None)
@given(st.integers(0, 1000), st.integers(0, 60), st.sampled_from([0, 0.005, 0.05, 1]))
def test_from_the_threshold_on_all_score_enough(seed: int, count: int, tolerance: float) -> None:
    """Against a search over all ways to divide dev by the first one's probability; none passed on if none need be."""
    parts, gold = two(seed, count)
    found = fitted_cascade(parts, gold, "macro_f1", tolerance)
    if not count:
        assert found.at_least > 1
        return
    alone = max(score("macro_f1", gold, part.argmax(axis=1)) for part in parts)
    order = np.argsort(parts[0].max(axis=1))
    too_few = []
    for passed in range(count + 1):
        predicted = parts[0].argmax(axis=1)
        predicted[order[:passed]] = parts[1].argmax(axis=1)[order[:passed]]
        if score("macro_f1", gold, predicted) < alone - tolerance:
            too_few.append(passed)
    assert found.passed(parts[0]).sum() == (max(too_few) + 1 if 0 in too_few else 0)


@pytest.fixture(scope="module")
def cascade(store: Store) -> Artifact:
    """A cascade of two seeds of an encoder, here the worse model, and a shallow mixture; it passes on most texts."""
    shallow = mix([store.baseline, store.static], root=str(store.root))
    return Artifact.open(mix([*store.encoders, shallow], first=True, tolerance=TOLERANCE, root=str(store.root)))


def parts_in(store: Store, split: str) -> list[np.ndarray]:
    shallow = mix([store.baseline, store.static], root=str(store.root))
    return [np.mean([values_of(uri, split) for uri in store.encoders], axis=0), values_of(shallow, split)]


def partly(store: Store, to: Path, model: Artifact) -> tuple[Path, float]:
    """The folder of a cascade that passes on about a half of the texts, and its threshold."""
    folder = Path(download(model.uri, str(to)))
    at_least = float(np.median(parts_in(store, "test")[0].max(axis=1)))
    config = json.loads((folder / "config.json").read_text()) | {"at_least": at_least + 1e-9}
    (folder / "config.json").write_text(json.dumps(config))
    return folder, at_least + 1e-9


def test_the_scores_of_a_cascade_equal_a_direct_computation(store: Store, cascade: Artifact) -> None:
    gold, dev, test = gold_of(False, "dev"), parts_in(store, "dev"), parts_in(store, "test")
    expected = fitted_cascade(dev, gold, "macro_f1", TOLERANCE)
    details = cascade.input("model").details
    assert (details["at_least"], details["tolerance"], details["stage"]) == (expected.at_least, TOLERANCE, "mixture")
    assert cascade.details["arm"] == "task-only × 2, else baseline + static-task-only"
    assert cascade.manifest.details == cascade.details
    answers = expected.apply(test)
    assert np.array_equal(values_of(cascade, "test"), answers)
    assert cascade.details["test"] == score("macro_f1", gold_of(False, "test"), answers.argmax(axis=1))
    group = read_splits(Artifact.open(store.task), "dev")["dev"].group
    crossed = values_of(cascade, "dev")
    from sklearn.model_selection import GroupKFold

    for others, own in GroupKFold(5).split(gold, groups=group):
        one = fitted_cascade([part[others] for part in dev], gold[others], "macro_f1", TOLERANCE)
        assert np.array_equal(crossed[own], one.apply([part[own] for part in dev]))


def test_its_metrics_have_score_and_speed_beside_both_parts(store: Store, cascade: Artifact) -> None:
    values, run = read_json(cascade, "metrics.json"), cascade.run()
    dev, test = parts_in(store, "dev"), parts_in(store, "test")
    arms = ["task-only", "baseline + static-task-only"]
    assert set(run["beside"]) == set(values["beside"]) == set(arms)
    for place, arm in enumerate(arms):
        assert values["beside"][arm]["test"] == score("macro_f1", gold_of(False, "test"), test[place].argmax(axis=1))
    passed = Cascade(cascade.input("model").details["at_least"]).share(np.concatenate([dev[0], test[0]]))
    assert values["passed"] == passed
    assert 0.5 < passed < 1
    shallow = Artifact.open(mix([store.baseline, store.static], root=str(store.root))).run()[SPEED]
    encoders = [Artifact.open(uri).run()[SPEED] for uri in store.encoders]
    seconds = sum(one["cpu_seconds"] for one in encoders) + passed * shallow["cpu_seconds"]
    assert run[SPEED]["cpu_seconds"] == pytest.approx(seconds)
    assert run[SPEED]["bytes"] == shallow["bytes"] + sum(one["bytes"] for one in encoders)
    assert run["beside"] == {arms[0]: rate(together(encoders)), arms[1]: rate(shallow)}


def test_the_second_model_is_asked_about_the_others_only(
    store: Store, cascade: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, at_least = partly(store, tmp_path / "half", cascade.input("model"))
    predictor, _ = open_predictor(folder, "cpu")
    assert isinstance(predictor, Mixture)
    asked, of_second = list[str](), predictor.parts[1][0].predict

    def noted(texts: Any, *others: Any) -> Any:
        asked.extend(texts)
        return of_second(texts, *others)

    monkeypatch.setattr(predictor.parts[1][0], "predict", noted)
    found = predictor.predict(TEXTS)
    first, second = parts_in(store, "test")
    passed = first.max(axis=1) < at_least
    assert len(asked) == passed.sum()
    assert 0 < passed.sum() < len(TEXTS)
    assert np.abs(found - np.where(passed[:, None], second, first)).max() < 1e-6
    assert np.abs(first - second).min() > 1e-6  # so that the wrong one would be seen


def test_a_cascade_is_a_folder_as_any_mixture(store: Store, cascade: Artifact, tmp_path: Path) -> None:
    expected = values_of(cascade, "test")
    assert np.abs(answered(cascade.uri) - expected).max() < 1e-6
    again = Artifact.open(evaluate(cascade.input("model").uri, store.task, device="cpu", root=str(store.root)))
    assert again.details["test"] == cascade.details["test"]
    rows = [store.baseline, store.static, *store.encoders, cascade.uri]
    found = Artifact.open(report(rows, root=str(store.root)))
    names = [group["name"] for group in read_json(found, "report.json")["groups"]]
    assert "task-only × 2, else linear + static-task-only" in names
    folder, at_least = partly(store, tmp_path / "half", cascade.input("model"))
    found_kinds = set()
    for text, first in zip(TEXTS[:6], parts_in(store, "test")[0], strict=False):
        why = explained(str(folder), text, None, "", 3, "cpu")
        kinds = [part["model"] for part in why["parts"]]
        assert kinds == (["encoder"] if first.max() >= at_least else ["linear", "static"])
        found_kinds.add(kinds[0])
        assert sum(part["adds"] for part in why["parts"]) == pytest.approx(why["answer"], abs=1e-6)


def test_a_mixture_has_no_threshold(store: Store) -> None:
    found = Artifact.open(mix([store.baseline, store.static], root=str(store.root)))
    predictor, _ = open_predictor(located(found.uri)[0], "cpu")
    assert isinstance(predictor, Mixture)
    assert isinstance(predictor.weights, Weights)
    assert not {"tolerance", "at_least"} & set(found.input("model").details)
    assert "beside" not in found.run()
    assert not {"beside", "passed"} & set(read_json(found, "metrics.json"))


def test_names_of_cascades() -> None:
    row = ReportRow.of("static-bm25 + baseline, else bm25 × 5", "mixture")
    assert row == ReportRow("static-bm25 + linear, else bm25 × 5", "static + linear, else encoder × 5", "bm25")
    assert mixed(row.kind)
    assert mixed(ReportRow.of("baseline, else bm25", "mixture").kind)
    assert not mixed(ReportRow.of("bm25", "stage 2").kind)
    assert row.place > ReportRow.of("bm25 + static-bm25 + baseline", "mixture").place


def test_what_cannot_be_a_cascade_is_said_in_a_sentence(store: Store, numbers: Store) -> None:
    three = [store.baseline, store.static, store.encoders[0]]
    for metrics, tolerance, said in (
        (three, 0.005, "models of 3 arms; a cascade has two: mix others first"),
        (
            [numbers.baseline, numbers.static],
            0.005,
            "the task has the problem 'regression'; a cascade needs one label a text",
        ),
        (three[:2], -1.0, "tolerance is -1.0; expected a score from 0 to 1"),
    ):
        with pytest.raises(InputError, match=said):
            mix(metrics, first=True, tolerance=tolerance)
