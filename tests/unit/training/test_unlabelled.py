"""Texts of a task that have no label: more queries, more text to learn from, and nothing else."""

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from research.multitask.train import train_multitask
from tests.tiny import write_tiny
from tests.toys import ragged
from tlm.artifacts.artifact import Artifact
from tlm.data.corpus.load import load_corpus
from tlm.data.tasks.examples import examples, read_splits, texts_in
from tlm.data.tasks.labelled import UNLABELLED
from tlm.data.tasks.task import load_task
from tlm.errors import InputError
from tlm.evaluation.score.baseline import baseline, static
from tlm.evaluation.score.evaluate import evaluate
from tlm.retrieval.retrieve import retrieve
from tlm.retrieval.search.index import build_index
from tlm.retrieval.subset.export import export
from tlm.runs.advise import advise_command
from tlm.settings.options import Fields
from tlm.shallow.static import StaticModel
from tlm.training.input.batches import EXTERNAL, External, Stream
from tlm.training.input.batches import UNLABELLED as NUMBER
from tlm.training.input.texts import Special, Texts
from tlm.training.input.tokenizer import build_tokenizer
from tlm.training.stages import finetune, train

MORE = [
    "a text that nobody labelled speaks of rye",
    "another one of yeast and dough",
    "A text that nobody labelled speaks of rye!",
]


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    write_tiny(tmp_path / "tiny")
    return tmp_path / "tiny"


def rows_of(file: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def more(tiny: Path, *texts: str) -> str:
    file = tiny / "more.jsonl"
    file.write_text("".join(json.dumps({"text": text, "url": "x"}) + "\n" for text in (*texts, *MORE)))
    return str(file)


def test_they_come_once_and_without_those_of_labelled_examples(tiny: Path, tmp_path: Path) -> None:
    known = [rows_of(tiny / "task" / f"{split}.jsonl")[0]["text"] for split in ("train", "dev", "test")]
    root = str(tmp_path / "store")
    plain = Artifact.open(load_task(str(tiny / "task"), root=root))
    task = Artifact.open(load_task(str(tiny / "task"), unlabelled=more(tiny, *known), root=root))
    table, before = examples(task), examples(plain)
    assert table.slice(0, len(before)).equals(before), "labelled examples are what they were"
    added = table.slice(len(before)).to_pylist()
    assert [one["text"] for one in added] == MORE[:2]
    assert {(one["split"], one["label"], one["target"]) for one in added} == {(UNLABELLED, None, None)}
    counts = {name: count for name, count in task.counts.items() if UNLABELLED in name}
    assert counts == {
        UNLABELLED: 2,
        "unlabelled, in dev or test": 2,
        "unlabelled, in train": 1,
        "unlabelled, repeated": 1,
    }
    assert texts_in(task, UNLABELLED) == MORE[:2]
    assert texts_in(plain, UNLABELLED) == []
    assert {name: len(split.texts) for name, split in read_splits(task, "train", "dev", "test").items()} == {
        name: len(split.texts) for name, split in read_splits(plain, "train", "dev", "test").items()
    }


WORDS = [f"w{i}" for i in range(20)]
SECRET = " ".join(["<e1>w0</e1>", *WORDS[1:10], "<e2>w10</e2>", *WORDS[11:]])  # a test text
HIDDEN = {
    "with five words behind it": " ".join([*WORDS, "and", "this", "is", "the", "end"]),
    "half of it": " ".join([*WORDS[:13], "but", "not", "the", "rest"]),
    "with other marks": " ".join([*WORDS[:3], "[[", *WORDS[3:8], "]]", *WORDS[8:]]),
    "with other spans": " ".join([*WORDS[:3], f"<e1>{WORDS[3]}</e1>", "<e2>w4</e2>", *WORDS[5:]]),
    "with soft hyphens": " ".join(f"{word[0]}\u00ad{word[1:]}" for word in WORDS),
    "five words of it": " ".join(WORDS[4:9]),
    "in a long text": " ".join([*(f"x{i}" for i in range(300)), *WORDS]),
}


@pytest.mark.parametrize("how", HIDDEN)
@pytest.mark.parametrize("split", ["dev", "test"])
def test_what_overlaps_dev_or_test_is_left_out_as_passages_are(
    tiny: Path, tmp_path: Path, split: str, how: str
) -> None:
    file = tiny / "task" / f"{split}.jsonl"
    file.write_text(file.read_text() + json.dumps({"text": SECRET, "label": rows_of(file)[0]["label"]}) + "\n")
    given = more(tiny, HIDDEN[how], "another text that says w1 and w5 and w9 now and then")
    task = Artifact.open(load_task(str(tiny / "task"), unlabelled=given, root=str(tmp_path / "store")))
    assert texts_in(task, UNLABELLED) == ["another text that says w1 and w5 and w9 now and then", *MORE[:2]]
    left_out = {name: count for name, count in task.counts.items() if name.startswith(f"{UNLABELLED}, ")}
    same = how in ("with other marks", "with other spans", "with soft hyphens")
    reason = "unlabelled, in dev or test" if same else "unlabelled, overlaps dev or test"
    assert left_out == {reason: 1, "unlabelled, repeated": 1}


def test_either_text_of_a_pair_may_overlap_either_of_another(tmp_path: Path) -> None:
    folder, secret = tmp_path / "pairs", " ".join(WORDS)
    folder.mkdir()
    for split, count in (("train", 4), ("dev", 2), ("test", 2)):
        rows = [{"text": f"{split} {i}", "second": f"the other {split} {i}", "label": f"{i % 2}"} for i in range(count)]
        rows[0] |= {"second": secret} if split == "test" else {}
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = [("fine words here", "and there"), (f"{secret} more", "and there"), ("fine words there", f"more {secret}")]
    file = tmp_path / "more.jsonl"
    file.write_text("".join(json.dumps({"text": one, "second": other}) + "\n" for one, other in found))
    task = load_task(
        str(folder), fields=Fields(pair_field="second"), unlabelled=str(file), root=str(tmp_path / "store")
    )
    assert texts_in(Artifact.open(task), UNLABELLED) == ["fine words here", "and there"]
    assert Artifact.open(task).counts["unlabelled, overlaps dev or test"] == 2


def test_without_them_nothing_changes(tiny: Path, tmp_path: Path) -> None:
    task = Artifact.open(load_task(str(tiny / "task"), root=str(tmp_path / "store")))
    assert UNLABELLED not in json.dumps(task.manifest.settings)
    assert UNLABELLED not in json.dumps(task.counts)


def test_bad_rows_are_set_aside_and_a_missing_field_is_named(tiny: Path, tmp_path: Path) -> None:
    file = Path(more(tiny))
    file.write_text(file.read_text() + '{"text": ""}\n{"text": 3}\n')
    task = Artifact.open(load_task(str(tiny / "task"), unlabelled=str(file), root=str(tmp_path / "store")))
    assert task.counts[UNLABELLED] == 2
    assert len(pq.read_table(task.path("rejected.parquet"))) == 2
    file.write_text('{"words": "rye"}\n')
    with pytest.raises(InputError, match=r"more.jsonl has no field 'text'"):
        load_task(str(tiny / "task"), unlabelled=str(file), root=str(tmp_path / "store"))


def test_they_are_queries_and_what_they_find_is_trained_on(tiny: Path, tmp_path: Path) -> None:
    root = str(tmp_path / "store")
    task = load_task(str(tiny / "task"), unlabelled=more(tiny), root=root)
    corpus = load_corpus([str(tiny / "corpus.jsonl")], root=root)
    hits = Artifact.open(retrieve(build_index(corpus, root=root), task, top_k=3, root=root))
    asked = {row for query in pq.read_table(hits.path("queries.parquet"))["examples"].to_pylist() for row in query}
    split = examples(Artifact.open(task))["split"].to_pylist()
    assert Counter(split[row] for row in asked).keys() == {"train", UNLABELLED}
    assert hits.counts["examples"] == split.count("train") + 2
    subset = export(hits.uri, root=root)
    assert static(task, subset=subset, root=root) != static(task, root=root)
    tokenizer = build_tokenizer(corpus, task, vocab_size=300, root=root)
    steps = ["train.steps=8", "train.warmup_steps=1", "finetune.epochs=1"]
    for given, rho1, external in (({"subset": subset}, "1", 4), ({}, "1", 4), ({}, "inf", 8)):
        checkpoint = train(
            task, tokenizer=tokenizer, preset="tiny", overrides=[*steps, f"train.rho1={rho1}"], root=root, **given
        )
        assert Artifact.open(checkpoint).counts["external_steps"] == external, "without a subset, they are all there is"
        metrics = evaluate(finetune(checkpoint, task, preset="tiny", overrides=steps, root=root), task, root=root)
        assert Artifact.open(metrics).counts == {"dev": split.count("dev"), "test": split.count("test")}
    baseline(task, root=root)


def test_static_vectors_are_learned_from_them(tiny: Path, tmp_path: Path) -> None:
    root = str(tmp_path / "store")
    task = load_task(str(tiny / "task"), unlabelled=more(tiny, *(f"rye number {n}" for n in range(3))), root=root)
    model = Artifact.open(static(task, root=root)).input("model")
    assert "rye" in StaticModel.read(model.path("model")).vectors.words


def test_advice_counts_them_because_each_retrieves_as_many_passages(tiny: Path, tmp_path: Path) -> None:
    root = str(tmp_path / "store")
    corpus = load_corpus([str(tiny / "corpus.jsonl")], root=root)
    for texts, top_k in ((), 6), ([f"rye number {number}" for number in range(38)], 4):
        task = load_task(str(tiny / "task"), unlabelled=more(tiny, *texts), root=root)
        assert advise_command(task, corpus=corpus).startswith(f"retrieve.top_k={top_k} "), "of 400, for 62 and 100"


def test_advice_and_the_search_choose_the_same_query(tiny: Path, tmp_path: Path) -> None:
    root = str(tmp_path / "store")
    index = build_index(load_corpus([str(tiny / "corpus.jsonl")], root=root), root=root)
    task = load_task(str(tiny / "task"), unlabelled=more(tiny, *(f"rye {n} " * 60 for n in range(99))), root=root)
    assert "retrieve.query=rake" in advise_command(task)
    assert Artifact.open(retrieve(index, task, query="auto", root=root)).details["query"] == "rake"


def test_several_tasks_together_refuse_them(tiny: Path, tmp_path: Path) -> None:
    root = str(tmp_path / "store")
    task = load_task(str(tiny / "task"), unlabelled=more(tiny), root=root)
    tokenizer = build_tokenizer(load_corpus([str(tiny / "corpus.jsonl")], root=root), task, vocab_size=300, root=root)
    with pytest.raises(InputError, match="has texts without labels, which train for one task alone"):
        train_multitask([task], tokenizer=tokenizer, preset="tiny", root=root)


def texts(count: int, start: int, longest: int) -> Texts:
    rows = [[start + number] * (1 + number % 3) for number in range(count)]
    return Texts(ragged(rows), None, longest, Special(0, 1, 2, 3, 4))


def read_by(external: External, batches: int) -> list[list[int]]:
    return [sorted(external.batch(index).ids[:, 1].tolist()) for index in range(batches)]


def test_each_source_has_its_share_of_the_batches_and_is_read_whole() -> None:
    passages, own = texts(60, 100, 9), texts(40, 500, 7)
    rows = np.arange(20, 40)
    external = External(passages, (own, rows), 4, 0)
    found = read_by(external, 40)  # 80 texts: two epochs of 20 batches
    of_task = [index for index, batch in enumerate(found) if batch[0] >= 500]
    assert len(of_task) == 10, "a quarter of the texts"
    assert {later - earlier for earlier, later in pairwise(of_task)} == {4}
    assert all((batch[0] >= 500) == (batch[-1] >= 500) for batch in found), "a batch is of one source"
    assert Counter(word for batch in found for word in batch) == dict.fromkeys([*range(100, 160), *range(520, 540)], 2)
    assert [external.batch(index).most for index in (0, of_task[0])] == [9, 7]


def test_one_source_alone_is_read_in_the_order_it_always_had() -> None:
    passages, nothing = texts(30, 100, 9), (texts(5, 500, 7), np.zeros(0, np.int64))
    stream = Stream(passages, np.arange(30), 4, 3, EXTERNAL)
    expected = [sorted((100 + stream.rows_of(index)).tolist()) for index in range(20)]
    assert read_by(External(passages, nothing, 4, 3), 20) == expected
    own = texts(10, 500, 7)
    alone = Stream(own, np.arange(2, 10), 4, 3, NUMBER)
    expected = [sorted((500 + alone.rows_of(index)).tolist()) for index in range(8)]
    assert read_by(External(None, (own, np.arange(2, 10)), 4, 3), 8) == expected
    assert not External(None, nothing, 4, 3)
