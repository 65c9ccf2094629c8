"""Tasks that a few labels would turn over, or whose columns were mistaken, are refused; real ones are not."""

import csv
import json

import pytest

from tests.tiny import refused, write_rows
from tlm.artifacts.artifact import Artifact
from tlm.cli.command import flat
from tlm.data.tasks.examples import examples
from tlm.data.tasks.task import load_task


def table(path, rows, fields=("text", "label")):
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerows([fields, *rows])
    return str(path)


def labelled(path, labels):
    return table(path, [(f"text number {number}", label) for number, label in enumerate(labels)])


def load(path, root, **settings):
    return Artifact.open(flat(load_task)(path, root=str(root), **settings), "task")


def test_one_fraction_among_whole_numbers_is_asked_about(tmp_path):
    path = labelled(tmp_path / "t.csv", ["1", "2", "3"] * 10 + ["2.5"])
    assert refused(load, path, tmp_path) == (
        f"{path}:32: label '2.5' has a fraction, the other 30 labels are whole numbers; fix it, or set problem to "
        "classification (each label is a class) or regression (numbers to predict)"
    )
    assert load(path, tmp_path, problem="regression").details["problem"] == "regression"
    assert load(path, tmp_path, problem="classification").details["labels"] == ["1", "2", "2.5", "3"]


def test_whole_numbers_are_a_regression_if_one_says_so(tmp_path):
    task = load(labelled(tmp_path / "t.csv", ["1", "2", "3"] * 10), tmp_path, problem="regression")
    assert (task.details["problem"], task.details["metric"], task.details["labels"]) == ("regression", "pearson", [])
    assert set(examples(task)["target"].to_pylist()) == {1.0, 2.0, 3.0}
    assert "t.csv:3: label 'no' is not a number" in refused(
        load, labelled(tmp_path / "t.csv", ["1", "no"] * 9), tmp_path, problem="regression"
    )


def test_one_word_among_targets_is_asked_about(tmp_path):
    path = labelled(tmp_path / "t.csv", [f"{number / 4}" for number in range(20)] + ["n/a-"])
    assert refused(load, path, tmp_path).startswith(f"{path}:22: label 'n/a-' is not a number, the other 20 labels are")


def test_numbers_that_floats_cannot_tell_apart_are_two_classes(tmp_path):
    large = ["9007199254740992", "9007199254740993"]
    assert load(labelled(tmp_path / "t.csv", large * 10), tmp_path).details["labels"] == large


@pytest.mark.parametrize(("one", "other"), [("pos", "Pos"), ("1", "1.0"), ("straße", "STRASSE"), ("pos", "pos\u200b")])
def test_labels_that_differ_in_case_only_are_asked_about(tmp_path, one, other):
    path = labelled(tmp_path / "t.csv", [one, "7"] * 15 + [other, other])
    shown = other.replace("\u200b", r"\u200b")
    assert refused(load, path, tmp_path) == (
        f"{path}:32: labels '{shown}' (2) and '{one}' (15) differ in spelling only; unify them, or set problem to "
        "classification to keep them all"
    )
    assert len(load(path, tmp_path, problem="classification").details["labels"]) == 3


def test_all_labels_that_differ_in_case_only_are_named_at_once(tmp_path):
    path = labelled(tmp_path / "t.csv", ["pos", "neg"] * 15 + ["NEG", "NEG", "Pos"])
    told = refused(load, path, tmp_path)
    assert told.startswith(f"{path}:32: labels 'NEG' (2) and 'neg' (15), 'Pos' (1) and 'pos' (15) differ in spelling")


@pytest.mark.parametrize(
    ("labels", "doubtful"),
    [
        (["mail; edit", "web", "mail", "edit; web"], "mail; edit"),
        (["red|blue", "blue|green", "green"], ""),  # red has no other label
        (["red|blue", "blue|red", "green|red", "green"], "green|red"),
        (["Salem, OR", "Salem, ME", "Bath, ME", "Bath, OR"], ""),
        (["['a', 'b']", "['c']"], "['a', 'b']"),
        (["mail#web", "mail", "web", "C#"], "mail#web"),  # of doccano
        (["mail", '{"choices": ["mail", "web"]}'], '{"choices": ["mail", "web"]}'),  # of Label Studio
        (["news, sport", "news, weather", "other"], ""),
        (["wait;", "go;", "stop"], ""),
        (["[other]", "news"], ""),
    ],
)
def test_several_labels_in_one_cell_are_asked_about(tmp_path, labels, doubtful):
    path = labelled(tmp_path / "t.csv", labels * 10)
    if doubtful:
        line = 2 + labels.index(doubtful)
        assert refused(load, path, tmp_path).startswith(f"{path}:{line}: label '{doubtful}' looks like several; write")
    assert load(path, tmp_path, problem="classification").details["labels"] == sorted(labels)
    assert load(path, tmp_path, label_separator=";").details["problem"] == "several labels"


def test_texts_that_are_labelled_in_two_ways_are_counted(tmp_path, capsys):
    rows = [(f"text number {number}", "ab"[number % 2]) for number in range(40)]
    load(table(tmp_path / "t.csv", [*rows, *rows[:5]]), tmp_path)
    assert "different labels" not in capsys.readouterr().err
    load(table(tmp_path / "t.csv", [*rows, ("text number 0", "b"), ("text number 1", "a")]), tmp_path)
    assert (
        "warning: 2 texts are in several rows with different labels; `tlm label-errors` helps"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_a_text_given_as_label_is_named(tmp_path, suffix):
    rows = [(f"text number {number}", f"title {number}", ["news", "sport"][number % 2]) for number in range(40)]
    path = tmp_path / f"t.{suffix}"
    if suffix == "csv":
        table(path, rows, ("text", "label", "category"))
    else:
        path.write_text(
            "".join(json.dumps(dict(zip(("text", "label", "category"), row, strict=True))) + "\n" for row in rows)
        )
    assert refused(load, str(path), tmp_path) == (
        f"{path}: field 'label' has 40 different values in 40 rows, so it looks like text, not labels; did you mean "
        "label_field=category? if they are classes, set problem=classification"
    )
    assert load(str(path), tmp_path, label_field="category").details["labels"] == ["news", "sport"]


def test_numbers_that_hardly_repeat_are_no_classes(tmp_path):
    path = labelled(tmp_path / "t.csv", [str(number * 7) for number in range(40)])
    expected = "if they are numbers to predict, set problem=regression; if they are classes, problem=classification"
    assert refused(load, path, tmp_path).endswith(expected)


def test_a_label_given_as_text_is_named(tmp_path):
    rows = [(f"text number {number}", ["news", "sport"][number % 2], "ab"[number % 3 == 0]) for number in range(40)]
    path = table(tmp_path / "t.csv", rows, ("text", "category", "label"))
    assert refused(load, path, tmp_path, text_field="category") == (
        f"{path}: field 'category' has 2 different values in 40 rows, so it looks like labels, not text; did you mean "
        "text_field=text? if it is text, set problem to classification or regression"
    )
    assert "text_field and label_field are both 'label'" in refused(load, path, tmp_path, text_field="label")


def test_texts_that_do_repeat_are_taken_by_naming_the_problem(tmp_path):
    rows = [(f"words of request {number % 30}", "ab"[number % 2]) for number in range(400)]
    path = table(tmp_path / "t.csv", rows, ("text", "label"))
    assert "so it looks like labels, not text; if it is text, set problem to" in refused(load, path, tmp_path)
    load(path, tmp_path, problem="classification")


def test_what_the_labels_were_taken_for_is_said_also_when_the_task_is_found(tmp_path, capsys):
    for _ in range(2):
        load(labelled(tmp_path / "c.csv", ["pos", "neg", "pos"] * 10), tmp_path)
        assert capsys.readouterr().err.endswith("load-task: classification, 2 classes: neg (10), pos (20)\n")
        load(labelled(tmp_path / "r.csv", [f"{number / 4}" for number in range(20)]), tmp_path)
        assert capsys.readouterr().err.endswith("load-task: regression, 20 targets from 0 to 4.75\n")
    load(labelled(tmp_path / "m.csv", [str(number % 14) for number in range(280)]), tmp_path)
    assert capsys.readouterr().err.endswith(
        " 14 classes: 0 (20), 1 (20), 10 (20), 11 (20), 12 (20), 13 (20), 2 (20), 3 (20), 4 (20), 5 (20) and 4 more\n"
    )


def test_a_problem_that_is_none_and_one_of_a_known_task(tmp_path):
    path = labelled(tmp_path / "t.csv", ["a", "b"] * 9)
    assert "unknown problem 'classifcation'; did you mean 'classification'?" in refused(
        load, path, tmp_path, problem="classifcation"
    )
    assert "paper:scierc is a classification; leave problem at auto" in refused(
        load, "paper:scierc", tmp_path, files=str(tmp_path), problem="regression"
    )


@pytest.mark.parametrize("answer", ["reject", "ignore"])
def test_rows_that_were_not_accepted_in_prodigy_give_no_labels(tmp_path, answer):
    rows = [{"text": f"text {number}", "label": "ab"[number % 2], "answer": "accept"} for number in range(40)]
    assert load(write_rows(tmp_path / "own.jsonl", [*rows, rows[0] | {"answer": answer}]), tmp_path)  # not Prodigy's
    rows = [{**row, "_task_hash": 7} for row in rows]
    assert load(write_rows(tmp_path / "good.jsonl", rows), tmp_path)
    path = write_rows(tmp_path / "t.jsonl", [*rows, rows[0] | {"answer": answer}])
    assert refused(load, path, tmp_path) == (
        f"{path}:41: Prodigy's answer is '{answer}', so the row does not give a label; keep the accepted rows "
        "(jq -c 'select(.answer == \"accept\")')"
    )
    answers = [row | {"answer": ("accept", answer)[number % 2]} for number, row in enumerate(rows)]
    assert load(write_rows(tmp_path / "a.jsonl", answers), tmp_path, label_field="answer")  # the label itself
