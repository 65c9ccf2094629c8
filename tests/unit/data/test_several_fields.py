"""A text may stand in several fields, such as subject and body: they are read as one text, everywhere."""

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.tiny import refused
from tlm.artifacts.artifact import Artifact
from tlm.data.corpus.load import load_corpus
from tlm.data.passages import passages
from tlm.data.tasks.examples import examples
from tlm.data.tasks.task import load_task
from tlm.evaluation.labelling import label_next
from tlm.evaluation.predict.files import predict_command
from tlm.evaluation.score.baseline import baseline
from tlm.settings.options import Fields, Layout

SEVERAL = "subject, body"
LABELS = ("bill", "repair")
FIELDS = Fields(text_field=SEVERAL)


def ticket(number: int) -> dict[str, Any]:
    """A ticket; some have no subject, some no body."""
    words = (f"invoice {number} price", f"the pump {number} leaks") if number % 2 else (f"motor {number}", "it is hot")
    subject, body = ("" if number % 5 == 0 else words[0], words[1] if number % 7 else None)
    return {"subject": subject, "body": body if subject else "a body", "label": LABELS[number % 2]}


TICKETS = [ticket(number) for number in range(1, 61)]
JOINED = [" ".join(filter(None, (row["subject"], row["body"]))) for row in TICKETS]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Write rows as the file's extension says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".csv":
        with path.open("w", newline="") as file:
            table = csv.DictWriter(file, rows[0])
            table.writeheader()
            table.writerows(rows)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_corpus_may_have_plain_text_beside_rows_with_several_fields(tmp_path: Path) -> None:
    write(tmp_path / "in" / "tickets.jsonl", TICKETS)
    (tmp_path / "in" / "plain.txt").write_text("a manual\n\nof pumps\n")
    corpus = load_corpus([str(tmp_path / "in")], layout=Layout(text_field=SEVERAL), root=str(tmp_path / "made"))
    found = [text for table in passages(Artifact.open(corpus), ["text"]) for text in table["text"].to_pylist()]
    assert found[:2] == ["a manual", "of pumps"]


def test_unlabelled_texts_and_pools_may_be_plain_text_too(tmp_path: Path) -> None:
    (tmp_path / "plain.txt").write_text("a manual\n\nof pumps\n")
    given, root = str(tmp_path / "plain.txt"), str(tmp_path / "made")
    task = load_task(str(write(tmp_path / "tickets.csv", TICKETS)), fields=FIELDS, unlabelled=given, root=root)
    assert examples(Artifact.open(task))["text"].to_pylist()[-2:] == ["a manual", "of pumps"]
    label_next(given, to=str(tmp_path / "next.csv"), fields=FIELDS)
    assert {row["subject"] for row in csv.DictReader((tmp_path / "next.csv").open(encoding="utf-8-sig"))} == {
        "a manual",
        "of pumps",
    }


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_a_task_and_a_corpus_have_the_texts_of_all_fields(tmp_path: Path, form: str) -> None:
    file = write(tmp_path / f"tickets.{form}", TICKETS)
    task = examples(Artifact.open(load_task(str(file), fields=FIELDS, root=str(tmp_path / "made"))))
    assert sorted(task["text"].to_pylist()) == sorted(JOINED)
    corpus = Artifact.open(load_corpus([str(file)], layout=Layout(text_field=SEVERAL), root=str(tmp_path / "made")))
    found = [text for table in passages(corpus, ["text"]) for text in table["text"].to_pylist()]
    assert sorted(found) == sorted({*JOINED})


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("model")
    file = write(folder / "tickets.jsonl", TICKETS)
    return baseline(load_task(str(file), fields=FIELDS, root=str(folder)), root=str(folder))


@pytest.mark.parametrize("name", ["new.csv", "new.jsonl", "new.parquet"])
def test_new_texts_are_read_so_too(model: str, tmp_path: Path, name: str) -> None:
    def answers(source: Path, field: str) -> list[dict[str, Any]]:
        predict_command(model, source=str(source), to=str(tmp_path / "answers.jsonl"), text_field=field)
        rows = [json.loads(line) for line in (tmp_path / "answers.jsonl").open()]
        return [row | {"text": " ".join(row["text"].split())} for row in rows]

    alone = write(tmp_path / "alone.jsonl", [{"text": text} for text in JOINED])
    assert answers(write(tmp_path / name, TICKETS), SEVERAL) == answers(alone, "text")


def test_a_row_without_any_of_them_is_a_bad_row(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"subject": "pump"}, {"other": "text"}, {"subject": "", "body": None}, {"subject": "a", "body": 3}]
    source = write(tmp_path / "new.jsonl", rows)
    predict_command(model, source=str(source), to=str(tmp_path / "answers.jsonl"), text_field=SEVERAL)
    first, *bad = map(json.loads, (tmp_path / "answers.jsonl").open())
    assert first["text"] == "pump"
    assert [row["error"] for row in bad] == [
        f"no field '{SEVERAL}'", "the text is empty", "the text is an int; expected a string"
    ]  # fmt: skip
    write(tmp_path / "task.jsonl", [*TICKETS, {"subject": "a", "body": 3, "label": "bill"}])
    load_task(str(tmp_path / "task.jsonl"), fields=FIELDS, root=str(tmp_path))
    assert f"1 not a string, field '{SEVERAL}' is a number: 3" in capsys.readouterr().err


def test_a_column_that_is_not_there_is_named(model: str, tmp_path: Path) -> None:
    source = write(tmp_path / "tickets.csv", TICKETS)
    for read in (load_task, predict_command):
        how = {"fields": Fields(text_field="title,body")} if read is load_task else {"text_field": "title,body"}
        place = {"root": str(tmp_path)} if read is load_task else {"source": str(source)}
        assert "'title'" in refused(read, str(source) if read is load_task else model, **how, **place)
    assert "text_field and label_field are both 'body'" in refused(Fields, text_field=SEVERAL, label_field="body")


def test_a_name_with_a_space_is_that_of_a_column_and_commas_alone_are_none(tmp_path: Path) -> None:
    source = write(
        tmp_path / "tickets.csv", [{"text ": f"word {row['body']}", "label": row["label"]} for row in TICKETS]
    )
    assert load_task(str(source), fields=Fields(text_field="text "), root=str(tmp_path))
    for options in (Fields, Layout):
        assert "text_field is empty" in refused(options, text_field=" , ")


def test_rows_to_label_keep_their_fields(tmp_path: Path) -> None:
    pool = write(tmp_path / "pool.csv", TICKETS)
    label_next(str(pool), to=str(tmp_path / "next.csv"), count=5, fields=FIELDS)
    with (tmp_path / "next.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    known = {(row["subject"], row["body"] or "") for row in TICKETS}
    assert len(rows) == 5
    assert {(row["subject"], row["body"]) for row in rows} <= known
