"""Predictions of any other model: what a file may look like, what is scored, and what is refused at which line."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.toys import Row, make, make_task, read_json, words
from tests.toys_several import several
from tlm.artifacts.artifact import Artifact
from tlm.data.reading.records import BadRow
from tlm.data.tasks.task import load_task
from tlm.errors import InputError
from tlm.evaluation.predict.files import predict_command
from tlm.evaluation.report.report import report
from tlm.evaluation.score.baseline import baseline
from tlm.evaluation.score.imported import _chances, import_predictions
from tlm.settings.options import Fields

LABELS = ["blue", "green", "red"]
SPLITS = ["train"] * 30 + ["dev"] * 8 + ["test"] * 12
Table = list[dict[str, Any]]


def rows_of(numbers: bool = False) -> list[Row]:
    return [
        (f"{text} {LABELS[index % 3]}", None, index / 7 if numbers else LABELS[index % 3], split)
        for index, (text, split) in enumerate(zip(words(50, 1), SPLITS, strict=True))
    ]


def task_of(root: Path, numbers: bool = False) -> str:
    return make_task(root, rows_of(numbers), "pearson" if numbers else "macro_f1", None if numbers else LABELS)


def renamed(root: Path, ids: Sequence[str]) -> str:
    """The task with other ids."""
    task = Artifact.open(task_of(root))

    def write(draft: Any) -> None:
        for name in ("examples", "rejected", "leaks"):
            table = pq.read_table(task.path(f"{name}.parquet"))
            if name == "examples":
                table = table.set_column(table.column_names.index("id"), "id", pa.array(ids))
            pq.write_table(table, draft.folder / f"{name}.parquet")
            draft.rows[f"{name}.parquet"] = table.num_rows
        draft.details.update(task.details)

    return make("task", root, write, {"ids": list(ids)})


def answers() -> Table:
    """One for each dev and test example; a third of them are wrong."""
    return [{"id": f"e{index}", "label": LABELS[(index + (index % 3 == 0)) % 3]} for index in range(30, 50)]


def test_reading_predictions_shows_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tlm.progress.LOG_EVERY_SECONDS", 0.0)
    (tmp_path / "p.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in answers()))
    import_predictions(str(tmp_path / "p.jsonl"), task_of(tmp_path), name="other")
    assert "reading predictions: 20 rows" in capsys.readouterr().err


def chances(sure: float = 0.5) -> Table:
    """Probabilities that agree with `answers`."""
    rest = (1 - sure) / 2
    return [
        {"id": row["id"], "probabilities": {label: sure if label == row["label"] else rest for label in LABELS}}
        for row in answers()
    ]


def file_of(root: Path, rows: Table, name: str = "answers.jsonl") -> str:
    root.mkdir(exist_ok=True)
    path = root / name
    if name.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif name.endswith((".csv", ".tsv")):
        with path.open("w", encoding="utf-8", newline="") as stream:
            writer = csv.DictWriter(stream, list(rows[0]), delimiter="\t" if name.endswith("tsv") else ",")
            writer.writeheader()
            writer.writerows(rows)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def imported(root: Path, rows: Table, file: str = "answers.jsonl", task: str = "", **settings: Any) -> Artifact:
    given = {"name": "oracle", "root": str(root), **settings}
    return Artifact.open(import_predictions(file_of(root, rows, file), task or task_of(root), **given))


def table_of(metrics: Artifact) -> Table:
    return pq.read_table(metrics.path("predictions.parquet")).to_pylist()


def refused(root: Path, rows: Table, said: str, task: str = "", **settings: Any) -> None:
    with pytest.raises(InputError, match=said) as caught:
        imported(root, rows, task=task, **settings)
    assert "\n" not in str(caught.value)
    assert not (root / "metrics").exists() or not list((root / "metrics").rglob("manifest.json"))


# What a file may look like


@pytest.mark.parametrize("name", ["answers.jsonl", "answers.csv", "answers.tsv", "answers.parquet"])
def test_labels_alone_are_scored(name: str, tmp_path: Path) -> None:
    found = imported(tmp_path, answers(), name)
    rows = table_of(found)
    assert [row["predicted"] for row in rows] == [row["label"] for row in answers()]
    assert [row["gold"] for row in rows] == [row[2] for row in rows_of()[30:]]
    assert all(row["probabilities"] == [float(row["predicted"] == label) for label in LABELS] for row in rows)
    test = read_json(found, "metrics.json")["splits"]["test"]
    assert test["accuracy"] == pytest.approx(8 / 12)
    assert test["n"] == 12
    assert {name: found.details[name] for name in ("arm", "seed", "stage", "mlm_loss", "task")} == {
        "arm": "oracle", "seed": 0, "stage": "imported", "mlm_loss": None, "task": "toy",
    }  # fmt: skip
    assert list(found.manifest.inputs) == ["task"]


@pytest.mark.parametrize("name", ["answers.jsonl", "answers.parquet"])
def test_probabilities_are_kept_and_add_up_to_1(name: str, tmp_path: Path) -> None:
    rows = chances()
    for row in rows:
        row["probabilities"] = {label: 3 * chance for label, chance in row["probabilities"].items()}
    found = table_of(imported(tmp_path, rows, name))
    expected = [[row["probabilities"][label] / 3 for label in LABELS] for row in rows]
    assert np.allclose([row["probabilities"] for row in found], expected)
    assert [row["predicted"] for row in found] == [row["label"] for row in answers()]


@pytest.mark.parametrize("label", ["blue", None, ""])
def test_the_label_decides_and_missing_probabilities_are_zero(label: str | None, tmp_path: Path) -> None:
    """Models with a threshold of their own answer with another label than the likeliest."""
    rows = [{**row, "label": label, "probabilities": {"red": 0.2, "green": 0.6}} for row in answers()]
    found = table_of(imported(tmp_path, rows))
    assert {row["predicted"] for row in found} == {label or "green"}
    assert np.allclose([row["probabilities"] for row in found], [0, 0.75, 0.25])


def test_true_and_false_are_labels_as_they_are_for_a_task(tmp_path: Path) -> None:
    texts = [{"id": f"e{n}", "text": f"text {n} {n % 2}", "label": n % 2 == 0} for n in range(60)]
    task = load_task(file_of(tmp_path / "in", texts, "task.jsonl"), fields=Fields(id_field="id"), root=str(tmp_path))
    rows = [{"id": row["id"], "label": row["label"]} for row in texts]
    assert imported(tmp_path, rows, task=task).details["test"] == 1


@pytest.mark.parametrize("name", ["answers.jsonl", "answers.csv"])
def test_lists_of_labels_decide_over_probabilities(name: str, tmp_path: Path) -> None:
    """Of several labels a text, thresholds are seldom 0.5; a csv has them as `tlm predict` writes them."""
    task = several(tmp_path)
    rows: Table = []
    for one in pq.read_table(task.path("examples.parquet"), columns=["id", "label"]).to_pylist():
        said = "; ".join(one["label"]) if name.endswith("csv") else one["label"]
        chances = {label: 0.4 if label in one["label"] else 0.1 for label in task.details["labels"]}
        columns = {f"p({label})": chance for label, chance in chances.items()}
        rows.append({"id": one["id"], "labels": said} | (columns if type(said) is str else {"probabilities": chances}))
    found = imported(tmp_path / "store", rows, name, task.uri, label_field="labels")
    assert (found.details["dev"], found.details["test"]) == (1, 1)
    assert {max(row["probabilities"]) for row in table_of(found)} == {0.1, 0.4}


def test_of_many_ids_a_few_are_named(tmp_path: Path) -> None:
    task = several(tmp_path, 2000)
    with pytest.raises(InputError, match=r"known are .{300,900} more$"):
        imported(tmp_path / "store", [{"id": "?", "label": ["red"]}], task=task.uri)


@pytest.mark.parametrize(("form", "likeliest"), [("csv", 0), ("csv", 3), ("jsonl", 0)])
def test_what_tlm_predict_writes_is_read(form: Any, likeliest: int, tmp_path: Path) -> None:
    """With the ids beside it: the scores and probabilities are those of the model itself."""
    task = task_of(tmp_path)
    model = Artifact.open(baseline(task, root=str(tmp_path)))
    file_of(tmp_path, [{"text": row[0]} for row in rows_of()[30:]], "texts.jsonl")
    source, to = (str(tmp_path / name) for name in ("texts.jsonl", f"out.{form}"))
    predict_command(model.uri, source=source, to=to, to_format=form, likeliest=likeliest)
    with Path(to).open(encoding="utf-8", newline="") as stream:
        rows: Table = [*csv.DictReader(stream)] if form == "csv" else [json.loads(line) for line in stream]
    assert ("p(blue)" in rows[0]) == (form == "csv" and not likeliest)
    rows = [{**row, "name": f"e{number}"} for number, row in enumerate(rows, 30)]
    found = imported(tmp_path, rows, f"named.{form}", task, id_field="name")
    expected = table_of(model)
    assert np.allclose([row["probabilities"] for row in table_of(found)], [row["probabilities"] for row in expected])
    assert found.details["test"] == model.details["test"]


@pytest.mark.parametrize("labels", [("+", "-"), (["+", "-1"], ["-1"])])
def test_labels_and_ids_that_could_begin_a_formula_are_read_from_the_csv_of_tlm_predict(
    labels: Any, tmp_path: Path
) -> None:
    texts = [{"id": f"-{n}a", "text": f"text {n} {'ab'[n % 2]}", "label": labels[n % 2]} for n in range(90)]
    source, to, fields = file_of(tmp_path / "in", texts, "task.jsonl"), tmp_path / "out.csv", Fields(id_field="id")
    model = Artifact.open(baseline(load_task(source, fields=fields, root=str(tmp_path)), root=str(tmp_path)))
    predict_command(model.uri, source=source, to=str(to), keep=["id"])
    assert "'-1a" in to.read_text(encoding="utf-8")
    several = isinstance(labels[0], list)
    found = import_predictions(
        str(to), model.input("task").uri, name="own", label_field="labels" if several else "label", root=str(tmp_path)
    )
    assert Artifact.open(found).details["test"] == model.details["test"]


@pytest.mark.parametrize("name", ["answers.jsonl", "answers.csv", "answers.parquet"])
def test_numbers_are_scored(name: str, tmp_path: Path) -> None:
    task = task_of(tmp_path, numbers=True)
    rows = [{"key": f"e{index}", "value": (index / 7) ** 2} for index in range(30, 50)]
    found = imported(tmp_path, rows, name, task, id_field="key", label_field="value")
    assert [row["predicted"] for row in table_of(found)] == pytest.approx([row["value"] for row in rows])
    gold = np.arange(38, 50) / 7
    assert found.details["test"] == pytest.approx(np.corrcoef(gold, gold**2)[0, 1])


def test_rows_of_train_are_ignored(tmp_path: Path) -> None:
    """Whatever they say."""
    train: Table = [{"id": "e3", "label": "blue"}, {"id": "e3", "label": "purple"}, {"id": "e4"}]
    found = imported(tmp_path, train + answers())
    assert found.content == imported(tmp_path / "other", answers()).content


def test_any_order_of_rows_gives_the_same_content(tmp_path: Path) -> None:
    rows = chances()
    first, second = imported(tmp_path, rows), imported(tmp_path / "other", rows[::-1])
    assert first.content == second.content
    assert table_of(first) == table_of(second)
    assert imported(tmp_path, chances(0.6), "others.jsonl").content != first.content


def test_ids_that_are_numbers_name_the_example_with_that_text(tmp_path: Path) -> None:
    task = renamed(tmp_path, [str(number) for number in range(50)])
    rows = [{**row, "id": int(row["id"][1:])} for row in answers()]
    assert imported(tmp_path, rows, task=task).details["test"] == imported(tmp_path, answers()).details["test"]


# What is refused


@pytest.mark.parametrize("missing", [30, 41])
def test_a_missing_example_is_named(missing: int, tmp_path: Path) -> None:
    rows = [row for row in answers() if row["id"] != f"e{missing}"]
    split = "8 dev" if missing == 30 else "12 test"
    refused(tmp_path, rows, rf"answers.jsonl has no prediction for 1 of the {split} examples.* 'e{missing}'")


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "repeated id": ({"id": "e33", "label": "red"}, "id 'e33' has a prediction in an earlier row"),
    "unknown id": ({"id": "e4O", "label": "red"}, "id 'e4O' is not in the task; did you mean 'e4"),
    "no id": ({"label": "red"}, "missing field, no field 'id'"),
    "a list for an id": ({"id": ["e35"], "label": "red"}, "not a string"),
    "unknown label": ({"id": "e35", "label": "purple"}, "unknown label, 'purple'; known are blue, green, red"),
    "no label": ({"id": "e35"}, "missing field, no field 'label'"),
    "null": ({"id": "e35", "label": None}, "null, field 'label' is null"),
    "unknown label with a probability": (
        {"id": "e35", "probabilities": {"blue": 1, "Red": 0}},
        "'Red'; did you mean 'red'",
    ),
    "too few": ({"id": "e35", "probabilities": {"blue": 0.4}}, "a label without one may be likelier than blue"),
    "negative": ({"id": "e35", "probabilities": {"blue": 1.5, "red": -0.5}}, "are not 0 or more"),
    "all zero": ({"id": "e35", "probabilities": {"blue": 0, "red": 0}}, "are not 0 or more"),
    "not a number": ({"id": "e35", "probabilities": {"blue": "much"}}, "not a number, field 'blue' is 'much'"),
    "NaN": ({"id": "e35", "probabilities": {"blue": float("nan")}}, "not a number, field 'blue' is nan"),
    "infinite": ({"id": "e35", "probabilities": {"blue": float("inf")}}, "not a number, field 'blue' is inf"),
    "too large": ({"id": "e35", "probabilities": {"blue": 10**400}}, "not a number, field 'blue' is 1000"),
    "too large a sum": ({"id": "e35", "probabilities": {"blue": 1e308, "red": 1.5e308}}, "no probabilities"),
    "a list for a number": ({"id": "e35", "probabilities": {"blue": [1]}}, "not a number"),
    "null for a number": ({"id": "e35", "probabilities": {"blue": None}}, "null, field 'blue' is null"),
    "true for a number": ({"id": "e35", "probabilities": {"blue": True}}, "not a number, field 'blue' is True"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_row_is_refused_with_its_line(case: str, tmp_path: Path) -> None:
    row, said = BAD[case]
    rows = answers()
    rows[5] = row
    refused(tmp_path, rows, rf"answers\.jsonl:6: .*{said}")


@pytest.mark.parametrize(
    "given",
    [{"x": 1.0}, {"label 7": -1.0}, {f"label {number}": 1e-9 for number in range(399)}],
)
def test_of_many_labels_a_sentence_names_few(given: dict[str, float]) -> None:
    with pytest.raises(BadRow) as caught:
        _chances(given, [f"label {number}" for number in range(400)])
    assert sum(map(len, caught.value.args)) < 500


def test_many_labels_are_looked_up_and_not_searched_for() -> None:
    class Labels(list[str]):
        def __contains__(self, label: object) -> bool:
            raise AssertionError("this takes labels × labels steps for each row")

    assert _chances({"a": 1.0, "b": 3.0}, Labels(["a", "b", "c"])) == [0.25, 0.75, 0.0]


@pytest.mark.parametrize("text", ["", "nan", "inf", "-1", "x"])
def test_a_bad_column_is_refused_with_its_line(text: str, tmp_path: Path) -> None:
    rows = [{"id": row["id"], "p(blue)": "0.5", "p(red)": "0.5", "p(green)": "0"} for row in answers()]
    rows[4]["p(red)"] = text
    with pytest.raises(InputError, match=r"answers\.csv:6: "):
        imported(tmp_path, rows, "answers.csv")


@pytest.mark.parametrize("value", ["much", None, float("nan"), 1e200, "1e200", 10**400, [1], True], ids=range(8))
def test_a_bad_number_is_refused_with_its_line(value: Any, tmp_path: Path) -> None:
    rows: Table = [{"id": f"e{index}", "label": index} for index in range(30, 50)]
    rows[19]["label"] = value
    refused(tmp_path, rows, r"answers\.jsonl:20: ", task_of(tmp_path, numbers=True))


@pytest.mark.parametrize("line", ['{"id": "e35", ', '["e35", "red"]', '{"id": "e35", "id": "e35", "label": "red"}'])
def test_a_row_that_is_no_json_object_is_refused_with_its_line(line: str, tmp_path: Path) -> None:
    path = Path(file_of(tmp_path, answers()))
    lines = path.read_text().splitlines()
    lines[5] = line
    path.write_text("\n".join(lines))
    with pytest.raises(InputError, match=r"answers\.jsonl:6: .*; fix the row"):
        import_predictions(str(path), task_of(tmp_path), name="oracle", root=str(tmp_path))


@pytest.mark.parametrize("same", [(40, 45), (35, 45), (3, 45), (3, 35)], ids=str)
def test_ids_that_repeat_in_the_task_are_refused(same: tuple[int, int], tmp_path: Path) -> None:
    """In one split or in two: it is not known which of the examples a row is of."""
    ids = [f"e{number}" for number in range(50)]
    ids[same[1]] = ids[same[0]]
    rows = [{**row, "id": ids[number]} for number, row in enumerate(answers(), 30)]
    once = list({row["id"]: row for row in rows}.values())
    for given in (rows, once):
        refused(tmp_path, given, r"ids of .* repeat", renamed(tmp_path, ids))


def test_ids_that_repeat_in_train_alone_do_no_harm(tmp_path: Path) -> None:
    task = renamed(tmp_path, ["e0"] * 30 + [f"e{number}" for number in range(30, 50)])
    assert imported(tmp_path, answers(), task=task).details["test"] == imported(tmp_path, answers()).details["test"]


def test_a_file_must_be_one_with_rows_and_ids(tmp_path: Path) -> None:
    task = task_of(tmp_path)
    for name in ("one.jsonl", "two.jsonl"):
        file_of(tmp_path / "files", answers(), name)
    file_of(tmp_path, [], "empty.jsonl")
    for path, said in (
        (str(tmp_path / "files"), "is 2 files; expected one file of predictions"),
        (str(tmp_path / "files" / "*.jsonl"), "is 2 files; expected one"),
        (str(tmp_path / "none.jsonl"), "none.jsonl"),
        (str(tmp_path / "empty.jsonl"), "is empty"),
        ("", "a path is missing"),
    ):
        with pytest.raises(InputError, match=said):
            import_predictions(path, task, name="oracle", root=str(tmp_path))
    refused(tmp_path, answers(), "has no field 'ids'; .* did you mean 'id'", id_field="ids")


@pytest.mark.parametrize("name", ["", "  ", "\n"])
def test_a_name_is_needed(name: str, tmp_path: Path) -> None:
    refused(tmp_path, answers(), "name is empty; give the model a name", name=name)


def test_control_characters_of_a_name_are_spelled_out_because_no_picture_can_hold_them(tmp_path: Path) -> None:
    found = imported(tmp_path, answers(), name=" a\x0bb ")
    assert found.manifest.settings["arm"] == r"a\x0bb"


def test_a_seed_below_zero_is_refused(tmp_path: Path) -> None:
    refused(tmp_path, answers(), "seed is -1; expected 0 or more", seed=-1)


# Reports


def test_two_seeds_of_a_name_are_one_row_of_the_report(tmp_path: Path) -> None:
    first = imported(tmp_path, answers())
    wrong = [{**row, "label": "red"} for row in answers()]
    second = imported(tmp_path, wrong, "second.jsonl", seed=1)
    other = imported(tmp_path, wrong, "second.jsonl", name="another <b>")
    linear = baseline(task_of(tmp_path), root=str(tmp_path))
    uris = [first.uri, second.uri, other.uri, linear]
    found = Artifact.open(report(uris, root=str(tmp_path)))
    groups = {group["name"]: group for group in read_json(found, "report.json")["groups"]}
    assert {name: group["seeds"] for name, group in groups.items()} == {
        "linear": [0], "oracle": [0, 1], "another <b>": [0],
    }  # fmt: skip
    assert groups["oracle"]["test"]["values"] == [first.details["test"], second.details["test"]]
    assert first.details["test"] != second.details["test"]
    assert "oracle" in found.path("report.md").read_text(encoding="utf-8")
    assert "another <b>" not in found.path("report.html").read_text(encoding="utf-8")


def test_what_is_called_as_one_of_our_models_does_not_take_its_place(tmp_path: Path) -> None:
    """All wrong, and called linear: the linear model is still the one that others are compared with."""
    good = imported(tmp_path, [{"id": f"e{index}", "label": LABELS[index % 3]} for index in range(30, 50)], name="good")
    bad = [{"id": f"e{index}", "label": LABELS[(index + 1) % 3]} for index in range(30, 50)]
    other = imported(tmp_path, bad, "bad.jsonl", name="linear")
    linear = baseline(task_of(tmp_path), root=str(tmp_path))
    told = read_json(Artifact.open(report([good.uri, other.uri, linear], root=str(tmp_path))), "report.json")
    names = [group["name"] for group in told["groups"]]
    assert sorted(names) == ["good", "linear", "linear (imported)"]
    (found,) = [one for one in told["differences"] if one["second"] == "good"]
    assert found["first"] == "linear"
    assert found["mean"] == pytest.approx(Artifact.open(linear).details["test"] - good.details["test"])


def test_two_files_of_one_name_and_seed_are_not_two_seeds(tmp_path: Path) -> None:
    first = imported(tmp_path, answers())
    second = imported(tmp_path, [{**row, "label": "red"} for row in answers()], "second.jsonl")
    with pytest.raises(InputError, match=r"^2 imported predictions are called 'oracle' and have seed 0; leave all but"):
        report([first.uri, second.uri], root=str(tmp_path))
    assert report([first.uri, first.uri], root=str(tmp_path)), "given twice, it counts once"
