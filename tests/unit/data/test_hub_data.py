"""Data of the Hub, with a stand-in of it on the disk: tasks, corpora and what is said where it is not reached."""

import json
import sys
from pathlib import Path

import pytest

from tests import standin_hub
from tests.tiny import refused
from tests.tiny import write_rows as write
from tlm.artifacts.artifact import Artifact
from tlm.data import registry
from tlm.data.corpus.load import load_corpus
from tlm.data.passages import passages
from tlm.data.tasks.examples import examples
from tlm.data.tasks.task import load_task


@pytest.fixture
def hub_folder(tmp_path, monkeypatch):
    """Where the stand-in has its data sets."""
    for package in ("datasets", "huggingface_hub"):
        monkeypatch.setitem(sys.modules, package, standin_hub)
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")  # the stand-in is in this process alone
    monkeypatch.setenv("TLM_TEST_HUB", str(tmp_path / "hub"))
    registry._commit.cache_clear()
    yield tmp_path / "hub"
    registry._commit.cache_clear()


def words(number: int) -> str:
    return f"sentence number {number} of these"


def mnli(folder: Path) -> None:
    for start, split in enumerate(("train", "validation_matched", "validation_mismatched")):
        rows = [
            {"premise": words(100 * start + i), "hypothesis": words(i), "label": i % 3, "idx": i} for i in range(30)
        ]
        write(folder / f"nyu-mll/glue/mnli/{split}.jsonl", rows)


def test_a_task_comes_from_the_hub_as_from_files_of_its_shape(hub_folder, tmp_path):
    folder = hub_folder / "yxchar/sciie-tlm"
    folder.mkdir(parents=True)
    for start, split in enumerate(("train", "dev", "test")):
        body = "".join(f'"{words(100 * start + i)}\n",{i % 7},{i}\n' for i in range(14))
        (folder / f"{split}.csv").write_text(f"text,label,id\n{body}")
    task = Artifact.open(load_task("paper:scierc", root=str(tmp_path)), "task")
    here = Artifact.open(load_task("paper:scierc", files=str(folder), root=str(tmp_path)), "task")
    assert examples(task).drop_columns("id") == examples(here).drop_columns("id")
    assert task.details == here.details
    assert examples(task)["id"][0].as_py() == "sciie-tlm/train.csv:1"
    assert task.manifest.settings["files"][0][2].endswith(f"@{standin_hub.COMMIT}")


def test_numbers_of_the_hub_are_glues_names(hub_folder, tmp_path):
    mnli(hub_folder)
    task = Artifact.open(load_task("glue:mnli", root=str(tmp_path)), "task")
    assert task.details["labels"] == ["entailment", "neutral", "contradiction"]
    test = [row for row in examples(task).to_pylist() if row["split"] == "test"]
    assert [row["label"] for row in test[:3]] == task.details["labels"]
    assert (test[4]["text"], test[4]["text_pair"]) == (words(104), words(4))
    assert task.counts["dev"] == 3  # drawn from train


def test_classes_have_the_names_that_the_data_set_gives_them(hub_folder, tmp_path):
    rows = [{"text": words(i), "label": i % 3 - 1, "kind": i % 2} for i in range(60)]
    write(hub_folder / "owner/news/train.jsonl", rows)
    names = {"label": ["World", "Sports"], "kind": ["old", "new"]}
    (hub_folder / "owner/news/classes.json").write_text(json.dumps(names))
    task = Artifact.open(load_task("hf://owner/news?kind=1", root=str(tmp_path)), "task")
    assert task.details["labels"] == ["Sports", "World"]
    assert task.counts["rejected"] == {"null": 10}, "as -1 stands for no label"
    named = Artifact.open(load_task("hf://owner/news?kind=new", root=str(tmp_path)), "task")
    assert examples(named) == examples(task), "rows are also chosen by the name of a class"


def test_what_cannot_be_had_is_said_in_one_sentence(hub_folder, tmp_path, monkeypatch):
    assert refused(load_task, "paper:scierc", root=str(tmp_path)) == (
        "hf://yxchar/sciie-tlm/train.csv: the Hub has no such data set, or it is private; check the name"
    )
    mnli(hub_folder)
    (hub_folder / "nyu-mll/glue/mnli/train.jsonl").unlink()
    assert "mnli:train: cannot be read from the Hub: Bad split" in refused(load_task, "glue:mnli", root=str(tmp_path))
    monkeypatch.delenv("TLM_TEST_HUB")
    registry._commit.cache_clear()
    told = refused(load_task, "glue:mnli", root=str(tmp_path))
    assert "cannot reach the Hugging Face Hub (Name or service not known)" in told
    assert "check the network or use local files" in told


def test_a_file_of_a_data_set_and_rows_that_have_a_value(hub_folder):
    rows = [{"plain_text": words(i), "language": "en" if i % 3 else "de", "text": None, "year": i} for i in range(6)]
    write(hub_folder / "owner/news/2016/train.jsonl", rows)
    write(hub_folder / "owner/news/more/x.jsonl", rows)
    address = "hf://owner/news/2016?text=plain_text&language=en"
    assert [row["text"] for row in registry.hub_rows(address)] == [words(i) for i in (1, 2, 4, 5)]
    assert [row["year"] for row in registry.hub_rows("hf://owner/news/2016?year=4")] == [4]
    assert list(registry.hub_rows("hf://owner/news/2016?colour=red")) == []
    assert len(list(registry.hub_rows("hf://owner/news/more/x.jsonl"))) == 6
    names = ["hf://owner/news/2016", address, "hf://owner/news/more/x.jsonl", "hf://name:test"]
    assert [registry.hub_name(name) for name in names] == [
        "news/2016:train", "news/2016:train", "news/more/x.jsonl", "name:test"
    ]  # fmt: skip
    assert len({registry.hub_digest(name) for name in names[:3]}) == 3
    for wrong in ("hf://a/b/c/d", "hf://", "hf://a//b"):
        assert "is not the address of a Hub data set" in refused(registry.hub_name, wrong)


def test_a_corpus_of_the_paper_is_put_together_from_the_hub(hub_folder, tmp_path, capsys):
    for number, part in enumerate(registry._corpora()[1].values()):
        place = registry._parts(part["address"])
        rows = [
            {place.text or "text": f"{words(i)} in part {number}", "language": "en" if i % 2 else "fr"}
            for i in range(10)
        ]
        write(hub_folder / place.name / (place.part or ".") / "train.jsonl", rows)
    bert = Artifact.open(load_corpus(["paper:bert"], root=str(tmp_path)))
    assert bert.counts["documents"] == 20
    assert {source for batch in passages(bert) for source in batch.to_pydict()["source"]} == {
        "wikipedia/20231101.en:train", "bookcorpusopen:train"
    }  # fmt: skip
    said = capsys.readouterr().err
    assert "paper:bert: BERT-like: Wikipedia and BookCorpus; the original has 16 GB" in said
    assert "BookCorpusOpen, collected in 2020" in said
    assert "hf://lucadiliello/bookcorpusopen has 10 documents, expected 17,868" in said
    roberta = Artifact.open(load_corpus(["paper:roberta"], root=str(tmp_path)))
    assert roberta.counts["documents"] == 20 + 3 * 5 + 20  # news: the English half
    assert "unverified: number of articles" in capsys.readouterr().err
    load_corpus(["hf://lucadiliello/bookcorpusopen"], root=str(tmp_path))  # alone, it is not loaded in parts
    assert "hf://lucadiliello/bookcorpusopen has 10 documents, expected 17,868" in capsys.readouterr().err


def test_a_corpus_that_does_not_exist_is_refused(hub_folder, tmp_path):
    told = refused(load_corpus, ["paper:berta"], root=str(tmp_path))
    assert told == "paper:berta: no such file, and no corpus of that name; did you mean 'paper:bert'?"
