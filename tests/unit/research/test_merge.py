"""Subsets of several tasks as one: each passage once, who asked for it, and nobody's dev or test text in it."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from research.multitask.merge import merge_subsets
from research.retrieval.step import retrieval_study
from research.retrieval.subsets import Subset
from tests.searchable import corpus_of, prose
from tests.toys import make, make_task, save
from tlm.artifacts.artifact import Artifact
from tlm.data.passages import passages
from tlm.errors import InputError
from tlm.evaluation.report.lineage import dropped as told_dropped
from tlm.retrieval.subset.export import export
from tlm.settings.options import Filters

SECRET = "the old town hall was built of red brick by a guild of weavers in the year of the great flood"
Found = list[list[int]]  # by query, the documents in the order of their ranks


def subset_of(root: Path, corpus: str, name: str, found: Found, held_out: str = "", **how: Any) -> str:
    """What `export` makes of these hits of a task called `name`, one of whose test texts is `held_out`."""
    train = [(f"question {number} of {name}", None, "yes", "train") for number in range(len(found))]
    rest = [
        ("a dev text of no importance", None, "yes", "dev"),
        (held_out or "nothing to see here", None, "no", "test"),
    ]
    task = make_task(root, [*train, *rest], "accuracy", ["no", "yes"], name)  # type: ignore[list-item]

    def write(draft: Any) -> None:
        rows = [(q, doc, rank, 50.0 - rank - q) for q, docs in enumerate(found) for rank, doc in enumerate(docs, 1)]
        columns = [np.array(column) for column in zip(*rows, strict=True)]
        types = (pa.int64(), pa.int64(), pa.int32(), pa.float32())
        arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
        save(draft, "hits.parquet", dict(zip(("query", "doc", "rank", "score"), arrays, strict=True)))
        examples = [[number] for number in range(len(found))]
        texts = [text for text, *_ in train]
        save(draft, "queries.parquet", {"query": list(range(len(found))), "text": texts, "examples": examples})
        draft.details.update(arm="bm25", like=None)
        draft.counts.update(queries=len(found))

    index = make("index", root, lambda draft: None, {"of": corpus}, {"corpus": corpus})
    hits = make("hits", root, write, {"name": name, "found": found}, {"index": index, "task": task})
    return export(hits, filters=Filters(**how), root=str(root))


def rows_of(subset: str) -> dict[int, dict[str, Any]]:
    return {row["doc"]: row for batch in passages(Artifact.open(subset, "subset")) for row in batch.to_pylist()}


def dropped(subset: str) -> dict[int, tuple[str, str]]:
    rows = pq.read_table(Artifact.open(subset, "subset").path("dropped.parquet")).to_pylist()
    return {row["doc"]: (row["reason"], row["detail"]) for row in rows}


queries = st.lists(st.lists(st.integers(0, 11), min_size=1, max_size=6, unique=True), min_size=1, max_size=4)


@given(st.lists(queries, min_size=1, max_size=3))
@settings(max_examples=25, deadline=None)
def test_each_passage_is_there_once_and_the_provenance_sums_up(tmp_path_factory, found: list[Found]):
    root = tmp_path_factory.mktemp("merge")
    texts = [prose(seed) for seed in range(12)]
    corpus, names = corpus_of(texts, str(root)), ["one", "two", "three"][: len(found)]
    parts = [subset_of(root, corpus, name, own) for name, own in zip(names, found, strict=True)]
    merged = Artifact.open(merge_subsets(parts, root=str(root)))
    rows = rows_of(merged.uri)
    docs = [doc for batch in passages(merged) for doc in batch.column("doc").to_pylist()]
    assert docs == sorted({doc for own in found for query in own for doc in query})  # ascending, each once
    told = merged.details["tasks"]
    assert [task["name"] for task in told] == names
    assert [task["first_query"] for task in told] == [sum(map(len, found[:place])) for place in range(len(found))]
    for doc, row in rows.items():
        asked = [(t, q) for t, own in enumerate(found) for q, query in enumerate(own) if doc in query]
        ranks = [found[t][q].index(doc) + 1 for t, q in asked]
        assert row["text"] == texts[doc]
        assert row["queries"] == [told[t]["first_query"] + q for t, q in asked]
        assert row["tasks"] == [names[t] for t in sorted({t for t, _ in asked})]
        assert row["best_rank"] == min(ranks)
        assert row["best_score"] == max(50.0 - rank - q for rank, (_, q) in zip(ranks, asked, strict=True))
    own = [rows_of(part) for part in parts]
    assert sum(len(row["queries"]) for row in rows.values()) == sum(
        len(row["queries"]) for part in own for row in part.values()
    )
    assert [task["passages"] for task in told] == [len(part) for part in own]
    assert merged.counts["retrieved"] == sum(map(len, own))
    assert merged.counts["by several"] == sum(len(row["tasks"]) > 1 for row in rows.values())


def test_what_holds_any_task_s_test_text_goes_and_is_told(tmp_path):
    texts = [prose(0), f"{prose(1)} {SECRET}", prose(2), f"{prose(2)} more"]
    corpus = corpus_of(texts, str(tmp_path))
    one = subset_of(tmp_path, corpus, "one", [[0, 1, 2]])
    two = subset_of(tmp_path, corpus, "two", [[3, 1]], SECRET)
    assert 1 in rows_of(one)  # its own export keeps what is another task's test text
    assert 1 not in rows_of(two)
    merged = merge_subsets([one, two], root=str(tmp_path))
    assert sorted(rows_of(merged)) == [0, 3]  # of the near-duplicates, the one of the better rank
    assert dropped(merged) == {
        1: ("overlaps test", "1.00 of the n-grams of example 2 of two"),
        2: ("near-duplicate", "Jaccard 0.94 with doc 3"),
    }
    assert Artifact.open(merged).counts == {
        "retrieved": 4, "candidates": 4, "kept": 2, "too short": 0, "overlaps test": 1, "overlaps dev": 0,
        "near-duplicate": 1, "by several": 0,
    }  # fmt: skip
    assert [task["passages"] for task in Artifact.open(merged).details["tasks"]] == [1, 1]
    assert sorted(rows_of(merge_subsets([one, two], filters=Filters(overlap=False), root=str(tmp_path)))) == [0, 1, 3]
    kept = rows_of(merge_subsets([one, two], filters=Filters(overlap=False, near_duplicates=False), root=str(tmp_path)))
    assert sorted(kept) == [0, 1, 2, 3]


def test_what_reads_subsets_reads_a_merged_one(tmp_path):
    texts = [prose(0), f"{prose(1)} {SECRET}", prose(2)]
    corpus = corpus_of(texts, str(tmp_path))
    parts = [subset_of(tmp_path, corpus, "one", [[0, 1]]), subset_of(tmp_path, corpus, "two", [[2]], SECRET)]
    merged = Artifact.open(merge_subsets(parts, root=str(tmp_path)))
    read = Subset.read(merged, "both", "bm25")
    assert read.docs.tolist() == [0, 2]
    assert read.corpus.uri == corpus
    told = told_dropped(merged, Artifact.open(corpus))
    assert [(one["reason"], one["samples"][0]["text"]) for one in told["reasons"]] == [("overlaps test", texts[1])]


def test_the_same_subsets_give_the_same_content(tmp_path):
    contents = set()
    for root in (tmp_path / "a", tmp_path / "b"):
        corpus = corpus_of([prose(seed) for seed in range(9)], str(root))
        parts = [subset_of(root, corpus, "one", [[0, 5], [3]]), subset_of(root, corpus, "two", [[8, 5]])]
        contents.add(Artifact.open(merge_subsets(parts, root=str(root))).content)
    assert len(contents) == 1


def test_what_cannot_be_merged_is_one_sentence(tmp_path):
    corpus, other = (corpus_of([prose(seed) for seed in seeds], str(tmp_path)) for seeds in (range(4), range(5)))
    one, two = subset_of(tmp_path, corpus, "one", [[0, 1]]), subset_of(tmp_path, other, "two", [[2]])
    for wrong, sentence in (
        ([], "no subset is given"),
        ([one, two], "are of different corpora; retrieve all tasks from one index"),
        ([one, one], "two of the subsets are of a task called 'one'"),
        ([merge_subsets([one], root=str(tmp_path))], "was not made by export"),
    ):
        with pytest.raises(InputError, match=sentence):
            merge_subsets(wrong, root=str(tmp_path))
    hidden = subset_of(tmp_path, corpus_of([f"{prose(1)} {SECRET}"], str(tmp_path)), "three", [[0]], overlap=False)
    only = subset_of(tmp_path, corpus_of([f"{prose(1)} {SECRET}"], str(tmp_path)), "four", [[0]], SECRET, overlap=False)
    with pytest.raises(InputError, match="the filters leave none of the 1 passages"):
        merge_subsets([hidden, only], root=str(tmp_path))


def test_a_study_names_the_tasks_of_a_merged_subset(tmp_path: Path) -> None:
    corpus = corpus_of([prose(seed) for seed in range(6)], str(tmp_path))
    own = [subset_of(tmp_path, corpus, name, [[place, place + 1]]) for place, name in enumerate(("one", "two"))]
    study = Artifact.open(retrieval_study([merge_subsets(own, root=str(tmp_path)), *own], root=str(tmp_path)))
    assert list(study.manifest.settings["names"]) == ["bm25 for one + two", "bm25 for one", "bm25 for two"]
