"""The tasks of the paper and of GLUE by name, from small files of the shape of their releases."""

import json
import os
from collections import Counter
from pathlib import Path

import pytest

from tests.tiny import refused
from tlm.artifacts.artifact import Artifact
from tlm.cli.command import flat
from tlm.data import registry
from tlm.data.tasks.examples import examples
from tlm.data.tasks.metrics import CLASSIFICATION, REGRESSION
from tlm.data.tasks.task import load_task

CLASSES = {  # the released code, src/run.py
    "chemprot": 13, "acl-arc": 6, "hyperpartisan": 2, "imdb": 2, "rct-20k": 5, "scierc": 7, "agnews": 4,
    "helpfulness": 2,
}  # fmt: skip
GLUE = {"cola", "sst-2", "mrpc", "sts-b", "qqp", "mnli", "mnli-mismatched", "qnli", "rte", "wnli"}
SCIERC = ["COMPARE", "CONJUNCTION", "EVALUATE-FOR", "FEATURE-OF", "HYPONYM-OF", "PART-OF", "USED-FOR"]


def entries() -> list[registry.TaskEntry]:
    names = [*(f"paper:{name}" for name in CLASSES), *(f"glue:{name}" for name in GLUE)]
    return [entry for name in names if (entry := registry.task_entry(name))]


def words(number: int) -> str:
    return f"sentence number {number} of these"


def jsonl(folder: Path, prefix: str = "", labels: list[str] = SCIERC, **sizes: int) -> Path:
    """{"text", "label"} as the releases of the tasks have them."""
    folder.mkdir(parents=True, exist_ok=True)
    start = 0
    for split, size in ({"train": 21, "dev": 7, "test": 7} | sizes).items():
        rows = [{"text": words(start + i), "label": labels[i % len(labels)], "metadata": {}} for i in range(size)]
        (folder / f"{prefix}{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        start += size
    return folder


def tsv(folder: Path, header: list[str] | None, **splits: list[list[str]]) -> str:
    """GLUE's tab-separated files."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, rows in splits.items():
        lines = [*([header] if header else []), *rows]
        (folder / f"{split}.tsv").write_text("".join("\t".join(row) + "\n" for row in lines))
    return str(folder)


def load(name: str, files: object, root: Path, **settings: object) -> Artifact:
    return Artifact.open(flat(load_task)(name, files=str(files), root=str(root), **settings), "task")  # type: ignore[arg-type]


def rows(task: Artifact, split: str) -> list[dict[str, object]]:
    return [row for row in examples(task).to_pylist() if row["split"] == split]


# ---- the registry


def test_every_task_of_the_paper_and_of_glue_is_there():
    assert {entry.name for entry in entries()} == {*CLASSES, *GLUE}
    assert {entry.name: len(entry.labels) for entry in entries() if entry.suite == "paper"} == CLASSES
    for entry in entries():
        assert entry.metrics[0] in (REGRESSION if entry.problem == "regression" else CLASSIFICATION)
        assert entry.evidence
        assert set(entry.unverified) <= set(entry.sizes) == set(entry.splits)
        assert len(set(entry.labels)) == len(entry.labels)


def test_metrics_are_the_published_ones():
    """Paper, Table 2: micro-F1 for ChemProt and RCT, macro-F1 otherwise. GLUE: Wang et al. 2018, Table 1."""
    found = {entry.name: entry.metrics for entry in entries()}
    assert {name for name, metrics in found.items() if metrics == ("micro_f1",)} == {"chemprot", "rct-20k"}
    assert {name for name, metrics in found.items() if metrics == ("macro_f1",)} == {*CLASSES} - {"chemprot", "rct-20k"}
    assert found["cola"] == ("matthews",)
    assert found["sts-b"] == ("pearson", "spearman")
    assert found["mrpc"] == found["qqp"] == ("accuracy", "f1")
    assert {name for name, metrics in found.items() if metrics == ("accuracy",)} == GLUE - {
        "cola", "sts-b", "mrpc", "qqp"
    }  # fmt: skip


def test_where_the_hub_has_them():
    entry = registry.task_entry("paper:scierc")
    assert entry is not None
    assert entry.addresses["dev"] == "hf://yxchar/sciie-tlm/dev.csv"
    assert registry.subset_address("paper:scierc/small") == "hf://yxchar/sciie-tlm/small_external.csv"
    assert registry.subset_address("my/folder/x.csv") == "my/folder/x.csv"
    mnli = registry.task_entry("glue:mnli")
    assert mnli is not None
    assert mnli.addresses["test"] == "hf://nyu-mll/glue/mnli:validation_matched"


# ---- the paper's tasks


@pytest.mark.parametrize("prefix", ["", "sciie_"])
def test_files_of_the_releases_are_taken_by_the_tasks_name(tmp_path, prefix, capsys):
    task = load("paper:scierc", jsonl(tmp_path / "any", prefix), tmp_path)
    assert task.details == {
        "name": "scierc", "problem": "classification", "labels": SCIERC, "metric": "macro_f1", "pair": False,
        "metrics": ["macro_f1"],
    }  # fmt: skip
    assert [task.counts[split] for split in ("train", "dev", "test")] == [21, 7, 7]
    assert rows(task, "dev")[0]["text"] == words(21)
    said = capsys.readouterr().err
    assert "SciERC has 21 train examples here, the published number is 3,219 (counted in allenai/scibert" in said


def test_the_authors_numbers_stay_numbers(tmp_path, capsys):
    """Which class a number means is documented nowhere: names are not invented; the scores are the same."""
    folder = tmp_path / "chemprot"
    folder.mkdir()
    for start, split in enumerate(("train", "dev", "test")):
        body = "".join(f'"{words(100 * start + i)}\n",{i % 13},{i}\n' for i in range(26))
        (folder / f"{split}.csv").write_text(f"text,label,id\n{body}")
    (folder / "small_external.csv").write_text('text,id,rank\n"a passage",0,3\n')
    task = load("paper:chemprot", folder, tmp_path)
    assert task.details["labels"] == [str(number) for number in range(13)]
    assert task.details["metric"] == "micro_f1"
    assert "classes here" not in capsys.readouterr().err


def test_missing_classes_are_said(tmp_path, capsys):
    load("paper:scierc", jsonl(tmp_path / "any", labels=SCIERC[:5]), tmp_path)
    assert "SciERC has 5 classes here, the published number is 7" in capsys.readouterr().err


def test_a_number_that_we_could_not_check_is_named_so(tmp_path, capsys):
    load("paper:imdb", jsonl(tmp_path / "any", labels=["0", "1"]), tmp_path)
    said = capsys.readouterr().err.splitlines()
    assert ["unverified" in line for line in said if "published" in line] == [False, True, True]


def test_a_person_errs_and_is_told_in_one_sentence(tmp_path):
    folder = jsonl(tmp_path / "any")
    assert "no task of that name; did you mean 'paper:scierc'?" in refused(load, "paper:sci-erc", folder, tmp_path)
    assert "no task of that name; did you mean 'glue:mnli'?" in refused(load, "glue:mnly", folder, tmp_path)
    assert "is not the name of a task" in refused(load, str(folder), folder, tmp_path)
    assert "does not exist" in refused(load, "paper:scierc", tmp_path / "nowhere", tmp_path)
    assert "metric 'spearman' does not fit" in refused(load, "paper:scierc", folder, tmp_path, metric="spearman")
    (folder / "test.jsonl").unlink()
    assert "has no file for test among dev.jsonl, train.jsonl" in refused(load, "paper:scierc", folder, tmp_path)
    assert "has no file for test among train.jsonl" in refused(load, "paper:scierc", folder / "train.jsonl", tmp_path)


def test_a_label_that_the_task_does_not_have_is_refused(tmp_path):
    folder = jsonl(tmp_path / "any", labels=[*SCIERC, "USED-FORE"], train=24)
    told = refused(load, "paper:scierc", folder, tmp_path)
    assert told.endswith("train.jsonl:8: 'USED-FORE' is not a label of SciERC; did you mean 'USED-FOR'?")


def test_a_column_that_is_missing_is_refused(tmp_path):
    folder = jsonl(tmp_path / "any")
    for file in folder.iterdir():
        file.write_text(file.read_text().replace('"text"', '"texts"'))
    assert "has no field 'text'; it has 'texts', 'label', 'metadata'; did you mean 'texts'?" in refused(
        load, "paper:scierc", folder, tmp_path
    )
    assert load("paper:scierc", folder, tmp_path, text_field="texts").counts["train"] == 21


# ---- GLUE


def test_cola_has_no_header(tmp_path):
    train = [["gj04", str(i % 2), "*" if i % 2 == 0 else "", words(i)] for i in range(40)]
    dev = [["gj04", "1", "", words(90)], ["gj04", "0", "*", words(91)]]
    task = load("glue:cola", tsv(tmp_path / "CoLA", None, train=train, dev=dev), tmp_path)
    assert task.details["labels"] == ["unacceptable", "acceptable"]
    assert task.details["metric"] == "matthews"
    assert [(row["text"], row["label"]) for row in rows(task, "test")] == [
        (words(90), "acceptable"),
        (words(91), "unacceptable"),
    ]
    assert task.counts["train"] + task.counts["dev"] == 40
    assert task.counts["dev"] == 4


def test_pairs_with_names_for_columns_of_their_own(tmp_path):
    header = ["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"]
    pairs = [[str(i % 2), "1", "2", words(i), f'He said "{words(i + 50)}'] for i in range(20)]
    task = load("glue:mrpc", tsv(tmp_path / "MRPC", header, train=pairs, dev=pairs[:4]), tmp_path)
    assert task.details["labels"] == ["not_equivalent", "equivalent"]
    assert (task.details["metric"], task.details["metrics"]) == ("accuracy", ["accuracy", "f1"])
    assert task.details["pair"]
    assert rows(task, "test")[1]["text_pair"] == f'He said "{words(51)}'
    assert rows(task, "test")[1]["label"] == "equivalent"


def test_scores_are_targets_even_if_all_of_them_are_whole(tmp_path):
    header = ["index", "genre", "sentence1", "sentence2", "score"]
    pairs = [[str(i), "news", words(i), words(i + 50), f"{i % 6}.000"] for i in range(30)]
    task = load("glue:sts-b", tsv(tmp_path / "STS-B", header, train=pairs, dev=pairs[:6]), tmp_path)
    assert task.details["problem"] == "regression"
    assert task.details["metric"] == "pearson"
    assert [row["target"] for row in rows(task, "test")] == [0, 1, 2, 3, 4, 5]
    pairs[3][-1] = "high"
    told = refused(load, "glue:sts-b", tsv(tmp_path / "STS-B", header, train=pairs, dev=pairs[:6]), tmp_path)
    assert told.endswith("label 'high' is not a number such as 1234.5, which a regression needs; fix the row")


def test_mnli_has_two_test_splits(tmp_path):
    header, names = ["sentence1", "sentence2", "label1", "gold_label"], ["entailment", "neutral", "contradiction"]

    def pairs(start: int, count: int) -> list[list[str]]:
        return [[words(start + i), words(start + i + 1), "-", names[i % 3]] for i in range(count)]

    splits = {"train": pairs(0, 30), "dev_matched": pairs(100, 6), "dev_mismatched": pairs(200, 9)}
    folder = tsv(tmp_path / "MNLI", header, **splits)
    matched = load("glue:mnli", folder, tmp_path)
    mismatched = load("glue:mnli-mismatched", folder, tmp_path)
    assert matched.details["labels"] == mismatched.details["labels"] == names
    assert rows(matched, "test")[0]["text"] == words(100)
    assert rows(mismatched, "test")[0]["text"] == words(200)
    assert [row["text"] for row in rows(matched, "train")] == [row["text"] for row in rows(mismatched, "train")]


def test_names_of_labels_and_their_numbers_are_the_same_in_glue(tmp_path):
    """The files have names, the Hub has numbers."""
    header = ["index", "sentence1", "sentence2", "label"]
    pairs = [[str(i), words(i), words(i + 50), "not_entailment" if i % 2 else "entailment"] for i in range(20)]
    numbers = [[*pair[:3], str(i % 2)] for i, pair in enumerate(pairs)]
    by_name = load("glue:rte", tsv(tmp_path / "RTE", header, train=pairs, dev=pairs[:4]), tmp_path)
    by_number = load("glue:rte", tsv(tmp_path / "numbers", header, train=numbers, dev=numbers[:4]), tmp_path)
    assert by_name.content == by_number.content
    assert by_name.details["labels"] == ["entailment", "not_entailment"]
    later = load("glue:rte", tmp_path / "numbers", tmp_path, classes_of=by_name.uri)
    assert later.counts["labels"] == by_name.counts["labels"]
    numbers[0][3] = "-1"  # as the Hub marks a label that is secret
    told = refused(load, "glue:rte", tsv(tmp_path / "numbers", header, train=numbers, dev=numbers[:4]), tmp_path)
    assert "'-1' is not a label of RTE; known are entailment, not_entailment" in told


@pytest.mark.parametrize(("name", "folder"), [("paper:scierc", "scierc"), ("paper:acl-arc", "acl-arc")])
def test_real_files_have_the_published_sizes(tmp_path, capsys, name, folder):
    if "TLM_DEV_DATA" not in os.environ:
        pytest.skip("set TLM_DEV_DATA to the folder with scierc/ and acl-arc/ to check the loaders on them")
    task = load(name, Path(os.environ["TLM_DEV_DATA"]) / folder, tmp_path)
    assert "published" not in capsys.readouterr().err
    entry = registry.task_entry(name)
    assert entry is not None
    assert Counter(row["split"] for row in examples(task).to_pylist()) == entry.sizes
    assert task.details["labels"] == list(entry.labels)
