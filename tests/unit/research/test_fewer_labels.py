"""Tasks with fewer labels: exact numbers, test as it is, smaller ones inside larger ones, texts kept without labels."""

from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from research.fewer_labels import fewer_labels
from tests.toys import make_task
from tlm.artifacts.artifact import Artifact
from tlm.data.tasks.examples import examples, read_splits, texts_in
from tlm.data.tasks.labelled import UNLABELLED
from tlm.data.tasks.task import load_task
from tlm.errors import InputError
from tlm.settings.options import Fields, Problem

SIZES = {"train": {"a": 40, "b": 10, "c": 3}, "dev": {"a": 20, "b": 4, "c": 1}, "test": {"a": 5, "b": 5, "c": 5}}
ROWS = [
    (f"{split} {label} {number}", None, label, split)
    for split, labels in SIZES.items()
    for label, count in labels.items()
    for number in range(count)
]


@pytest.fixture
def task(tmp_path: Path) -> str:
    return make_task(tmp_path / "root", ROWS, "macro_f1", ["a", "b", "c"])


def sizes(uri: str) -> Counter[tuple[str, str]]:
    table = examples(Artifact.open(uri))
    return Counter(zip(table["split"].to_pylist(), table["label"].to_pylist(), strict=True))


def texts(uri: str, *splits: str) -> set[str]:
    return {row["text"] for row in examples(Artifact.open(uri)).to_pylist() if row["split"] in splits}


@pytest.mark.parametrize(
    ("per_class", "train", "dev"),
    [(1, (1, 1, 1), (1, 1, 1)), (8, (8, 8, 3), (4, 4, 1)), (10, (10, 10, 3), (5, 4, 1)), (99, (40, 10, 3), (20, 4, 1))],
)
def test_numbers_are_exact_and_dev_shrinks_with_them(per_class: int, train, dev, task: str) -> None:
    found = sizes(fewer_labels(task, per_class=per_class))
    assert tuple(found["train", label] for label in "abc") == train
    assert tuple(found["dev", label] for label in "abc") == dev


def test_test_is_whole_and_the_order_is_kept(task: str) -> None:
    few = [row["text"] for row in examples(Artifact.open(fewer_labels(task, per_class=2))).to_pylist()]
    assert few == [text for text, *_ in ROWS if text in set(few)]
    assert texts(task, "test") <= set(few)


def test_fewer_are_inside_more_and_seeds_differ(task: str) -> None:
    few, more, other = (
        texts(fewer_labels(task, per_class=number, seed=seed), "train", "dev")
        for number, seed in ((2, 0), (9, 0), (2, 1))
    )
    assert few < more
    assert few != other


def test_texts_may_stay_without_their_labels(task: str) -> None:
    plain, kept = fewer_labels(task, per_class=2), fewer_labels(task, per_class=2, keep_texts=True)
    assert texts_in(Artifact.open(plain), UNLABELLED) == []
    assert set(texts_in(Artifact.open(kept), UNLABELLED)) == texts(task, "train") - texts(plain, "train")
    assert {row["label"] for row in examples(Artifact.open(kept)).to_pylist() if row["split"] == "unlabelled"} == {None}
    assert Artifact.open(kept).counts["unlabelled"] == 47
    assert (
        read_splits(Artifact.open(kept), "train")["train"].texts
        == read_splits(Artifact.open(plain), "train")["train"].texts
    )


def test_a_text_that_stays_labelled_is_not_kept_twice(tmp_path: Path) -> None:
    """The same sentence with other spans marked is the same text."""
    rows = [("[[ same ]] words", None, "a", "train"), ("same << words >>", None, "a", "train"),
            ("others", None, "a", "train"), ("[[ others ]]", None, "a", "train"), ("b", None, "b", "train"),
            ("dev", None, "a", "dev"), ("test", None, "b", "test")]  # fmt: skip
    task = make_task(tmp_path / "root", rows, "accuracy", ["a", "b"])
    for seed in range(4):
        few = Artifact.open(fewer_labels(task, per_class=1, seed=seed, keep_texts=True))
        words = Counter(text.strip("[] ").replace("<<", "").replace("[[", "")[:4] for text in texts_in(few, UNLABELLED))
        assert len(texts_in(few, UNLABELLED)) == 1, words


def test_leaks_are_found_anew(tmp_path: Path) -> None:
    rows = [("one", None, "a", "train"), ("two", None, "a", "train"), ("three", None, "b", "train"),
            ("dev", None, "a", "dev"), ("One!", None, "a", "test"), ("two", None, "b", "test")]  # fmt: skip
    task = make_task(tmp_path / "root", rows, "accuracy", ["a", "b"], copies=[4, 5])
    few = Artifact.open(fewer_labels(task, per_class=1))
    kept = next(row["text"] for row in examples(few).to_pylist() if row["label"] == "a")
    leaks = pq.read_table(few.path("leaks.parquet")).to_pylist()
    assert [(row["train"], row["same_label"]) for row in leaks] == [(0, kept == "one")]
    assert list(read_splits(few, "test")["test"].copied) == [kept == "one", kept == "two"]


def test_details_are_those_of_the_whole_task(tmp_path: Path) -> None:
    folder = tmp_path / "named"
    folder.mkdir()
    for split, labels in SIZES.items():
        lines = [f"{label},{split} {label} {n},{n % 3}" for label, count in labels.items() for n in range(count)]
        (folder / f"{split}.csv").write_text("\n".join(["label,text,author", *lines]))
    whole = Artifact.open(
        load_task(
            str(folder),
            fields=Fields(group_field="author"),
            problem=Problem(metric="accuracy"),
            root=str(tmp_path / "root"),
        )
    )
    few = Artifact.open(fewer_labels(whole.uri, per_class=2, keep_texts=True))
    assert few.details == whole.details
    assert "group" in examples(few).column_names


@pytest.mark.parametrize(
    ("settings", "says"),
    [({"per_class": 0}, "per_class is 0; expected 1 or more"), ({"per_class": 1, "seed": -1}, "seed is -1")],
)
def test_what_is_refused(settings: dict[str, int], says: str, task: str) -> None:
    with pytest.raises(InputError, match=says):
        fewer_labels(task, **settings)


def test_a_regression_is_refused(tmp_path: Path) -> None:
    rows = [
        ("one", None, 1.5, "train"),
        ("two", None, 2.5, "train"),
        ("dev", None, 1.0, "dev"),
        ("t", None, 1.0, "test"),
    ]
    with pytest.raises(InputError, match="is a regression; expected a task with classes"):
        fewer_labels(make_task(tmp_path / "root", rows, "pearson", None), per_class=1)
