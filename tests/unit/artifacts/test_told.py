"""What a step set aside is said on stderr with its reasons: when the result is made, and again when it is found."""

import pytest

from tests.tiny import write_rows as lines
from tlm.data.corpus.load import load_corpus
from tlm.data.tasks.task import load_task
from tlm.errors import InputError
from tlm.retrieval.retrieve import retrieve
from tlm.retrieval.search.index import build_index
from tlm.retrieval.subset.export import export, import_subset
from tlm.retrieval.subset.judge import KEPT, REASONS

FOUND = "already there, nothing to do"


@pytest.fixture
def twice(tmp_path, capsys):
    """Does a step twice; its URI and the lines that it said the first time. It must say them the second time too."""

    def do(step, *arguments, **settings):
        said = []
        for _ in range(2):
            capsys.readouterr()
            uri = step(*arguments, root=str(tmp_path / "root"), **settings)
            said.append(capsys.readouterr().err.splitlines())
        (found,) = (number for number, line in enumerate(said[1]) if line.endswith(FOUND))
        assert said[0][len(said[0]) - len(said[1][found + 1 :]) :] == said[1][found + 1 :]
        return uri, [line for line in said[1][found + 1 :] if "classes: " not in line]

    return do


def task(folder, bad=(), **more):
    """Splits of 40, 10 and 30 rows; `bad` replaces rows: (split, line) to a row."""
    for split, count in (("train", 40), ("dev", 10), ("test", 30)):
        rows = [{"text": f"{split} text {number}", "label": "ab"[number % 2]} for number in range(count)]
        for (of, line), row in dict(bad).items():
            if of == split:
                rows[line - 1] = row
        if split not in more.get("without", ()):
            lines(folder / f"{split}.jsonl", rows)
    return str(folder)


NO_LABEL, NULL = {"text": "x", "label": ""}, {"text": None, "label": "a"}


def test_rows_of_a_task_by_split_with_reason_and_place(tmp_path, twice):
    bad = {("train", 2): NULL, ("train", 9): NO_LABEL, ("test", 3): NO_LABEL, ("test", 7): NO_LABEL}
    _, said = twice(load_task, task(tmp_path / "t", bad))
    assert said[-2:] == [
        "load-task: 38 of 40 train rows used, 2 set aside: 1 null, field 'text' is null (train.jsonl:2); "
        "1 empty, field 'label' has no text (train.jsonl:9)",
        "load-task: 28 of 30 test rows used, 2 set aside: 2 empty, field 'label' has no text "
        "(test.jsonl:3, test.jsonl:7)",
    ]


def test_rows_without_labels_are_counted_apart(tmp_path, twice):
    more = lines(tmp_path / "more.jsonl", [{"text": f"more {n}"} for n in range(9)] + [{"text": "more 0"}, NULL])
    path = task(tmp_path / "t", {("train", 2): NULL})
    assert [line.partition(",")[0] for line in twice(load_task, path, unlabelled=more)[1][-3:-1]] == [
        "load-task: 39 of 40 train rows used",
        "load-task: 10 of 11 unlabelled rows used",
    ]


def test_texts_that_are_in_train_too(tmp_path, twice):
    copied = {("test", 3): {"text": "train text 0", "label": "a"}}
    _, said = twice(load_task, task(tmp_path / "t", copied))
    assert said == ["warning: 1 of 30 test texts are also in train; they are listed in leaks.parquet, not removed"]


def test_rows_of_a_split_count_also_where_dev_is_drawn_from_it(tmp_path, twice):
    path = task(tmp_path / "t", {("train", 2): NULL}, without=["dev"])
    assert twice(load_task, path)[1][-1].startswith("load-task: 39 of 40 train rows used, 1 set aside: 1 null")
    one = lines(tmp_path / "all.jsonl", [{"text": f"text {n}", "label": "ab"[n % 2]} for n in range(40)] + [NULL])
    assert twice(load_task, one)[1][-1].startswith("load-task: 40 of 41 rows used, 1 set aside: 1 null")


def test_nothing_is_said_where_nothing_was_set_aside(tmp_path, twice):
    assert not [line for line in twice(load_task, task(tmp_path / "t"))[1] if "aside" in line]
    assert twice(load_corpus, [lines(tmp_path / "c.jsonl", [{"text": "a"}])])[1] == []


def test_a_record_of_several_lines_is_said_with_all_of_them(tmp_path, twice):
    rows = [f"text {number},x" for number in range(20)]
    rows[4], rows[11] = '"text 4,x', 'text 11",x'
    (tmp_path / "c.csv").write_text("\n".join(["text,label", *rows, ""]))
    assert twice(load_corpus, [str(tmp_path / "c.csv")])[1] == [
        "load-corpus: 12 of 20 rows used, 8 set aside: 8 malformed csv, up to line 13: one record of 8 lines that are "
        "rows; is a quote missing? (c.csv:6)"
    ]


@pytest.mark.parametrize("split", ["dev", "test"])
def test_a_held_out_split_that_loses_more_than_a_tenth_of_its_rows_stops_the_step(tmp_path, split):
    size = {"dev": 10, "test": 30}[split]
    few = {(split, line): NO_LABEL for line in range(1, size // 10 + 1)}
    assert load_task(task(tmp_path / "few", few), root=str(tmp_path))
    many = few | {(split, size): NULL}
    expected = (
        rf"^{len(many)} of {size} {split} rows cannot be used \({len(few)} empty, 1 null\), more than a tenth, the "
        rf"first at {split}.jsonl:1: empty, field 'label' has no text; fix them or remove them from the file$"
    )
    with pytest.raises(InputError, match=expected):
        load_task(task(tmp_path / "many", many), max_rejected=100, root=str(tmp_path))


def test_of_many_rows_some_are_named(tmp_path, twice):
    rows = [{"text": "good"}, *[{"text": None}] * 7, {"text": 3}, {"text": 4}, {"text": 5}]
    uri, said = twice(load_corpus, [lines(tmp_path / "c.jsonl", rows)])
    assert said == [
        "load-corpus: 1 of 11 rows used, 10 set aside: 7 null, field 'text' is null (c.jsonl:2, c.jsonl:3, c.jsonl:4, "
        "c.jsonl:5, c.jsonl:6 …); 1 not a string, field 'text' is a number: 3 (c.jsonl:9); 1 not a string, field "
        f"'text' is a number: 4 (c.jsonl:10); and 1 more, all in {uri}/rejected.parquet"
    ]


def test_what_is_left_out_on_the_way_to_a_subset(tmp_path, twice):
    passages = [*("red green apples on old trees", "RED green apples on old trees", "seen test text of five words")]
    corpus, said = twice(load_corpus, [lines(tmp_path / "c.jsonl", [{"text": text} for text in [*passages, "red"]])])
    assert said == ["load-corpus: 3 passages; 1 duplicates"]
    rows = {("train", 1): {"text": "red", "label": "a"}, ("train", 2): {"text": "zebra", "label": "b"}}
    path = task(tmp_path / "t", rows | {("test", 1): {"text": "seen test text of five words", "label": "a"}})
    labelled = load_task(path, root=str(tmp_path / "root"))
    index, said = twice(build_index, corpus)
    assert said == []
    hits, said = twice(retrieve, index, labelled, query="full")
    assert said == ["retrieve: 40 queries; 1 no hit"]
    _, said = twice(export, hits)
    assert said == ["export: 3 candidates; 1 kept, 1 too short, 1 overlaps test"]
    external = lines(tmp_path / "s.jsonl", [*({"text": text} for text in passages), {"text": None}])
    _, said = twice(import_subset, external, task=labelled)
    assert said == [
        "import-subset: 3 of 4 rows used, 1 set aside: 1 null, field 'text' is null (s.jsonl:4)",
        "import-subset: 4 candidates; 1 kept, 1 overlaps test, 1 near-duplicate",
    ]


def test_every_reason_of_a_subset_is_one_that_is_said():
    from tlm.artifacts.produce import LEFT_OUT

    assert {reason for number, reason in enumerate(REASONS) if number != KEPT} <= set(LEFT_OUT)
