"""The export of hits: union, filters, provenance, and what is written of what was removed."""

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.searchable import prose
from tlm.artifacts.artifact import Artifact
from tlm.artifacts.produce import Draft, Recipe, produce
from tlm.data.passages import passages
from tlm.errors import InputError
from tlm.retrieval.subset.export import by_document, collect, collected, export, queries_of, read_hits
from tlm.retrieval.subset.judge import Candidates
from tlm.settings.options import Filters

HITS = pa.schema([("query", pa.int64()), ("doc", pa.int64()), ("rank", pa.int32()), ("score", pa.float32())])
EXAMPLES = pa.schema(
    [(name, pa.string()) for name in ("id", "text", "text_pair", "label")]
    + [("target", pa.float64()), ("split", pa.string())]
)
MARKED = (
    "We show that [[ domain adaptation ]] of a small model improves << relation extraction >> on unseen sentences ."
)
ROLLED = "the old town hall was built of red brick by a guild of weavers in the year of the great flood"

Hit = tuple[int, int, int, float]


def make(
    root: Path,
    texts: list[str],
    hits: list[Hit],
    dev: list[str] = (),
    test: list[str] = (),
    pairs: list[str] = (),
    **details: object,
) -> str:
    """Artifacts as the earlier steps write them; the hits' URI. `pairs` are second texts of the test examples."""

    def artifact(kind: str, files: dict[str, pa.Table], inputs: dict[str, Artifact], **details: object) -> Artifact:
        def write(draft: Draft) -> None:
            for name, table in files.items():
                pq.write_table(table, draft.folder / name)
                draft.rows[name] = len(table)
            draft.details = details

        version = str([kind, [table.to_pylist() for table in files.values()], details])
        return Artifact.open(produce(Recipe(kind, kind, 1, {"as": version}, inputs), str(root), write))

    half = len(texts) // 2
    shards = {
        f"passages-{i:05d}.parquet": pa.table({"id": part, "doc": docs, "text": part})
        for i, (part, docs) in enumerate([(texts[:half], range(half)), (texts[half:], range(half, len(texts)))])
    }
    corpus = artifact("corpus", shards, {}, passages=len(texts))
    rows = [(text, None, "train") for text in ("a train text of some words", "another")]
    rows += [(text, None, "dev") for text in dev]
    rows += [(text, pairs[i] if pairs else None, "test") for i, text in enumerate(test)]
    examples = [{"id": str(i), "text": a, "text_pair": b, "label": "x", "split": s} for i, (a, b, s) in enumerate(rows)]
    task = artifact("task", {"examples.parquet": pa.Table.from_pylist(examples, EXAMPLES)}, {})
    index = artifact("index", {}, {"corpus": corpus})
    table = pa.table([list(column) for column in zip(*sorted(hits), strict=True)] or [[]] * 4, schema=HITS)
    facts = {"arm": "bm25", "like": None, **details}
    return artifact("hits", {"hits.parquet": table}, {"index": index, "task": task}, **facts).uri


def one_each(texts: list[str]) -> list[Hit]:
    """One query that has all texts in order."""
    return [(0, doc, doc + 1, 100.0 - doc) for doc in range(len(texts))]


def kept(subset: str) -> dict[int, dict[str, object]]:
    return {row["doc"]: row for batch in passages(Artifact.open(subset, "subset")) for row in batch.to_pylist()}


def dropped(subset: str) -> dict[int, tuple[str, str]]:
    rows = pq.read_table(Artifact.open(subset, "subset").path("dropped.parquet")).to_pylist()
    return {row["doc"]: (row["reason"], row["detail"]) for row in rows}


def test_a_planted_test_sentence_and_a_planted_near_duplicate_are_removed(tmp_path):
    plain = MARKED.translate(str.maketrans("", "", "[]<>")).lower()
    texts = [
        prose(0), f"{prose(1)} {plain}", prose(0) + " more", prose(2), "too short", f"{ROLLED} {prose(3)}", prose(4),
    ]  # fmt: skip
    hits = make(tmp_path, texts, one_each(texts)[:6], dev=[ROLLED], test=[MARKED])
    subset = export(hits, root=str(tmp_path))
    assert sorted(kept(subset)) == [0, 3]
    assert kept(subset)[3]["text"] == texts[3]
    assert dropped(subset) == {
        1: ("overlaps test", "1.00 of the n-grams of example 3"),
        2: ("near-duplicate", "Jaccard 0.94 with doc 0"),
        4: ("too short", "2 words"),
        5: ("overlaps dev", "1.00 of the n-grams of example 2"),
    }
    artifact = Artifact.open(subset, "subset")
    assert artifact.details == {"arm": "bm25", "passages": 2}
    assert artifact.counts == {
        "candidates": 6, "kept": 2, "too short": 1, "overlaps test": 1, "overlaps dev": 1, "near-duplicate": 1,
        "surplus": 0,
    }  # fmt: skip


def test_of_a_dev_and_a_test_text_in_a_passage_the_test_text_is_named(tmp_path):
    texts = [f"{ROLLED} {MARKED}", prose(0)]
    subset = export(make(tmp_path, texts, one_each(texts), dev=[ROLLED], test=[MARKED]), root=str(tmp_path))
    assert dropped(subset) == {0: ("overlaps test", "1.00 of the n-grams of example 3")}


def test_five_words_are_enough_and_four_are_not(tmp_path):
    texts = ["five words are enough here", "four words are few"]
    subset = export(make(tmp_path, texts, one_each(texts)), root=str(tmp_path))
    assert (list(kept(subset)), list(dropped(subset))) == ([0], [1])


def test_what_is_too_short_is_not_looked_for(tmp_path):
    texts = [ROLLED, prose(0, 100)]
    hits = make(tmp_path, texts, one_each(texts), test=[ROLLED])
    subset = export(hits, filters=Filters(min_words=30), root=str(tmp_path))
    assert dropped(subset) == {0: ("too short", "21 words")}


def test_each_filter_can_be_switched_off(tmp_path):
    texts = [prose(0), prose(0) + " more", f"{prose(1)} {MARKED}", "too short"]
    hits = make(tmp_path, texts, one_each(texts), test=[MARKED])

    def reasons(**off: object) -> dict[int, str]:
        return {
            doc: reason
            for doc, (reason, _) in dropped(export(hits, filters=Filters(**off), root=str(tmp_path))).items()
        }

    assert reasons() == {1: "near-duplicate", 2: "overlaps test", 3: "too short"}
    assert reasons(near_duplicates=False) == {2: "overlaps test", 3: "too short"}
    assert reasons(overlap=False) == {1: "near-duplicate", 3: "too short"}
    assert reasons(min_words=0) == {1: "near-duplicate", 2: "overlaps test"}
    assert reasons(min_words=0, overlap=False, near_duplicates=False) == {}
    assert reasons(jaccard=1.0) == {2: "overlaps test", 3: "too short"}


@pytest.mark.parametrize(
    ("better", "worse"),
    [((2, 1.0), (3, 9.0)), ((2, 1.5), (2, 1.0)), ((1, 1.0), (1, 1.0))],
    ids=["rank", "score", "doc"],
)
@pytest.mark.parametrize("best_is_first", [True, False])
def test_the_best_of_near_duplicates_stays(tmp_path, better, worse, best_is_first):
    best = better if best_is_first or better == worse else worse
    other = worse if best is better else better
    hits = make(tmp_path, [prose(0), prose(0) + " more"], [(0, 0, *best), (1, 1, *other)])
    assert sorted(kept(export(hits, root=str(tmp_path)))) == [0 if best is better else 1]


def test_a_contaminated_passage_does_not_push_out_its_clean_twin(tmp_path):
    secret = "the eight words that only the test has"
    clean = f"{prose(1, 100)} these are eight other words of no weight {prose(2, 100)}"
    texts = [f"{prose(1, 100)} {secret} {prose(2, 100)}", clean]
    hits = make(tmp_path, texts, one_each(texts), test=[secret])
    assert sorted(kept(export(hits, filters=Filters(overlap=False), root=str(tmp_path)))) == [0]
    assert sorted(kept(export(hits, root=str(tmp_path)))) == [1]


def test_second_texts_of_pairs_are_protected(tmp_path):
    texts = [f"{prose(0)} {ROLLED}", prose(1)]
    hits = make(tmp_path, texts, one_each(texts), test=["a premise about something else"], pairs=[ROLLED])
    assert dropped(export(hits, root=str(tmp_path))) == {0: ("overlaps test", "1.00 of the n-grams of example 2")}


def test_texts_that_are_too_short_to_be_looked_for_are_counted(tmp_path, capsys):
    test = ["too short", "just long enough", MARKED]
    export(make(tmp_path, [prose(0)], [(0, 0, 1, 1.0)], dev=[ROLLED], test=test), root=str(tmp_path))
    assert (
        "1 dev and test texts have fewer than 3 words or 8 characters: passages may contain" in capsys.readouterr().err
    )


def test_a_text_of_a_few_letters_of_which_each_is_a_word_is_not_looked_for(tmp_path, capsys):
    han = ["".join(chr(0x4E00 + 97 * row + letter) for letter in range(40)) for row in range(2)]
    few, enough = "太好了真的是", "我们明天去爬山吧"
    texts = [han[0] + few, han[1] + enough]
    subset = export(make(tmp_path, texts, one_each(texts), dev=[few], test=[enough]), root=str(tmp_path))
    assert dropped(subset) == {1: ("overlaps test", "1.00 of the n-grams of example 3")}
    assert "1 dev and test texts have fewer" in capsys.readouterr().err


def test_random_hits_are_cut_to_as_many_as_the_other_subset_has(tmp_path):
    texts = [prose(i) for i in range(6)] + [prose(0) + " more"]
    hits = [(0, doc, rank, 0.0) for rank, doc in enumerate([5, 6, 0, 2, 4, 1, 3], start=1)]
    subset = export(make(tmp_path, texts, hits, arm="random", like=3), root=str(tmp_path))
    assert sorted(kept(subset)) == [2, 5, 6]
    assert Artifact.open(subset).counts["surplus"] == 3
    assert Artifact.open(subset).counts["missing"] == 0
    assert Artifact.open(subset).details == {"arm": "random", "passages": 3}
    assert dropped(subset) == {0: ("near-duplicate", "Jaccard 0.94 with doc 6")}


def test_too_few_random_hits_are_counted(tmp_path, capsys):
    texts = [prose(i) for i in range(4)]
    subset = export(make(tmp_path, texts, one_each(texts), arm="random", like=9), root=str(tmp_path))
    assert Artifact.open(subset).counts["missing"] == 5
    assert "9 passages were asked for, but only 4 are left" in capsys.readouterr().err


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(0, 11), max_size=8, unique=True), min_size=1, max_size=7), st.data())
def test_union_and_provenance(tmp_path_factory, found, data):
    scores = st.sampled_from([0.5, 1.0, 2.5])
    hits = [
        (query, doc, rank, data.draw(scores)) for query, docs in enumerate(found) for rank, doc in enumerate(docs, 1)
    ]
    path = tmp_path_factory.mktemp("hits") / "hits.parquet"
    pq.write_table(pa.table([list(column) for column in zip(*hits, strict=True)] or [[]] * 4, schema=HITS), path)
    docs = sorted({doc for _, doc, _, _ in hits})
    ranked = read_hits(path, "doc", "rank", "score")
    union = Candidates("", list, *by_document(ranked))
    assert union.docs.tolist() == docs
    best = {doc: (min(h[2] for h in hits if h[1] == doc), max(h[3] for h in hits if h[1] == doc)) for doc in docs}
    assert list(zip(union.best_rank.tolist(), union.best_score.tolist(), strict=True)) == [best[doc] for doc in docs]
    order = sorted(docs, key=lambda doc: (best[doc][0], -best[doc][1], doc))
    assert union.docs[union.best_first()].tolist() == order
    wanted = docs[::2]
    assert queries_of(path, union.docs[::2]).to_pylist() == [
        [query for query, other, _, _ in hits if other == doc] for doc in wanted
    ]


def test_rows_of_the_subset_across_shards(tmp_path):
    texts = [prose(i, 6) for i in range(30_000)]
    hits = [(query, doc, doc + 1, 1.0) for query in range(3) for doc in range(query, 30_000, 1 + query)]
    subset = Artifact.open(export(make(tmp_path, texts, hits), root=str(tmp_path)), "subset")
    askers = Counter(doc for _, doc, _, _ in hits)
    rows = kept(subset.uri)
    assert list(rows) == list(range(30_000))
    assert all(row["text"] == texts[doc] and row["best_rank"] == doc + 1 for doc, row in rows.items())
    assert all(len(row["queries"]) == askers[doc] for doc, row in rows.items())
    assert (rows[5]["queries"], rows[8]["queries"]) == ([0, 1, 2], [0, 2])
    assert sum(entry.rows or 0 for entry in subset.entries("passages-*")) == 30_000


def test_another_test_text_makes_another_subset_of_the_same_hits(tmp_path):
    texts = [prose(0), f"{prose(1)} {ROLLED}"]
    before = make(tmp_path, texts, one_each(texts), test=["something else that is never said"])
    after = make(tmp_path, texts, one_each(texts), test=[ROLLED])
    assert Artifact.open(before).content == Artifact.open(after).content
    assert sorted(kept(export(before, root=str(tmp_path)))) == [0, 1]
    assert sorted(kept(export(after, root=str(tmp_path)))) == [0]


def test_a_filter_that_is_off_does_not_make_another_subset(tmp_path):
    texts = [prose(0), f"{prose(1)} {ROLLED}"]
    hits = [make(tmp_path, texts, one_each(texts), test=[test]) for test in (ROLLED, "something else")]
    off = {"near_duplicates": False, "overlap": False}
    settings = {"jaccard": 0.1, "overlap_share": 0.9, "passage_share": 0.9, "ngram": 3}
    subsets = {export(one, filters=Filters(**off, **how), root=str(tmp_path)) for one in hits for how in ({}, settings)}
    assert len(subsets) == 1
    assert set(Artifact.open(subsets.pop()).manifest.inputs) == {"hits", "corpus"}


def test_hits_that_hold_nothing(tmp_path):
    with pytest.raises(InputError, match="holds no hit"):
        export(make(tmp_path, [prose(0)], []), root=str(tmp_path))


def test_filters_that_leave_nothing(tmp_path):
    texts = ["too short", ROLLED]
    with pytest.raises(InputError, match=r"leave none of the 2 passages .*\(too short 1, overlaps test 1\)"):
        export(make(tmp_path, texts, one_each(texts), test=[ROLLED]), root=str(tmp_path))


@pytest.mark.parametrize("processes", [1, 2])
def test_texts_are_collected_from_a_corpus_of_many_shards(tmp_path, monkeypatch, processes):
    """Some shards have no candidate, some have several, and the last is short."""
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", f"{processes}")
    texts = [prose(number) for number in range(47)]

    def write(draft: Draft) -> None:
        for start in range(0, len(texts), 5):
            own = texts[start : start + 5]
            name = f"passages-{start // 5:05d}.parquet"
            pq.write_table(pa.table({"doc": range(start, start + len(own)), "text": own}), draft.folder / name)
            draft.rows[name] = len(own)

    corpus = Artifact.open(produce(Recipe("corpus", "corpus", 1, {}), str(tmp_path), write))
    docs = [0, 3, 9, 21, 22, 40, 45, 46]
    folder = tmp_path / "texts"
    folder.mkdir()
    collect(corpus, np.array(docs), folder)
    found = [row for batch in collected(sorted(folder.iterdir())) for row in batch.to_pylist()]
    assert found == [{"doc": doc, "text": texts[doc]} for doc in docs]
