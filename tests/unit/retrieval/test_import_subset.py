"""Subsets that others selected: what is taken, what is left out and named, and that training takes them."""

import csv
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.searchable import prose
from tests.tiny import refused, write_tiny
from tlm.artifacts.artifact import Artifact
from tlm.cli.command import flat
from tlm.data.corpus import staging
from tlm.data.corpus.load import load_corpus
from tlm.data.overlap import Vocabulary
from tlm.data.passages import passages
from tlm.data.tasks.task import load_task
from tlm.errors import InputError
from tlm.evaluation.report.kfp import dataset_card
from tlm.evaluation.report.lineage import dropped
from tlm.retrieval.subset import judge as judging
from tlm.retrieval.subset.export import SUBSET, import_subset
from tlm.retrieval.subset.judge import REASONS, Candidates, judge
from tlm.settings.options import Filters
from tlm.training.input.tokenizer import build_tokenizer
from tlm.training.stages import train

TEST_TEXT = "the parser is trained on sections two to twenty one of the penn treebank without any lexicon"


def external(path: Path, texts: list[str | None], ranks: bool = True) -> str:
    """As the released code writes it (src/data_selection.py): text, id, rank."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "id", "rank"] if ranks else ["text"])
        for number, text in enumerate(texts):
            writer.writerow([text, number, number % 5] if ranks else [text])
    return str(path)


def labelled(folder: Path, root: Path, test: list[str]) -> str:
    folder.mkdir()
    for split, texts in (("train", [prose(900), prose(901)]), ("dev", [prose(902)]), ("test", test)):
        lines = [json.dumps({"text": text, "label": "ab"[i % 2]}) + "\n" for i, text in enumerate(texts)]
        (folder / f"{split}.jsonl").write_text("".join(lines))
    return load_task(str(folder), root=str(root))


def taken(path: str, root: Path, **options: object) -> Artifact:
    return Artifact.open(flat(import_subset)(path, root=str(root), **options), "subset")  # type: ignore[arg-type]


def kept(subset: Artifact) -> dict[int, dict[str, object]]:
    return {row["doc"]: row for batch in passages(subset) for row in batch.to_pylist()}


def left_out(subset: Artifact) -> dict[int, tuple[str, str]]:
    table = pq.ParquetFile(subset.path("dropped.parquet")).read().to_pylist()
    return {row["doc"]: (row["reason"], row["detail"]) for row in table}


def test_every_row_is_kept_or_named(tmp_path):
    task = labelled(tmp_path / "task", tmp_path, [TEST_TEXT])
    twice = [prose(1) + "\n", "cafe\u0301 " + prose(2), f"as said , {TEST_TEXT.upper()} !", "too short", prose(1)]
    texts = [*twice, None, prose(3)]
    subset = taken(external(tmp_path / "small_external.csv", texts), tmp_path, task=task)
    assert subset.details == {"arm": "bm25", "passages": 3, "provenance": "imported"}
    assert subset.counts == {
        "candidates": 7, "kept": 3, "too short": 1, "overlaps test": 1, "overlaps dev": 0, "near-duplicate": 1,
        "rejected": {"empty": 1},
    }  # fmt: skip
    found = kept(subset)
    assert {doc: row["text"] for doc, row in found.items()} == {0: prose(1), 1: f"café {prose(2)}", 6: prose(3)}
    assert [row["best_rank"] for row in found.values()] == [1, 2, 2]
    assert left_out(subset) == {
        2: ("overlaps test", "1.00 of the n-grams of example 3"),
        3: ("too short", "2 words"),
        4: ("near-duplicate", "the same text as an earlier passage"),
    }
    rejected = pq.ParquetFile(subset.path("rejected.parquet")).read().to_pylist()
    assert [(row["file"], row["reason"]) for row in rejected] == [("small_external.csv", "empty")]
    assert subset.input("task").uri == task
    assert pq.read_schema(subset.path("passages-00000.parquet")).equals(SUBSET)


def test_without_a_task_nothing_is_looked_for_and_that_is_said(tmp_path, capsys):
    subset = taken(external(tmp_path / "x.csv", [prose(1), TEST_TEXT], ranks=False), tmp_path)
    assert [(row["text"], row["best_rank"], row["queries"]) for row in kept(subset).values()] == [
        (prose(1), None, []), (TEST_TEXT, None, [])
    ]  # fmt: skip
    assert "that contain dev or test texts are not removed" in capsys.readouterr().err


def test_near_duplicates_go_where_that_is_wanted_the_better_ranked_stays(tmp_path):
    near = prose(1, 40) + " more"
    path = external(tmp_path / "x.csv", [prose(2), prose(1, 40), prose(3), prose(4), prose(5), near])  # rank 1 and 0
    assert taken(path, tmp_path).details["passages"] == 6
    subset = taken(path, tmp_path, near_duplicates=True)
    assert left_out(subset) == {1: ("near-duplicate", "Jaccard 0.97 with doc 5")}


@pytest.mark.parametrize("extension", ["csv", "tsv", "jsonl", "parquet"])
def test_a_rank_counts_in_every_format(tmp_path, extension):
    texts, ranks = [prose(number) for number in range(4)], [3, 0, None, 1]
    written = {None: "", 1: "1.0"}  # as pandas does where a number is missing
    path = tmp_path / f"x.{extension}"
    if extension == "parquet":
        pq.write_table(pa.table({"text": texts, "rank": pa.array(ranks, pa.int64()), "id": texts}), path)
    elif extension == "jsonl":
        rows = (json.dumps({"text": text, "rank": rank}) for text, rank in zip(texts, ranks, strict=True))
        path.write_text("\n".join(rows))
    else:
        mark = "," if extension == "csv" else "\t"
        lines = [f"{text}{mark}{written.get(rank, rank)}" for text, rank in zip(texts, ranks, strict=True)]
        path.write_text("\n".join([f"text{mark}rank", *lines]))
    assert [row["best_rank"] for row in kept(taken(str(path), tmp_path)).values()] == [4, 1, None, 2]


def test_ranks_of_some_parquet_files_count(tmp_path):
    """Also as floats, which pandas makes of numbers where one is missing."""
    (tmp_path / "x").mkdir()
    columns = {"text": [prose(number) for number in range(3)], "rank": [2.0, float("nan"), 0.5]}
    pq.write_table(pa.table(columns), tmp_path / "x" / "a.parquet")
    pq.write_table(pa.table({"text": [prose(9)]}), tmp_path / "x" / "b.parquet")
    assert [row["best_rank"] for row in kept(taken(str(tmp_path / "x"), tmp_path)).values()] == [3, None, None, None]


def test_a_rank_of_more_than_nine_digits_is_a_row_set_aside(tmp_path):
    (tmp_path / "x.csv").write_text(f"text,rank\n{prose(1)},999999999\n{prose(2)},2147483647\n")
    subset = taken(str(tmp_path / "x.csv"), tmp_path)
    assert [row["best_rank"] for row in kept(subset).values()] == [10**9]
    assert subset.counts["rejected"] == {"rank too large": 1}


@given(texts=st.lists(st.text("ab c\u0301éß", max_size=30), min_size=1, max_size=30), at_once=st.integers(1, 7))
@settings(max_examples=40, deadline=None)
def test_portions_change_nothing_and_nothing_is_lost(tmp_path_factory, texts, at_once):
    folder = tmp_path_factory.mktemp("import")
    path = external(folder / "x.csv", texts)
    usual = staging.ROWS, judging.AT_ONCE
    options = {"min_words": 1, "max_rejected": 100}
    try:
        whole = taken(path, folder / "whole", **options)
        staging.ROWS = judging.AT_ONCE = at_once
        portions = taken(path, folder / "portions", **options)
    except InputError as error:
        assert "rows cannot be used" in str(error) or "leave none" in str(error) or "not one of the first" in str(error)  # noqa: PT017
        return
    finally:
        staging.ROWS, judging.AT_ONCE = usual
    assert whole.content == portions.content
    assert whole.counts["candidates"] == len(texts)
    assert len(kept(whole)) + len(left_out(whole)) + sum(whole.counts["rejected"].values()) == len(texts)


def test_overlaps_are_those_that_export_finds(tmp_path, monkeypatch):
    """The same verdicts as `judge` gives on all passages at once, though here new words have no numbers."""
    chance = np.random.default_rng(0)
    pool = [f"w{i}" for i in range(30)]
    tests = [" ".join(chance.choice(pool, 12)) for _ in range(8)]
    texts = [
        " ".join([*chance.choice(pool, 6), *tests[i % 8].split()[: i % 13], *chance.choice(pool, 6), f"new{i}"])
        for i in range(200)
    ]
    task = labelled(tmp_path / "task", tmp_path, tests)
    filters = Filters(False, True, jaccard=0.8, overlap_share=0.3, passage_share=0.5, ngram=8, min_words=5)
    docs, none = np.arange(len(texts)), np.zeros(len(texts))
    batches = [pa.record_batch({"doc": docs, "text": texts})]
    candidates = Candidates("", lambda: batches, docs, none.astype(np.int32), none.astype(np.float32))
    expected = judge(candidates, filters, {"": Artifact.open(task)})
    monkeypatch.setattr(judging, "AT_ONCE", 30)
    subset = taken(external(tmp_path / "x.csv", texts), tmp_path, task=task)
    assert {doc: reason for doc, (reason, _) in left_out(subset).items()} == {
        row: REASONS[reason] for row, reason in enumerate(expected.reason.tolist()) if reason
    }
    assert 20 < subset.counts["overlaps test"] < 180


def test_a_long_test_text_is_removed_passage_by_passage(tmp_path, monkeypatch):
    text = prose(0, 2000).split()
    pieces = [" ".join(text[start : start + 100]) for start in range(0, 2000, 100)]
    # Two thirds of this passage are words that no protected text has; they must not count as one
    quoting = " ".join([*text[50:80], *prose(1, 60).split()])
    task = labelled(tmp_path / "task", tmp_path, [" ".join(text)])
    monkeypatch.setattr(judging, "AT_ONCE", 7)
    subset = taken(external(tmp_path / "x.csv", [*pieces, quoting, prose(2, 100)]), tmp_path, task=task)
    assert sorted(kept(subset)) == [20, 21]
    assert set(left_out(subset).values()) == {("overlaps test", "1.00 of its n-grams are in example 3")}
    less = taken(
        external(tmp_path / "x.csv", [*pieces, quoting, prose(2, 100)]), tmp_path, task=task, passage_share=0.2
    )
    assert left_out(less)[20] == ("overlaps test", "0.28 of its n-grams are in example 3")


def test_a_closed_vocabulary_tells_new_words_apart_and_forgets_them():
    vocabulary = Vocabulary()
    vocabulary.encode(["a b"])
    vocabulary.close()
    words = vocabulary.encode(["b new a", "newer new"])
    assert (words.ids.tolist(), words.lengths.tolist()) == ([1, 2, 0, 3, 2], [3, 2])
    assert vocabulary.encode(["newest a"]).ids.tolist() == [2, 0]


def test_the_same_file_gives_the_same_subset_and_is_found_again(tmp_path):
    path = external(tmp_path / "x.csv", [prose(i) for i in range(50)])
    first = taken(path, tmp_path / "a")
    assert taken(path, tmp_path / "b").content == first.content
    modified = Path(first.path("dropped.parquet")).stat().st_mtime_ns
    assert Path(taken(path, tmp_path / "a").path("dropped.parquet")).stat().st_mtime_ns == modified


def test_a_person_errs_and_is_told_in_one_sentence(tmp_path):
    path = external(tmp_path / "x.csv", [prose(1)])
    assert "has no field 'texts'; it has 'text', 'id', 'rank'; did you mean 'text'?" in (
        refused(taken, path, tmp_path, text_field="texts")
    )
    assert "leave none of the 1 passages of" in refused(taken, path, tmp_path, min_words=100)
    assert "does not exist; did you mean 'x.csv'?" in refused(taken, str(tmp_path / "y.csv"), tmp_path)
    assert "no task of that name; did you mean 'paper:scierc'?" in refused(taken, "paper:scirec/small", tmp_path)
    assert refused(taken, "paper:scierc/medium", tmp_path) == (
        "paper:scierc/medium is not a published subset; expected paper:scierc/small or paper:scierc/large"
    )
    assert refused(taken, "glue:mnli/small", tmp_path) == "glue:mnli/small is not a published subset; there is none"


def test_stage_1_trains_on_it_and_reports_can_show_it(tmp_path):
    write_tiny(tmp_path / "data")
    root = str(tmp_path / "store")
    corpus = load_corpus([str(tmp_path / "data/corpus.jsonl")], root=root)
    task = load_task(str(tmp_path / "data/task"), root=root)
    texts = [text for batch in passages(Artifact.open(corpus)) for text in batch.to_pydict()["text"]][:100]
    subset = import_subset(external(tmp_path / "small_external.csv", texts), task=task, root=root)
    tokenizer = build_tokenizer(corpus, task, vocab_size=300, root=root)
    checkpoint = train(task, tokenizer=tokenizer, subset=subset, preset="tiny", root=root)
    assert Artifact.open(checkpoint).details["arm"] == "bm25"
    alone = Artifact.open(build_tokenizer(subset, task, vocab_size=300, root=root))  # where there is no corpus
    assert set(alone.manifest.inputs) == {"subset", "task"}
    assert alone.counts["texts"] == 60 + Artifact.open(subset).details["passages"]
    train(task, tokenizer=alone.uri, subset=subset, preset="tiny", root=root)
    passages_left = Artifact.open(subset).details["passages"]
    assert dataset_card(subset).startswith(f"## What bm25 retrieved\n\n10 of {passages_left} passages, evenly spaced")
    assert dropped(Artifact.open(subset))["missing"] == ""
