"""What changed between two versions of a task: by counting one by one, and there and back again."""

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.toys import Row, make_task
from tlm.artifacts.artifact import Artifact
from tlm.data.tasks.examples import changes, in_both, read_splits, texts_of
from tlm.data.tasks.task import load_task

SPLITS = ("train", "dev", "test")
LABELS = ["x", "y", "z"]
some_rows = st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(LABELS), st.sampled_from(SPLITS)), max_size=14)


def task_of(root: Path, rows: list[tuple[str, str, str]]) -> Artifact:
    """A task with one example more in each split, so that none is empty."""
    found: list[Row] = [(text, None, label, split) for text, label, split in rows]
    found += [("always there", None, "x", split) for split in SPLITS]
    return Artifact.open(make_task(root, sorted(found, key=lambda row: SPLITS.index(row[3])), "macro_f1", LABELS))


def one_by_one(before: list[tuple[str, str, str]], now: list[tuple[str, str, str]], split: str) -> dict[str, int]:
    """Strike out what is equal in both, then what has the same text; the rest came or went."""
    old, new = ([row[:2] for row in rows if row[2] == split] for rows in (before, now))
    for row in [*new]:
        if row in old:
            old.remove(row)
            new.remove(row)
    relabelled = 0
    for text, label in [*new]:
        if found := next((row for row in old if row[0] == text), None):
            old.remove(found)
            new.remove((text, label))
            relabelled += 1
    moved = sum(any(text == row[0] and row[2] != split for row in before) for text, _ in new)
    return {"added": len(new), "moved": moved, "removed": len(old), "relabelled": relabelled}


@settings(deadline=None, max_examples=40)
@given(some_rows, some_rows)
def test_counts_are_those_of_counting_one_by_one(before, now):
    with TemporaryDirectory() as root:
        one, other = task_of(Path(root), before), task_of(Path(root), now)
        there, back = changes(one, other), changes(other, one)
    for found in there["splits"]:
        split = found["split"]
        expected = one_by_one(before, now, split)
        assert {name: found[name] for name in expected} == expected
        sizes = [1 + sum(row[2] == split for row in rows) for rows in (before, now)]
        assert [found["before"], found["now"]] == sizes
        assert found["before"] + found["added"] - found["removed"] == found["now"]
    for found, turned in zip(there["splits"], back["splits"], strict=True):
        assert (found["added"], found["relabelled"]) == (turned["removed"], turned["relabelled"])
    assert there["shared"] == 1 + len({row[0] for row in before} & {row[0] for row in now})


def test_nothing_changed(tmp_path):
    task = task_of(tmp_path, [("a", "x", "train"), ("a", "y", "train"), ("b", "z", "test")])
    found = changes(task, task)
    assert all(not row[name] for row in found["splits"] for name in ("added", "moved", "removed", "relabelled"))
    assert found["came"] == found["went"] == {}


def test_labels_that_come_and_go_have_their_number_of_texts(tmp_path):
    loaded = []
    for name, labels in (("one", ["x", "y"]), ("two", ["y", "new", "new"])):
        (tmp_path / name).mkdir()
        for split in SPLITS:
            lines = [f'{{"text": "{split} {place} of {label}", "label": "{label}"}}\n' for place, label in
                     enumerate(labels)]  # fmt: skip
            (tmp_path / name / f"{split}.jsonl").write_text("".join(lines))
        loaded.append(Artifact.open(load_task(str(tmp_path / name), root=str(tmp_path / "store"))))
    found = changes(*loaded)
    assert (found["came"], found["went"]) == ({"new": 6}, {"x": 3})


def test_both_texts_of_a_pair_are_compared(tmp_path):
    rows: list[Row] = [("a", "b", "x", split) for split in SPLITS]
    other: list[Row] = [("a", "c" if split == "test" else "b", "x", split) for split in SPLITS]
    one, two = (Artifact.open(make_task(tmp_path, given, "macro_f1", LABELS)) for given in (rows, other))
    assert [row["added"] for row in changes(one, two)["splits"]] == [0, 0, 1]
    tests = [read_splits(task, "test")["test"] for task in (one, two)]
    assert len(in_both(*tests)) == 0
    assert in_both(tests[0], tests[0]).tolist() == [[0, 0]]


def test_targets_that_changed_are_other_labels(tmp_path):
    one, two = (
        Artifact.open(make_task(tmp_path, [("a", None, value, split) for split in SPLITS], "pearson", None))
        for value in (1.5, 2.5)
    )
    assert [row["relabelled"] for row in changes(one, two)["splits"]] == [1, 1, 1]


@settings(deadline=None, max_examples=30)
@given(some_rows, some_rows)
def test_each_common_text_is_found_once_where_it_first_was(before, now):
    with TemporaryDirectory() as root:
        old, new = (read_splits(task_of(Path(root), rows), "test")["test"] for rows in (before, now))
        pairs = in_both(old, new)
    assert all(old.texts.index(new.texts[row]) == place for row, place in pairs)
    rows = [row for row, text in enumerate(texts_of(new)) if text in Counter(texts_of(old))]
    assert pairs[:, 0].tolist() == rows
