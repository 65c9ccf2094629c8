"""Tasks whose texts may have several labels, or none: read, split, learned by models without a network, predicted."""

import csv
import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kfp import dsl
from scipy import sparse, special
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score

from research.fewer_labels import fewer_labels
from research.multitask.plan import load_together
from tests.published import write_bert
from tests.toys_several import BOTH, PLAIN, WORDS, rows, several, write
from tlm.artifacts.artifact import Artifact
from tlm.cli.command import flat
from tlm.cli.show import explain
from tlm.data.tasks.examples import SEVERAL, examples, read_splits
from tlm.data.tasks.labelled import Example
from tlm.data.tasks.metrics import above, fitted_thresholds
from tlm.data.tasks.splits import divided
from tlm.data.tasks.task import load_task
from tlm.errors import InputError
from tlm.evaluation.predict.models import located
from tlm.evaluation.predict.predict import answers, predict
from tlm.evaluation.predict.predictor import Weights, open_predictor
from tlm.evaluation.predict.predictor import fitted as mixed
from tlm.evaluation.predict.rows import InputRow
from tlm.evaluation.predict.written import columns, write_rows
from tlm.evaluation.report.kfp import log_scores, summary
from tlm.evaluation.report.report import report
from tlm.evaluation.score.baseline import baseline, static
from tlm.evaluation.score.evaluate import evaluate
from tlm.evaluation.score.imported import import_predictions
from tlm.evaluation.score.mix import mix
from tlm.serving.protocol import Asked, Served, answer_v1, answer_v2, metadata
from tlm.settings.options import Fields, Problem
from tlm.shallow.linear import Linear


def load(path: Path, root: Path, **chosen: Any) -> Artifact:
    return Artifact.open(flat(load_task)(str(path), root=str(root), **chosen), "task")


def labels_of(task: Artifact) -> list[list[str] | None]:
    return examples(task)["label"].to_pylist()


# ---- reading


@pytest.mark.parametrize("extension", ["jsonl", "parquet", "csv"])
def test_labels_are_lists_or_separated(tmp_path, extension):
    given = [("a cat", ["pet", "small", "pet"]), ("a cow", ["farm"]), ("a stone", []), ("a hen", ["farm", "small"])]
    for split in ("train", "dev", "test"):
        own = [(f"{text} of {split}", " ; ".join(labels) if extension == "csv" else labels) for text, labels in given]
        write(tmp_path / "task" / f"{split}.{extension}", own)
    task = load(tmp_path / "task", tmp_path, **({"label_separator": ";"} if extension == "csv" else {}))
    assert labels_of(task)[:4] == [["pet", "small"], ["farm"], [], ["farm", "small"]]
    assert task.details["labels"] == ["farm", "pet", "small"]
    assert (task.details["problem"], task.details["metric"]) == (SEVERAL, "micro_f1")
    assert task.counts["without labels"] == 3
    assert task.counts["labels"] == {"farm": 6, "pet": 3, "small": 6}
    gold = read_splits(task, "dev")["dev"].gold
    assert gold.tolist() == [[0, 1, 1], [1, 0, 0], [0, 0, 0], [1, 0, 1]]
    assert gold.dtype == np.int64


@pytest.mark.parametrize(("least", "most"), [(0, 1), (1, 1), (1, 2)])
def test_lists_that_all_hold_one_label_are_warned_of(tmp_path, capsys, least, most):
    given = [(text, labels[:most]) for text, labels in rows(60) if len(labels) >= least]
    load(write(tmp_path / "all.jsonl", given), tmp_path)
    assert ("warning: all texts have one label; if all always do" in capsys.readouterr().err) == (least == most)


def test_a_separator_is_named_in_the_key_and_nothing_else_is(tmp_path):
    path = write(tmp_path / "plain.csv", [(f"text {number}", "ab"[number % 2]) for number in range(40)])
    alone, separated = load(path, tmp_path), load(path, tmp_path, label_separator=";")
    assert "label_separator" not in alone.manifest.settings
    assert separated.manifest.settings["label_separator"] == ";"
    assert (alone.details["problem"], separated.details["problem"]) == ("classification", SEVERAL)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({3: "red"}, r"all\.jsonl:4: label 'red' is not a list, those of 49 other rows are"),
        ({key: [] for key in range(50)}, r"no training example has a label; expected at least two labels"),
        ({key: ["red"] * (key % 2) for key in range(50)}, r"no training example has a label other than 'red'; expec"),
        (
            {3: ["red", "Blue"]},
            r"all\.jsonl:4: labels 'Blue' \(1\) and 'blue' \(.*\) differ in spelling only",
        ),
    ],
)
def test_labels_that_do_not_fit_are_refused(tmp_path, changes, message):
    given = [(f"{text} {number}", changes.get(number, labels)) for number, (text, labels) in enumerate(rows(50))]
    with pytest.raises(InputError, match=message):
        load(write(tmp_path / "all.jsonl", given), tmp_path)


def test_settings_that_do_not_fit_are_refused(tmp_path):
    path = write(tmp_path / "all.jsonl", rows(50))
    with pytest.raises(InputError, match=r"the label is a list, but a regression requires numbers"):
        load(path, tmp_path, problem="regression")
    with pytest.raises(InputError, match=r"metric 'accuracy' does not fit: the task is one with 3 labels, several a"):
        load(path, tmp_path, metric="accuracy")
    with pytest.raises(InputError, match=r"paper:scierc has one label a text; leave label_separator empty"):
        load("paper:scierc", tmp_path, label_separator=";")


def test_a_bad_label_of_a_list_is_a_bad_row(tmp_path):
    given = [*rows(60), ("a text with nothing in a label", ["red", None]), ("one with an empty label", ["red", " "])]
    task = load(write(tmp_path / "all.jsonl", given), tmp_path)
    assert task.counts["rejected"] == {"empty": 1, "null": 1}


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sets(st.sampled_from("abcdefg")), min_size=20, max_size=60), st.integers(0, 3), st.booleans())
@example([{"a", "g"}, {"a"}, {"a"}, {"b", "g"}, {"b"}, {"b"}, {"c", "g"}, {"c"}, {"c"}, *[{"d"}] * 11], 11, False)
def test_train_has_every_label_and_splits_have_their_shares(drawn, seed, in_groups):
    found = [
        Example(None, row, f"{row}", "", None, "", "all", f"text {row}", f"g{row // 2}" * in_groups, tuple(sorted(own)))
        for row, own in enumerate(drawn)
    ]
    split = divided(found, {"test": 0.2, "dev": 0.1}, seed, by_label=True)
    train = {label for one in split if one.split == "train" for label in one.labels}
    assert train == {label for own in drawn for label in own}
    assert sorted(one.id for one in split) == sorted(one.id for one in found)
    assert Counter(one.split for one in split)["test"] <= 0.2 * len(found) + len(train) + 1


def test_rare_labels_are_in_test_as_often_as_their_share(tmp_path):
    given = [(f"text {row}", ["often", "rare"] if row % 10 == 0 else ["often", "other"]) for row in range(200)]
    table = examples(load(write(tmp_path / "all.jsonl", given), tmp_path)).to_pylist()
    assert Counter(row["split"] for row in table if "rare" in row["label"]) == {"train": 16, "dev": 2, "test": 2}


# ---- models without a network


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_each_label_has_a_model_of_its_own(kind):
    random = np.random.default_rng(0)
    features = kind(random.normal(size=(80, 5)))
    gold = (random.random((80, 3)) < 0.4).astype(np.int64)
    gold[:, 2] = 0
    chances = Linear.fit(features, gold, 3, 3.0, balanced=True).predict(features)
    for label in (0, 1):
        model = LogisticRegression(C=3.0, class_weight="balanced", solver="liblinear", random_state=0, max_iter=1000)
        assert chances[:, label] == pytest.approx(model.fit(features, gold[:, label]).predict_proba(features)[:, 1])
    assert not chances[:, 2].any()


@pytest.fixture(scope="module")
def task(tmp_path_factory) -> Artifact:
    root = tmp_path_factory.mktemp("several")
    return several(root)


@pytest.fixture(scope="module")
def scored(task) -> dict[str, str]:
    """Metrics of each model without a network, and of two together."""
    alone = {"linear": baseline(task.uri), "static": static(task.uri)}
    return {**alone, "mixture": mix([alone["static"], alone["linear"]])}


@pytest.mark.parametrize("kind", ["linear", "static", "mixture"])
def test_models_learn_several_labels(scored, kind):
    shown, matrix = dsl.Metrics(), dsl.ClassificationMetrics()
    log_scores(scored[kind], shown, matrix)
    found = shown.metadata
    assert min(found[f"test_{name}"] for name in ("micro_f1", "macro_f1", "example_f1")) > 0.8
    assert not matrix.metadata


@pytest.mark.parametrize("kind", ["linear", "static", "mixture"])
def test_test_is_decided_by_the_thresholds_of_the_model(scored, task, kind):
    predictor, _ = open_predictor(located(scored[kind])[0], "cpu")
    test = read_splits(task, "test")["test"]
    values = predictor.predict(test.texts)
    table = pq.read_table(Artifact.open(scored[kind]).path("predictions.parquet"), filters=[("split", "=", "test")])
    names = [[BOTH[place] for place in np.flatnonzero(row)] for row in above(values, predictor.thresholds)]
    assert table["predicted"].to_pylist() == names
    assert np.array(table["probabilities"].to_pylist()) == pytest.approx(values, abs=1e-12)
    assert np.ptp(values.sum(axis=1)) > 0.5  # each label by itself


def test_dev_of_another_task_is_decided_by_the_thresholds_of_the_model_too(scored, task, tmp_path):
    """No threshold was fitted to it, but for one text: half of its texts have got one label more."""
    given = [(f"{text} too", sorted({*own, BOTH[1]}) if n % 2 else own) for n, (text, own) in enumerate(rows(240, 9))]
    model, root = Artifact.open(scored["linear"]).input("model").uri, task.store.root
    parts = {"train": given[:160], "dev": given[160:200], "test": given[200:]}
    parts["dev"] += [(read_splits(task, "dev")["dev"].texts[0], [BOTH[0]])]
    for name, own in parts.items():
        write(tmp_path / f"other/{name}.jsonl", own)
    other = load(tmp_path / "other", Path(root))
    found = Artifact.open(evaluate(model, other.uri, root=root)).json("metrics.json")["splits"]
    for name, split in read_splits(other, "dev", "test").items():
        said = [[label in one["labels"] for label in BOTH] for one in predict(model, split.texts)]
        assert found[name]["micro_f1"] == pytest.approx(f1_score(split.gold, said, average="micro"))


def test_a_mixture_averages_probabilities_and_fits_thresholds_anew(scored, task):
    dev = read_splits(task, "dev")["dev"]
    parts = [open_predictor(located(scored[kind])[0], "cpu")[0].predict(dev.texts) for kind in ("static", "linear")]
    weights = mixed(parts, dev.gold)
    state = weights.state()
    tempered = [special.expit(special.logit(np.clip(part, 1e-12, 1 - 1e-12)) / t)
                for part, t in zip(parts, weights.temperatures, strict=True)]  # fmt: skip
    by_hand = sum(share * part for share, part in zip(weights.shares, tempered, strict=True))
    assert weights.apply(parts) == pytest.approx(by_hand, abs=1e-9)
    assert state["thresholds"] == pytest.approx(fitted_thresholds(by_hand, dev.gold).tolist(), abs=1e-9)
    assert Weights.read(json.loads(json.dumps(state))) == weights
    assert Artifact.open(scored["mixture"]).input("model").details["thresholds"] == pytest.approx(state["thresholds"])


def test_a_linear_model_of_published_embeddings_does_it_too(task, scored, tmp_path):
    write_bert(tmp_path / "tiny", [*PLAIN, *(word for words in WORDS.values() for word in words)])
    metrics = baseline(task.uri, features=str(tmp_path / "tiny"))
    predictor, _ = open_predictor(located(metrics)[0], "cpu")
    assert len(predictor.thresholds) == 3
    table = pq.read_table(Artifact.open(metrics).path("predictions.parquet"), filters=[("split", "=", "test")])
    answered = predict(metrics, read_splits(task, "test")["test"].texts)
    assert [sorted(row["labels"]) for row in answered] == table["predicted"].to_pylist()
    assert Artifact.open(mix([metrics, scored["linear"]])).details["arm"] == "embeddings-tiny + baseline"


def test_a_mixture_without_dev_examples_decides_at_a_half():
    assert mixed([np.zeros((0, 2))] * 2, np.zeros((0, 2), np.int64)).thresholds == (0.5, 0.5)


def test_the_report_shows_labels_by_frequency(scored, task):
    folder = Artifact.open(report([*scored.values()]))
    found = json.loads(folder.path("report.json").read_text())
    assert (found["task"]["metric"], found["confusion"], found["task"]["problem"]) == ("micro_f1", None, SEVERAL)
    counts = [row["support"] for row in found["classes"]["rows"]]
    assert {row["label"] for row in found["classes"]["rows"]} == set(BOTH)
    assert counts == sorted(counts, reverse=True)
    text = folder.path("report.md").read_text()
    assert "3 labels, several a text" in text
    assert "### F1 of each class on test" in text
    assert "example-F1" in text
    assert "of models of several labels a text are cross-fitted" in text


# ---- answers


@pytest.fixture(scope="module")
def answered(scored) -> tuple[Any, list[str], np.ndarray]:
    """A model, texts with two labels, one and none, and its probabilities."""
    predictor, _ = open_predictor(located(scored["linear"])[0], "cpu")
    texts = ["red crimson ruby blue azure navy", "blue azure navy", "plain dull words only"]
    return predictor, texts, predictor.predict(texts)


def test_predict_lists_labels_with_probabilities(scored, answered):
    _predictor, texts, values = answered
    found = list(predict(scored["linear"], texts))
    assert [set(row["labels"]) for row in found] == [{"red", "blue"}, {"blue"}, set()]
    for row, own in zip(found, values.tolist(), strict=True):
        assert row["probabilities"] == dict(zip(BOTH, own, strict=True))
        assert row["labels"] == sorted(row["labels"], key=lambda label: -row["probabilities"][label])
        assert row.keys() == {"row", "text", "labels", "probabilities"}


def test_explain_lists_the_labels_of_training_texts_as_people_write_them(scored):
    shown = explain(scored["linear"], "red crimson blue azure")
    assert "; " in shown
    assert "['" not in shown


def test_csv_has_the_labels_in_one_cell(answered):
    predictor, texts, _ = answered
    sink = io.StringIO()
    given = [*(InputRow(number, text) for number, text in enumerate(texts, 1)), InputRow(4, error="no text")]
    write_rows(answers(predictor, iter(given)), "csv", columns(predictor, False, 0.0), sink)
    head, *body = csv.reader(io.StringIO(sink.getvalue()))
    assert head == ["row", "text", "labels", *(f"p({label})" for label in BOTH), "error"]
    assert [set(filter(None, row[2].split("; "))) for row in body] == [{"red", "blue"}, {"blue"}, set(), set()]


def test_both_protocols_answer_with_several_labels(answered):
    predictor, texts, values = answered
    asked, served = Asked(texts, None), Served(predictor, "m", "1")
    first, *_ = answer_v1(values, asked, served)["predictions"]
    assert set(first["labels"]) == {"red", "blue"}
    assert first["probabilities"]["red"] == values[0, BOTH.index("red")]
    about = metadata(served)
    assert about["parameters"] == {"classes": BOTH, "thresholds": predictor.thresholds}
    outputs = answer_v2(values, asked, served)["outputs"]
    assert [(one["name"], one["datatype"], one["shape"]) for one in outputs] == [
        ("chosen", "BOOL", [3, 3]), ("probabilities", "FP64", [3, 3]),
    ]  # fmt: skip
    assert outputs[0]["data"] == above(values, predictor.thresholds).astype(bool).ravel().tolist()
    assert [{**one, "shape": [-1, 3]} for one in about["outputs"]] == [
        {key: value for key, value in one.items() if key != "data"} | {"shape": [-1, 3]} for one in outputs
    ]


# ---- other programs, and what does not work with several labels


@pytest.mark.parametrize("given", ["labels", "probabilities"])
def test_imported_predictions_may_be_lists_or_probabilities(task, tmp_path, given):
    table = [row for row in examples(task).to_pylist() if row["split"] in ("dev", "test")]
    lines = [
        {"id": row["id"], "label": row["label"]}
        if given == "labels"
        else {"id": row["id"], "probabilities": {label: 0.6 if label in row["label"] else 0.4 for label in BOTH}}
        for row in table
    ]
    file = tmp_path / "answers.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    other = Artifact.open(import_predictions(str(file), task.uri, name=f"other {given}"))
    found = summary(other.json("metrics.json"))
    assert found["test_micro_f1"] == found["dev_exact_match"] == 1
    file.write_text(file.read_text().replace('"label": [', '"label": ["pink", ').replace("0.6", "1.6"))
    with pytest.raises(InputError, match=r"'pink'; known are blue, green, red|are not all from 0 to 1"):
        import_predictions(str(file), task.uri, name="wrong")


def test_what_cannot_do_it_says_so(task, tmp_path):
    with pytest.raises(InputError, match=r"several labels a text, and fewer-labels works with one"):
        fewer_labels(task.uri, per_class=2)
    with pytest.raises(InputError, match=r"tasks that train together have one label a text; leave it empty"):
        load_together([str(tmp_path)], [], Fields(label_separator=";"), Problem(), str(tmp_path))
    path = write(tmp_path / "all.jsonl", rows(50))
    with pytest.raises(InputError, match=r"several labels a text, and training tasks together works with one"):
        load_together([str(path)], [], Fields(), Problem(), str(tmp_path))


def test_a_model_of_one_label_a_text_is_not_scored_on_several(task, scored, tmp_path):
    given = [(f"{text} {number}", ["red", "blue", "green"][number % 3]) for number, (text, _) in enumerate(rows(60))]
    single = baseline(load(write(tmp_path / "one.jsonl", given), Path(task.uri).parents[1]).uri)
    from tlm.evaluation.score.evaluate import evaluate

    with pytest.raises(InputError, match=r"gives the 3 classes .* but .* has several of the 3 classes"):
        evaluate(Artifact.open(single).input("model").uri, task.uri)


def test_a_list_column_keeps_its_type_in_parquet(task):
    assert pa.types.is_list(examples(task).schema.field("label").type)
