"""The task: three splits of labelled examples, their problem and metric, their leaks."""

import csv
import itertools
import json
import os
import re
from collections import Counter
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tiny import refused
from tlm.artifacts.artifact import Artifact
from tlm.cli.command import flat
from tlm.data.reading.files import RawFile
from tlm.data.tasks.examples import examples
from tlm.data.tasks.labelled import Example, is_regression
from tlm.data.tasks.splits import assign, groups_of
from tlm.data.tasks.task import load_task
from tlm.errors import InputError
from tlm.evaluation.report.lineage import dropped
from tlm.evaluation.score.baseline import baseline
from tlm.evaluation.score.evaluate import evaluate
from tlm.settings.options import Fields

SPLITS = {
    "train": [("red apple", "fruit"), ("old oak", "tree"), ("ripe pear", "fruit"), ("tall fir", "tree")],
    "dev": [("green fig", "fruit")],
    "test": [("young elm", "tree"), ("sweet plum", "fruit")],
}


def write(path, rows, **names):
    """Rows (text, label) in the format of `path`'s extension."""
    path.parent.mkdir(parents=True, exist_ok=True)
    records = [dict(zip(names.get("fields", ("text", "label")), row, strict=True)) for row in rows]
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(records), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
    else:
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, records[0], delimiter="\t" if path.suffix == ".tsv" else ",")
            writer.writeheader()
            writer.writerows(records)
    return path


def folder(path, splits, extension="jsonl", **names):
    for split, rows in splits.items():
        write(path / f"{split}.{extension}", rows, **names)
    return str(path)


def load(path, root, **settings):
    return Artifact.open(flat(load_task)(str(path), root=str(root), **settings), "task")


def pairs(task, split):
    return [(row["text"], row["label"]) for row in examples(task).to_pylist() if row["split"] == split]


@pytest.mark.parametrize("extension", ["jsonl", "csv", "tsv", "parquet"])
@pytest.mark.parametrize("dev", ["dev", "valid", "validation", "VAL"])
def test_a_folder_has_three_splits(tmp_path, extension, dev):
    names = {"train": "train", "dev": dev, "test": "test"}
    path = folder(tmp_path / "plants", {names[split]: rows for split, rows in SPLITS.items()}, extension)
    task = load(path, tmp_path)
    assert {split: pairs(task, split) for split in SPLITS} == SPLITS
    assert task.details == {
        "name": "plants", "problem": "classification", "labels": ["fruit", "tree"], "metric": "macro_f1", "pair": False,
    }  # fmt: skip
    assert task.counts == {
        "read": 7, "train": 4, "dev": 1, "test": 2, "labels": {"fruit": 4, "tree": 3}, "leaks": 0, "rejected": {},
    }  # fmt: skip
    row = examples(task).to_pylist()[0]
    assert row == {
        "id": f"train.{extension}:{1 if extension in ('jsonl', 'parquet') else 2}",
        "text": "red apple", "text_pair": None, "label": "fruit", "target": None, "split": "train",
    }  # fmt: skip


def test_files_of_a_folder_that_are_no_split_are_named(tmp_path, capsys):
    path = folder(tmp_path / "t", {**SPLITS, "train.old": SPLITS["train"]})
    assert examples(load(path, tmp_path))["split"].to_pylist() == ["train"] * 4 + ["dev"] + ["test"] * 2
    assert f"{path}: not in train, dev or test: train.old.jsonl" in capsys.readouterr().err


def test_examples_stand_in_order_train_dev_test(tmp_path):
    task = load(folder(tmp_path / "t", SPLITS), tmp_path)
    assert examples(task)["split"].to_pylist() == ["train"] * 4 + ["dev"] + ["test"] * 2
    assert examples(task).schema.field("target").type == pa.float64()
    drawn = load(write(tmp_path / "all.jsonl", numbered(20, ["a", "b"])), tmp_path)
    assert examples(drawn)["split"].to_pylist() == ["train"] * 16 + ["dev"] * 2 + ["test"] * 2


def test_numbered_parts_of_a_split_are_one(tmp_path):
    parts = {"train-00000-of-00002": SPLITS["train"][:2], "train-00001-of-00002": SPLITS["train"][2:]}
    task = load(folder(tmp_path / "t", {**parts, "dev": SPLITS["dev"], "test": SPLITS["test"]}), tmp_path)
    assert pairs(task, "train") == SPLITS["train"]


@pytest.mark.parametrize(
    "places",
    [
        {"train": "train/part-00000-0c.snappy", "dev": "validation/0000", "test": "test.parquet/part-0"},
        {"train": "split=train/part-0", "dev": "split=dev/part-0", "test": "split=test/part-0"},
    ],
)
def test_numbered_files_are_of_the_split_that_their_folder_names(tmp_path, places):
    for split, place in places.items():
        write(tmp_path / "t" / f"{place}.parquet", SPLITS[split])
    second = places["train"].replace("0", "1")
    write(tmp_path / "t" / f"{second}.parquet", [("dry ash", "tree")])
    task, more = load(tmp_path / "t", tmp_path), [*SPLITS["train"], ("dry ash", "tree")]
    assert {split: pairs(task, split) for split in SPLITS} == SPLITS | {"train": more}
    assert len({*examples(task)["id"].to_pylist()}) == 8


def test_a_folder_s_name_says_no_split_where_a_file_s_does(tmp_path):
    path = folder(tmp_path / "train", SPLITS)
    for place in ("2024", "test/0001"):  # in a task that is called train itself, and beside test.jsonl
        write(tmp_path / "train" / f"{place}.jsonl", [("dry ash", "tree")])
    assert {split: pairs(load(path, tmp_path), split) for split in SPLITS} == SPLITS


def test_what_save_to_disk_wrote_is_named(tmp_path):
    write(tmp_path / "t" / "train" / "state.jsonl", [("a", "b")]).rename(tmp_path / "t" / "train" / "state.json")
    assert refused(load, tmp_path / "t", tmp_path) == (
        f"{tmp_path}/t is what save_to_disk of datasets wrote; write each split with to_parquet"
    )


@pytest.mark.parametrize(("other", "hint"), [("id", ";"), ("labels", "; did you mean 'labels'?")])
def test_a_test_file_without_labels_is_no_test_split(tmp_path, other, hint):
    path = folder(tmp_path / "t", {"train": SPLITS["train"]}, "csv")
    write(tmp_path / "t" / "test.csv", [("1", "tall fir")], fields=(other, "text"))
    assert refused(load, path, tmp_path) == (
        f"{path}/test.csv has no field 'label'; it has '{other}', 'text'{hint} if nobody knows its labels, give the "
        f"path of {path}/train.csv alone, which is then split"
    )


def test_files_to_be_split_stand_beside_texts_that_stay_in_train(tmp_path, capsys):
    rows = numbered(400, ["a", "b"])
    parts = {"all-1": rows[:200], "all-2": rows[200:], "train-1": [("chosen text", "a"), ("another one", "b")]}
    task = load(folder(tmp_path / "t", parts), tmp_path)
    one = load(write(tmp_path / "one.jsonl", rows), tmp_path)
    for split in ("dev", "test"):
        assert sorted(pairs(task, split)) == sorted(pairs(one, split))
    assert sorted(pairs(task, "train")) == sorted([*pairs(one, "train"), *parts["train-1"]])
    assert task.details["name"] == "t"
    path = folder(tmp_path / "split", {**SPLITS, "all": rows})  # what the splits were drawn from, perhaps
    assert pairs(load(path, tmp_path), "train") == SPLITS["train"]
    assert f"{path}: not in train, dev or test: all.jsonl" in capsys.readouterr().err


@pytest.mark.parametrize("group_field", ["", "by"])
def test_what_train_files_have_is_not_drawn(tmp_path, capsys, group_field):
    whole = [(f"text {number}", "ab"[number % 2], f"author {number}") for number in range(100)]
    chosen = [(text.upper(), label, f"other {number % 400}") for number, (text, label, _) in enumerate(whole[:20])]
    chosen += [(f"new {number}", "ab"[number % 2], f"author {20 + number % 20}") for number in range(400)]
    path = folder(tmp_path / "t", {"all": whole, "train": chosen}, fields=("text", "label", "by"))
    task = load(path, tmp_path, group_field=group_field)
    assert task.counts["leaks"] == task.counts.get("divided groups", 0) == 0
    assert task.counts["dev"] == task.counts["test"] == (6 if group_field else 8)  # a tenth of the others
    assert "warning" not in capsys.readouterr().err


def test_pairs_and_ids_and_other_names(tmp_path):
    rows = {split: [(f"{text} q", text, label, number) for number, (text, label) in enumerate(own)]
            for split, own in SPLITS.items()}  # fmt: skip
    path = folder(tmp_path / "t", rows, fields=("q", "a", "gold", "key"))
    task = load(path, tmp_path, text_field="q", pair_field="a", label_field="gold", id_field="key")
    first = examples(task).to_pylist()[0]
    assert (first["text"], first["text_pair"], first["id"]) == ("red apple q", "red apple", "0")
    assert task.details["pair"] is True


def numbered(count, labels):
    return [(f"text number {number}", labels[number % len(labels)]) for number in range(count)]


def test_one_file_is_split_by_label(tmp_path):
    task = load(write(tmp_path / "all.jsonl", numbered(400, ["a", "a", "a", "b"])), tmp_path)
    counts = Counter(zip(examples(task)["split"].to_pylist(), examples(task)["label"].to_pylist(), strict=True))
    assert counts == {("train", "a"): 240, ("train", "b"): 80, ("dev", "a"): 30, ("dev", "b"): 10,
                      ("test", "a"): 30, ("test", "b"): 10}  # fmt: skip
    assert task.details["name"] == "all"


def test_the_seed_draws_the_split_and_only_where_there_is_one_to_draw(tmp_path):
    path = write(tmp_path / "all.jsonl", numbered(100, ["a", "b"]))
    by_seed = [pairs(load(path, tmp_path / root, seed=seed), "test") for root, seed in (("x", 0), ("y", 0), ("x", 1))]
    assert by_seed[0] == by_seed[1]
    assert set(by_seed[0]) != set(by_seed[2])
    whole = folder(tmp_path / "t", SPLITS)
    assert load(whole, tmp_path, seed=0).uri == load(whole, tmp_path, seed=1, dev_share=0.3, test_share=0.3).uri


def test_a_missing_dev_is_split_off_from_train_and_said(tmp_path, capsys):
    rows = {"train": numbered(100, ["a", "b"]), "test": [("other", "a")]}
    task = load(folder(tmp_path / "t", rows), tmp_path, dev_share=0.2)
    assert (task.counts["train"], task.counts["dev"], task.counts["test"]) == (80, 20, 1)
    assert "has no dev file: 20% of the training examples become dev" in capsys.readouterr().err


GROUPED = st.lists(st.tuples(st.integers(0, 20), st.sampled_from("abc")), min_size=1, max_size=80)
SHARES = st.fixed_dictionaries({"test": st.floats(0.05, 0.45), "dev": st.floats(0.05, 0.45)})


@given(GROUPED, SHARES, st.integers(0, 3))
def test_drawn_splits_keep_groups_together_and_every_label_in_train(rows, shares, seed):
    groups, labels = [str(group) for group, _ in rows], [label for _, label in rows]
    splits = assign(groups, labels, shares, seed)
    assert len(set(zip(groups, splits, strict=True))) == len(set(groups))
    assert {label for label, split in zip(labels, splits, strict=True) if split == "train"} == set(labels)
    totals = Counter(labels)
    for (label, split), count in Counter(zip(labels, splits, strict=True)).items():
        assert split == "train" or count <= shares[split] * totals[label] + 0.5


@given(GROUPED, SHARES)
def test_a_drawn_split_does_not_depend_on_the_order_of_rows(rows, shares):
    def drawn(rows):
        groups, labels = [str(group) for group, _ in rows], [label for _, label in rows]
        return Counter(zip(groups, labels, assign(groups, labels, shares, 0), strict=True))

    assert drawn(rows) == drawn(rows[::-1])


def test_distinct_texts_are_split_by_the_exact_shares():
    labels = ["a"] * 50 + ["b"] * 10 + ["c"] + ["d"] * 8
    splits = assign([str(number) for number in range(69)], labels, {"test": 0.2, "dev": 0.1}, 0)
    assert Counter(zip(labels, splits, strict=True)) == {
        ("a", "train"): 35, ("a", "test"): 10, ("a", "dev"): 5,
        ("b", "train"): 7, ("b", "test"): 2, ("b", "dev"): 1,
        ("c", "train"): 1,
        ("d", "train"): 5, ("d", "test"): 2, ("d", "dev"): 1,
    }  # fmt: skip


def test_a_draw_without_groups_is_what_it_was(tmp_path):
    """Scores of tasks that were split by an earlier version can be compared with later ones."""
    task = load(write(tmp_path / "all.jsonl", numbered(60, ["a", "a", "b"])), tmp_path)
    numbers = {split: [int(text.split()[-1]) for text, _ in pairs(task, split)] for split in ("dev", "test")}
    assert numbers == {"dev": [2, 11, 27, 42, 51, 54], "test": [6, 23, 24, 30, 35, 45]}


def test_equal_texts_of_one_file_stay_in_one_split(tmp_path):
    rows = [(f"Text, number {number // 4}" + "!" * (number % 4), "ab"[number % 2]) for number in range(400)]
    task = load(write(tmp_path / "all.jsonl", rows), tmp_path)
    assert (task.counts["dev"], task.counts["test"], task.counts["leaks"]) == (40, 40, 0)


@pytest.mark.parametrize(
    ("labels", "targets"),
    [
        (["1", "2", "3"], False), (["1.0", "2.0"], False), (["0.5", "2", "-3", "1e-3", ".5"], True),
        (["0.5", "high"], False), (["1.5.2", "1.5"], False), (["inf", "1.5"], False),
    ],
)  # fmt: skip
def test_numbers_are_targets_where_some_have_a_fraction(labels, targets):
    file = RawFile("t.csv", "t.csv", "csv")
    found = [Example(file, line, f"{line}", f"a {line}", None, label, "", "") for line, label in enumerate(labels)]
    assert is_regression(found, Fields(), "auto") == targets


@pytest.mark.parametrize("labels", [["1,5", "2,5", "3", "1,5"], ["1,5", "1.5", "2.25", "2,5"], ["1,234.5", "1.234,5"]])
def test_numbers_with_commas_are_asked_about(labels):
    """They were classes, in silence."""
    file = RawFile("t.csv", "t.csv", "csv")
    found = [Example(file, line, f"{line}", f"a {line}", None, label, "", "") for line, label in enumerate(labels)]
    with pytest.raises(InputError, match=f"t.csv:.: label '{labels[0]}' looks like a number with a comma"):
        is_regression(found, Fields(), "auto")
    assert not is_regression(found, Fields(), "classification")
    with pytest.raises(InputError, match=r"is not a number such as 1234\.5, which a regression needs"):
        is_regression(found, Fields(), "regression")


@pytest.mark.parametrize("extension", ["jsonl", "csv", "parquet"])
def test_fractions_make_a_regression(tmp_path, extension):
    rows = {"train": [("a", 1.0), ("b", 2.5)], "dev": [("c", 3.0)], "test": [("d", 4.25)]}
    task = load(folder(tmp_path / "t", rows, extension), tmp_path)
    assert examples(task)["target"].to_pylist() == [1.0, 2.5, 3.0, 4.25]
    assert examples(task)["label"].null_count == 4
    assert (task.details["problem"], task.details["metric"], task.details["labels"]) == ("regression", "pearson", [])
    assert load(tmp_path / "t", tmp_path, metric="spearman").details["metric"] == "spearman"


def test_whole_numbers_and_truth_values_are_classes(tmp_path):
    rows = {split: [(text, label == "tree") for text, label in own] for split, own in SPLITS.items()}
    assert load(folder(tmp_path / "t", rows), tmp_path).details["labels"] == ["false", "true"]
    rows = {split: [(text, len(label)) for text, label in own] for split, own in SPLITS.items()}
    assert load(folder(tmp_path / "u", rows), tmp_path).details["labels"] == ["4", "5"]


def test_classes_that_look_like_huge_numbers_are_classes(tmp_path, capsys):
    """Such as short hashes: 12e45678 was set aside as an infinite number."""
    names = ["12e45678", "ab12cd34", "0f12aa99", "1e-99999999999999999999"]
    rows = [(f"text {number}", names[number % 4]) for number in range(40)]
    task = load(folder(tmp_path / "hashes", dict.fromkeys(SPLITS, rows)), tmp_path)
    assert sorted(task.details["labels"]) == sorted(names)
    assert "set aside" not in capsys.readouterr().err


def test_decimal_numbers_of_a_parquet_file_are_labels(tmp_path):
    rows = [(f"text {number}", Decimal(number) / 4) for number in range(40)]
    task = load(folder(tmp_path / "prices", dict.fromkeys(SPLITS, rows), "parquet"), tmp_path)
    assert task.details["problem"] == "regression"


def test_leaks_are_reported_and_left(tmp_path, capsys):
    train = [*SPLITS["train"], ("red apple!", "tree")]  # the first of equal texts is named
    rows = {"train": train, "dev": [("Old, oak!", "fruit")], "test": [("<< RED >> apple", "fruit"), ("plum", "fruit")]}
    task = load(folder(tmp_path / "t", rows), tmp_path)
    assert pq.read_table(task.path("leaks.parquet")).to_pylist() == [
        {"example": 5, "split": "dev", "train": 1, "same_label": False, "text": "Old, oak!"},
        {"example": 6, "split": "test", "train": 0, "same_label": True, "text": "<< RED >> apple"},
    ]
    assert task.counts["leaks"] == 2
    assert task.counts["test"] == 2
    warning = capsys.readouterr().err
    assert "1 of 1 dev texts" in warning
    assert "1 of 2 test texts" in warning


def test_a_pair_leaks_only_as_a_pair(tmp_path):
    rows = {"train": [("a", "b", "x"), ("c", "d", "y")], "dev": [("a", "d", "x")], "test": [("A.", "b", "x")]}
    task = load(folder(tmp_path / "t", rows, fields=("text", "other", "label")), tmp_path, pair_field="other")
    assert pq.read_table(task.path("leaks.parquet"))["example"].to_pylist() == [3]


def test_texts_without_letters_are_compared_as_they_are(tmp_path):
    rows = {"train": [("!!", "x"), ("?", "y")], "dev": [("…", "x")], "test": [("!!", "x")]}
    assert load(folder(tmp_path / "t", rows), tmp_path).counts["leaks"] == 1


def naive_csv(path, count, texts):
    """Rows whose writer quotes nothing; `texts` replaces the texts of some, by number from 0."""
    rows = [f"{texts.get(row, f'{path.stem} text {row}')},{'ab'[row % 2]}" for row in range(count)]
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(["text,label", *rows, ""]))


QUOTE = {10: '"he said', 29: 'she said"'}  # rows 10 to 29


@pytest.mark.parametrize("split", ["train", "test"])
def test_the_limits_see_all_rows_that_a_stray_quote_swallows(tmp_path, split):
    for name in ("train", "dev", "test"):
        naive_csv(tmp_path / "t" / f"{name}.csv", 100, QUOTE if name == split else {})
    reason = rf"\(20 malformed csv\), more than .*, the first at {split}.csv:12: malformed csv, up to line 31: "
    with pytest.raises(InputError, match=rf"^20 of 300 rows cannot be used {reason}"):
        load(str(tmp_path / "t"), tmp_path)
    if split == "test":
        with pytest.raises(InputError, match=rf"^20 of 100 test rows cannot be used {reason}"):
            load(str(tmp_path / "t"), tmp_path, max_rejected=20)
        return
    task = load(str(tmp_path / "t"), tmp_path, max_rejected=20)
    assert task.counts["read"] == 300
    assert task.counts["train"] == 80
    assert task.counts["rejected"] == {"malformed csv": 20}
    assert [(row["line"], row["lines"]) for row in pq.read_table(task.path("rejected.parquet")).to_pylist()] == [
        (12, 20)
    ]
    (found,) = dropped(task)["reasons"]
    assert (found["reason"], found["count"]) == ("malformed csv", 20)


def only(**splits):
    return SPLITS | splits


BAD = {
    "pair field": (SPLITS, {"pair_field": "second"}, "no field 'second'; it has 'text', 'label'"),
    "metric of regression": (SPLITS, {"metric": "pearson"}, "is a classification with 2 classes; expected macro_f1"),
    "no train": ({"dev": SPLITS["dev"], "test": SPLITS["test"]}, {}, "no train file among dev.jsonl, test.jsonl"),
    "no test": ({"train": SPLITS["train"], "dev": SPLITS["dev"]}, {}, "no test file"),
    "no test beside all": (dict.fromkeys(["train", "dev", "all"], SPLITS["train"]), {}, "no test file among all"),
    "two train files": (
        only(**{"train-2": SPLITS["train"]}),
        {},
        "train.jsonl; expected one train file, or several of one",
    ),
    "two folders": ({f"{name}/train-1": SPLITS["train"] for name in "xy"}, {}, "expected one train file"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_in_one_sentence_and_leaves_nothing(tmp_path, case):
    splits, settings, expected = BAD[case]
    with pytest.raises(InputError) as caught:
        load(folder(tmp_path / "t", splits), tmp_path / "root", **settings)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not [path for path in (tmp_path / "root").rglob("*") if path.is_file()]


def test_f1_is_for_two_classes(tmp_path, capsys):
    assert load(folder(tmp_path / "two", SPLITS), tmp_path, metric="f1").details["metric"] == "f1"
    assert "the metric is the F1 of tree (f1:LABEL chooses another)" in capsys.readouterr().err
    other = load(folder(tmp_path / "two", SPLITS), tmp_path, metric="f1:fruit")
    assert (other.details["metric"], other.details["labels"]) == ("f1", ["tree", "fruit"])
    for metric in ("f1:shrub", "accuracy:fruit"):
        with pytest.raises(InputError, match=f"'{metric}' does not fit; expected f1:LABEL with one of fruit, tree"):
            load(folder(tmp_path / "two", SPLITS), tmp_path, metric=metric)
    rows = SPLITS | {"train": [*SPLITS["train"], ("moss", "other")]}
    with pytest.raises(InputError, match="'f1' does not fit: the task is a classification with 3 classes"):
        load(folder(tmp_path / "three", rows), tmp_path, metric="f1")


def test_a_metric_for_classes_does_not_fit_a_regression(tmp_path):
    rows = {"train": [("a", 1.5), ("b", 2.5)], "dev": [("c", 3.0)], "test": [("d", 4.25)]}
    with pytest.raises(InputError, match="the task is a regression; expected pearson, spearman"):
        load(folder(tmp_path / "t", rows), tmp_path, metric="accuracy")


def test_equal_files_give_equal_content_wherever_they_lie(tmp_path):
    first = load(folder(tmp_path / "x" / "t", SPLITS), tmp_path / "root1")
    second = load(folder(tmp_path / "y" / "t", SPLITS), tmp_path / "root2")
    assert (first.manifest.key, first.content) == (second.manifest.key, second.content)


def test_examples_belong_together_by_a_field_or_by_their_text(tmp_path):
    rows = [("a [[ b ]] << c >>", "x"), ("A b, c.", "y"), ("<e1>a</e1> <e2>b</e2> c", "y"), ("a b d", "x")]
    for split in ("train", "dev", "test"):
        lines = [json.dumps({"text": text, "label": str(n % 2), "by": by}) for n, (text, by) in enumerate(rows)]
        (tmp_path / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
    for fields, expected in (({}, [0, 0, 0, 1]), ({"group_field": "by"}, [0, 1, 1, 0])):
        table = examples(Artifact.open(load_task(str(tmp_path), fields=Fields(**fields), root=str(tmp_path / "root"))))
        assert groups_of(table).tolist() == expected * 3
    assert groups_of(pa.table({"text": ["a", "A", "a"], "text_pair": ["b", "B", "c"]})).tolist() == [0, 0, 1]
    with pytest.raises(InputError, match="no field 'author'"):
        load_task(str(tmp_path), root=str(tmp_path / "root"), fields=Fields(group_field="author"))


MARKS = ("[[ {} ]]", "<< {} >>"), ("<e1>{}</e1>", "<e2>{}</e2>"), ("[E1] {} [/E1]", "[E2] {} [/E2]")


@pytest.mark.parametrize("marks", MARKS, ids=lambda marks: marks[0])
def test_a_sentence_that_is_asked_about_several_times_stays_in_one_split(tmp_path, marks):
    """Whatever its marks are; and if the files divide it, the leak is listed."""
    rows = []
    for number, span in itertools.product(range(60), range(4)):
        words = [f"s{number}w{place}" for place in range(8)]
        words[span], words[span + 3] = marks[0].format(words[span]), marks[1].format(words[span + 3])
        rows.append({"text": " ".join(words), "label": f"{number % 2}"})
    file = tmp_path / "all.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = Artifact.open(load_task(str(file), test_share=0.3, root=str(tmp_path / "root")))
    splits: dict[str, set[str]] = {}
    for row in examples(task).to_pylist():
        splits.setdefault(re.search(r"s\d+", row["text"])[0], set()).add(row["split"])
    assert all(len(own) == 1 for own in splits.values())
    assert (len(splits), task.counts["leaks"]) == (60, 0)
    divided = tmp_path / "divided"
    divided.mkdir()
    for split, own in (("train", rows[::2]), ("dev", rows[1:2]), ("test", rows[1::4])):
        (divided / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in own))
    assert Artifact.open(load_task(str(divided), root=str(tmp_path / "root"))).counts["leaks"] == 61


@pytest.mark.skipif("TLM_DEV_DATA" not in os.environ, reason="set TLM_DEV_DATA to the folder with scierc/")
def test_scierc_s_test_rows_are_397_sentences(tmp_path):
    table = examples(Artifact.open(load_task(f"{os.environ['TLM_DEV_DATA']}/scierc", root=str(tmp_path))))
    test = table.filter(pc.equal(table["split"], "test"))
    assert (len(test), groups_of(test).max() + 1) == (974, 397)


def test_a_task_of_the_classes_of_another_is_one_that_its_models_can_be_evaluated_on(tmp_path, capsys):
    """Some classes do not occur, rows with another are set aside, and whole numbers stay classes."""
    rows = [(f"number {n} is {n % 3} of three", str(n % 3)) for n in range(60)]
    first = load(write(tmp_path / "first.jsonl", rows), tmp_path)
    model = baseline(first.uri, root=str(tmp_path))
    later = [*((f"month {n} has {n % 2} of them", str(n % 2)) for n in range(40)), ("a kind that is new", "3")]
    file = write(tmp_path / "later.jsonl", later)
    task = load(file, tmp_path, classes_of=first.uri, test_share=0.8)
    assert (task.details["labels"], task.details["metric"]) == (["0", "1", "2"], "macro_f1")
    assert task.counts["labels"] == {"0": 20, "1": 20, "2": 0}
    assert "unknown label, '3'; known are 0, 1, 2 (later.jsonl:41)" in capsys.readouterr().err
    scores = Artifact.open(evaluate(model, task.uri)).json("metrics.json")["splits"]["test"]
    assert scores["n"] == task.counts["test"]
    with pytest.raises(InputError, match="with --classes-of that task"):
        evaluate(model, load(write(tmp_path / "two.jsonl", later[:-1]), tmp_path, test_share=0.8).uri)
    many = write(tmp_path / "many.jsonl", [*later, *(later[-1:] * 10)])
    with pytest.raises(InputError, match="11 of 51 rows"):
        load(many, tmp_path, classes_of=first.uri)
    lists = write(tmp_path / "lists.jsonl", [(text, [label]) for text, label in rows])
    with pytest.raises(InputError, match="field 'label' is of type list; expected a string or number"):
        load(lists, tmp_path, classes_of=first.uri)
    numbers = load(write(tmp_path / "numbers.jsonl", [(f"number {n}", n / 7) for n in range(60)]), tmp_path)
    with pytest.raises(InputError, match="has the problem 'regression'; classes_of needs one label a text"):
        load(file, tmp_path, classes_of=numbers.uri)
