"""Predictions for new texts: order, formats, bad rows, and cells that no spreadsheet runs."""

import csv
import gzip
import io
import json
import math
import os
import re
import sys
import time
import unicodedata
from collections.abc import Callable
from datetime import date
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import CONFIG_MAPPING, AutoModelForSequenceClassification, BertTokenizerFast

from tests.tiny import refused
from tests.toys import Row, make_task, random_model, words
from tlm.artifacts.artifact import Artifact
from tlm.cli.show import explain
from tlm.cli.upkeep import download
from tlm.data.reading import zstd
from tlm.data.text import csv_separator
from tlm.errors import InputError
from tlm.evaluation.pages.text import escaped
from tlm.evaluation.predict import predict as predicting
from tlm.evaluation.predict.encoder import model_labels
from tlm.evaluation.predict.files import predict_command
from tlm.evaluation.predict.models import trained
from tlm.evaluation.predict.predict import predict
from tlm.evaluation.predict.rows import ReadFormat, checked, read_rows
from tlm.evaluation.predict.written import inert, write_new, write_rows
from tlm.evaluation.report.report import report
from tlm.evaluation.score.baseline import baseline
from tlm.evaluation.score.evaluate import evaluate

Made = tuple[str, str, Path]  # URIs of task and model, root
DANGEROUS = ("=", "+", "-", "@", "\t", "\r")
NUMBER = re.compile(r"[+-][0-9]+([.,][0-9]+)?")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    root = tmp_path_factory.mktemp("made")
    rows: list[Row] = [
        (text, None, "=cmd" if index % 2 else "plain", "train" if index < 10 else "test")
        for index, text in enumerate(words(40, 0))
    ]
    task = make_task(root, rows, "macro_f1", ["=cmd", "plain"])
    return task, random_model(root, task, words(50, 9), "modernbert")[1], root


def answers(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_the_answers_are_those_of_evaluate(made: Made) -> None:
    task, model, root = made
    table = pq.read_table(
        Artifact.open(evaluate(model, task, device="cpu", root=str(root))).path("predictions.parquet")
    )
    texts = pq.read_table(Artifact.open(task).path("examples.parquet"))["text"].to_pylist()[10:]
    found = list(predict(model, texts, device="cpu"))
    assert [row["label"] for row in found] == table["predicted"].to_pylist()
    chances = [list(row["probabilities"].values()) for row in found]
    assert np.abs(np.array(chances) - np.array(table["probabilities"].to_pylist())).max() < 1e-6
    assert [row["probability"] for row in found] == [max(row) for row in chances]


def test_order_and_bad_rows_survive_any_chunk(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "in.jsonl"
    lines = [json.dumps({"text": text}).encode() for text in words(20, 3)]
    lines[3] = b"{broken"
    lines[5] = b'{"other": "x"}'
    lines[7] = b'{"text": 7}'
    lines[9] = b'{"text": "  "}'
    lines[11] = b'{"text": "caf\xe9"}'
    lines[13] = b'["text"]'
    lines[15] = b'{"text": "\\ud800"}'
    source.write_bytes(b"\n".join(lines) + b"\n")
    outputs = []
    for chunk in (1024, 7, 1):
        monkeypatch.setattr(predicting, "CHUNK", chunk)
        predict_command(made[1], source=str(source), to=str(tmp_path / "out.jsonl"), device="cpu")
        outputs.append([json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()])
        assert "13 rows predicted, 7 bad rows answered" in capsys.readouterr().err
    for found in outputs:
        assert [row["row"] for row in found] == list(range(1, 21))
        assert {row["row"]: row["error"] for row in found if "error" in row} == {
            4: "not JSON", 6: "no field 'text'", 8: "the text is an int; expected a string", 10: "the text is empty",
            12: "the text is not UTF-8", 14: "a list; expected an object", 16: "the text is not UTF-8",
        }  # fmt: skip
        assert [row.get("label") for row in found] == [row.get("label") for row in outputs[0]]


def test_stdin_and_stdout(made: Made, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for given_text, expected in (("one text\nanother\n", 2), ('\ufeff{"text": "one"}\n', 1)):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given_text.encode())))
        predict_command(made[1], device="cpu")
        found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert len(found) == expected
        assert all(row["label"] in ("=cmd", "plain") for row in found)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"one text\n")))
    predict_command(made[1], to_format="csv", device="cpu")
    assert capsys.readouterr().out.startswith("row,text,")  # a byte order mark would be part of the name


def test_a_pipe_can_be_written_to(made: Made, tmp_path: Path) -> None:
    (source := tmp_path / "in.txt").write_text("one text\n")
    here, there = os.pipe()
    with os.fdopen(here) as reader, os.fdopen(there, "w"):
        predict_command(made[1], source=str(source), to=f"/dev/fd/{there}", device="cpu")
        assert json.loads(reader.readline())["text"] == "one text"


def test_csv_in_and_out(made: Made, tmp_path: Path) -> None:
    texts = ["=HYPERLINK(1)", "two\nlines, and a comma", '"quoted"', "+1", "-2", "@x", "plain"]
    source, target = tmp_path / "in.csv", tmp_path / "out.csv"
    with source.open("w", newline="") as file:
        csv.writer(file).writerows([["id", "words"], *([index, text] for index, text in enumerate(texts)), ["9"]])
    predict_command(made[1], source=str(source), to=str(target), to_format="csv", text_field="words", device="cpu")
    assert target.read_bytes().startswith("\ufeffrow,".encode())  # by which Excel knows UTF-8
    with target.open(encoding="utf-8-sig", newline="") as file:
        header, *rows = list(csv.reader(file))
    assert header == ["row", "text", "label", "probability", "p(=cmd)", "p(plain)", "error"]
    assert [row[1] for row in rows] == ["'=HYPERLINK(1)", *texts[1:3], "+1", "-2", "'@x", "plain", ""]
    assert rows[-1][-1] == "1 cells; the header has 2"
    assert {row[2] for row in rows[:-1]} <= {"'=cmd", "plain"}
    for row in rows[:-1]:
        assert float(row[4]) + float(row[5]) == pytest.approx(1)


@given(st.lists(st.text(max_size=8), min_size=1, max_size=5))
def test_no_csv_cell_begins_a_formula(texts: list[str]) -> None:
    sink = io.StringIO()
    rows = [{"row": 1, "text": text, "label": text, "probability": 0.5, "probabilities": {text: 0.5}} for text in texts]
    write_rows(rows, "csv", ["row", "text", "label", "probability", f"p({texts[0]})", "error"], sink)
    for row in csv.reader(io.StringIO(sink.getvalue(), newline="")):
        assert not any(cell.startswith(DANGEROUS) and not NUMBER.fullmatch(cell) for cell in row)
    for text in texts:  # nothing but apostrophes is put in, and nothing but what cannot be seen is spelled out
        plain = re.sub(r"⟨U\+([0-9A-F]{4,5})⟩", lambda code: chr(int(code[1], 16)), inert(text))
        assert plain.replace("'", "") == text.replace("'", "")
        assert not re.search(r"[;\t\r\n][=+@-]", inert(text))
        assert not re.search("[\x00-\x08\x1b\x9b\u202a-\u202e\u2066-\u2069]", inert(text))
    assert [inert(one) for one in ("-1", "+1,5", "-1+1", "+1;=x")] == ["-1", "+1,5", "'-1+1", "'+1;'=x"]


def test_no_field_of_a_new_file_begins_a_formula(tmp_path: Path) -> None:
    write_new(str(tmp_path / "next.csv"), [{"=text": "=1+1", "n": -1}], ["=text", "n"])
    assert (tmp_path / "next.csv").read_text(encoding="utf-8-sig") == "'=text,n\n'=1+1,-1\n"


def test_a_new_file_is_whole_or_not_there(tmp_path: Path) -> None:
    """A disk that fills up leaves no half of it, which the next try would refuse to replace."""
    rows = [{"text": "one", "margin": 0.5}, {"text": "two", "margin": math.nan}]
    with pytest.raises(ValueError, match="JSON"):
        write_new(str(tmp_path / "next.jsonl"), rows, list(rows[0]))
    assert not list(tmp_path.iterdir())


def test_a_new_file_replaces_no_other_that_appeared_meanwhile(tmp_path: Path) -> None:
    (tmp_path / "next.csv").write_text("labels by hand")
    with pytest.raises(InputError, match="exists"):
        write_new(str(tmp_path / "next.csv"), [{"text": "one"}], ["text"])
    assert (tmp_path / "next.csv").read_text() == "labels by hand"


def test_negative_numbers_stay_numbers() -> None:
    sink = io.StringIO()
    write_rows([{"row": 1, "text": "a", "value": -0.5}], "csv", ["row", "text", "value", "error"], sink)
    assert sink.getvalue() == "row,text,value,error\n1,a,-0.5,\n"


def test_pairs(made: Made, tmp_path: Path) -> None:
    task = make_task(tmp_path, [("a", "b", "x", "train"), ("c", "d", "y", "test")], "macro_f1", ["x", "y"])
    _, model = random_model(tmp_path, task, words(50, 9))
    found = list(
        predict(model, [("alpha beta", "gamma"), ("alpha beta", "delta"), ("alpha beta", "gamma")], device="cpu")
    )
    assert found[0]["probabilities"] != found[1]["probabilities"]
    assert found[0]["probabilities"] == pytest.approx(found[2]["probabilities"])
    source, target = tmp_path / "in.jsonl", tmp_path / "out"
    source.write_text('{"a": "alpha beta", "b": "gamma"}\n')
    predict_command(model, source=str(source), to=str(target), text_field="a", pair_field="b", device="cpu")
    assert json.loads(target.read_text())["probabilities"] == pytest.approx(found[0]["probabilities"])
    assert (found[1]["text"], found[1]["text_pair"]) == ("alpha beta", "delta")
    predict_command(
        model, source=str(source), to=f"{target}.csv", text_field="a", pair_field="b", to_format="csv", device="cpu"
    )
    assert target.with_suffix(".csv").read_text().splitlines()[1].startswith("1,alpha beta,gamma,")


def test_single_texts_are_refused_for_a_model_of_pairs_and_pairs_for_one_of_single_texts(
    made: Made, tmp_path: Path
) -> None:
    task = make_task(tmp_path, [("a", "b", "x", "train"), ("c", "d", "y", "test")], "macro_f1", ["x", "y"])
    _, of_pairs = random_model(tmp_path, task, words(50, 9))
    (source := tmp_path / "in.jsonl").write_text('{"text": "alpha", "b": "gamma"}\n')
    given = {"source": str(source), "to": str(tmp_path / "out.jsonl"), "device": "cpu"}
    assert "learned from pairs of texts; give the second text of each pair with --pair-field" in refused(
        predict_command, of_pairs, **given
    )
    assert "learned from single texts; do without --pair-field" in refused(
        predict_command, made[1], pair_field="b", **given
    )
    assert "give the second text of each pair with --pair" in refused(explain, of_pairs, "alpha")
    with pytest.raises(InputError, match="learned from single texts; do without tuples"):
        list(predict(made[1], [("alpha", "beta")]))
    folder = download(of_pairs, str(tmp_path / "folder"))
    assert "give the second text of each pair with --pair-field" in refused(predict_command, folder, **given)
    assert "give the second text of each pair with --pair" in refused(explain, folder, "alpha")


@pytest.mark.parametrize("name", ["in.tsv", "in.parquet", "IN.CSV.GZ", "in.xlsx"])
def test_a_file_of_another_format_is_not_read_or_written_as_text(made: Made, tmp_path: Path, name: str) -> None:
    (source := tmp_path / name).write_text("text\nalpha\n")
    wrong = "is not called .jsonl, .csv or .txt"
    if name.endswith("xlsx"):
        assert wrong in refused(predict_command, made[1], source=str(source), to=str(tmp_path / "out.jsonl"))
    (plain := tmp_path / "in.txt").write_text("alpha\n")
    assert wrong in refused(predict_command, made[1], source=str(plain), to=str(source))
    assert source.read_text() == "text\nalpha\n"
    predict_command(made[1], source=str(source), source_format="csv", to=str(tmp_path / "out.jsonl"), device="cpu")
    assert json.loads((tmp_path / "out.jsonl").read_text())["text"] == "alpha"


def test_fields_need_a_format_that_has_them() -> None:
    with pytest.raises(InputError, match="plain text has no field 'body'; give jsonl or csv, or name the format"):
        read_rows(iter(["bode,id\n", "alpha,1\n"]), "auto", "body")
    with pytest.raises(InputError, match=r"no column 'text'; it has 'bode', 'id'$"):
        read_rows(iter(["bode,id\n", "alpha,1\n"]), "csv", "text")
    with pytest.raises(InputError, match="no column 'body'; it has 'bode', 'id'; did you mean 'bode'"):
        read_rows(iter(["bode;id\n", "alpha;1\n"]), "csv", "body")


@pytest.mark.parametrize(
    ("head", "separator"),
    [
        ("a;b", ";"),
        ('id;"text, raw";label', ";"),
        ("id;text, raw;label", ";"),
        ("a,b;c,d", ","),
        ('"a;b",c', ","),
        ("a", ","),
    ],
)
def test_the_separator_is_that_of_most_columns(head: str, separator: str) -> None:
    assert csv_separator(head) == separator


@pytest.mark.parametrize("form", ["auto", "jsonl"])
@pytest.mark.parametrize("first", ['[{"text": "alpha"}]\n', "[\n", '["alpha", "beta"]\n', "{\n"])
def test_json_that_is_not_in_lines_is_no_text(form: ReadFormat, first: str) -> None:
    with pytest.raises(
        InputError, match=r"begins with a JSON array, or .* expected one object per line \(jq -c '.\[\]'"
    ):
        read_rows(iter([first, '  {"text": "beta"},\n']), form, "text")
    assert [row.text for row in read_rows(iter([first]), "txt", "text")] == [first.strip()]


@pytest.mark.parametrize("head", ["id\ttext\r\n", '"id"\t"text"\n'])  # R's write.table puts quotes
def test_columns_that_tabs_separate_are_no_text(head: str) -> None:
    with pytest.raises(InputError, match=r"separated by tabs; name a file called .tsv with --source"):
        read_rows(iter([head, "1\talpha\r\n"]), "auto", "text")
    assert [row.text for row in read_rows(iter(["[[ a ]] text\tb\n"]), "auto", "text")] == ["[[ a ]] text\tb"]


def test_columns_may_be_separated_by_semicolons() -> None:
    rows = read_rows(iter(["\ufeffid;body\n", '1;"alpha, beta; gamma"\n', "2;1,5\n"]), "csv", "body")
    assert [row.text for row in rows] == ["alpha, beta; gamma", "1,5"]


def test_lines_that_name_the_column_are_csv_and_empty_ones_are_no_rows() -> None:
    for form, lines in (
        ("auto", ["id,body\n", "\n", '1,"al\n', 'pha"\n', "\n", "2,beta\n"]),
        ("jsonl", ['{"id": "1", "body": "al\\npha"}\n', "\n", '{"id": "2", "body": "beta", "n": NaN}\n']),
    ):
        rows = [*read_rows(iter(lines), form, "body", keep=["id"])]  # type: ignore[arg-type]
        assert [(row.number, row.text, row.kept) for row in rows] == [
            (1, "al\npha", {"id": "1"}),
            (2, "beta", {"id": "2"}),
        ]
    with pytest.raises(InputError, match="the CSV has 2 columns 'body'; give each a name"):
        read_rows(iter(["body,body\n", "1,2\n"]), "csv", "body")


@pytest.mark.parametrize("first", ["\n", "\ufeff \r\n", "\n\n"])
def test_empty_lines_before_the_first_row_do_not_hide_the_format(first: str) -> None:
    head = first.splitlines(keepends=True)
    for rows in (['{"body": "alpha"}\n'], ["body,id\n", "alpha,1\n"], ["sep=;\n", "body;id\n", "alpha;1\n"]):
        assert [(row.number, row.text) for row in read_rows(iter([*head, *rows]), "auto", "body")] == [(1, "alpha")]
    plain = [*read_rows(iter([*head, "alpha\n"]), "auto", "text")]  # where they are rows
    assert [row.error for row in plain] == [*["the text is empty"] * len(head), ""]


def test_a_bad_row_stops_no_other_and_texts_stay_as_they_are() -> None:
    csv.field_size_limit(1 << 17)  # Python's own
    long = "a" * (1 << 18)
    lines = ["text,id\n", '"al"pha,1\n', "beta,2,3\n", "gamma\n", f"{long},4\n"]
    rows = [*read_rows(iter(lines), "csv", "text")]
    wrong = ["not CSV: ',' expected after '\"'", "3 cells; the header has 2", "1 cells; the header has 2", ""]
    assert [(row.number, row.error) for row in rows] == [*enumerate(wrong, 1)]
    assert rows[-1].text == long
    deep, good = read_rows(iter(["[" * 100_000 + "\n", '{"text": "a", "n": NaN}\n']), "jsonl", "text", keep=["n"])
    assert (deep.error, good.text, good.kept) == ("not JSON", "a", {"n": None})  # NaN could not be written
    assert [row.text for row in read_rows(iter(["  a \r\n"]), "txt", "text")] == ["  a "]
    assert [row.text for row in read_rows(iter([' {"text": "a"}\n']), "auto", "text")] == ["a"]


def test_three_texts_are_no_example() -> None:
    assert checked(1, ("a", "b", "c")).error == "3 texts; expected one, or a pair"


def test_other_fields_are_kept_also_of_bad_rows(made: Made, tmp_path: Path) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    lines = [{"id": 7, "text": "alpha", "tags": ["a", None]}, {"id": 8}, {"text": "beta", "tags": "\ud800"}]
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    predict_command(made[1], source=str(source), to=str(target), keep=["id", "tags"], device="cpu")
    good, bad, broken = answers(target.read_text())
    assert (good["id"], good["tags"], good["text"]) == (7, ["a", None], "alpha")
    assert bad == {"row": 2, "id": 8, "tags": None, "error": "no field 'text'"}
    assert broken == {"row": 3, "error": "a field to keep is not UTF-8, or too deep"}
    (tmp_path / "in.csv").write_text("id,text\n=7,alpha\n")
    predict_command(made[1], source=str(tmp_path / "in.csv"), to=str(tmp_path / "out.csv"), keep=["id"], device="cpu")
    assert (
        (tmp_path / "out.csv")
        .read_text(encoding="utf-8-sig")
        .startswith("row,id,text,label,probability,p(=cmd),p(plain),error\n1,'=7,alpha,")
    )
    with pytest.raises(InputError, match="answers have a field 'label' of their own"):
        predict_command(made[1], source=str(source), keep=["label"], device="cpu")
    with pytest.raises(InputError, match=r"answers have a field 'p\(plain\)' of their own"):
        predict_command(made[1], source=str(source), keep=["p(plain)"], device="cpu")
    predict_command(made[1], source=str(source), to=str(tmp_path / "out.csv"), keep=["id", "tags", "id"], device="cpu")
    assert (tmp_path / "out.csv").read_text().splitlines()[1].startswith('1,7,"[""a"", null]",alpha')


@pytest.mark.parametrize("name", ["in.parquet", "in.tsv", "in.jsonl.gz", "in.csv.zst"])
def test_tables_and_packed_files_are_read_as_tasks_are(made: Made, tmp_path: Path, name: str) -> None:
    rows = [{"id": "1", "text": "alpha beta"}, {"id": "2", "text": " "}, {"id": "3", "text": "gamma"}]
    table, path = pa.Table.from_pylist(rows), tmp_path / name
    if name.endswith("parquet"):
        pq.write_table(table.append_column("day", pa.array([date(2026, 1, 2)] * 3)), path)
    else:
        lines = "".join(f"{row['id']}\t{row['text']}\n" for row in [{"id": "id", "text": "text"}, *rows])
        text = {"tsv": lines, "zst": lines.replace("\t", ",")}.get(
            name[-3:], "".join(json.dumps(r) + "\n" for r in rows)
        )
        pack = {".gz": gzip.compress, "zst": zstd.compress}.get(name[-3:], bytes)
        path.write_bytes(pack(text.encode()))
    keep = ["id", "day"] if name.endswith("parquet") else ["id"]
    predict_command(made[1], source=str(path), to=str(tmp_path / "out.jsonl"), keep=keep, device="cpu")
    predict_command(made[1], source=str(path), to=str(tmp_path / "out.jsonl"), keep=keep, device="cpu")  # once more
    found = answers((tmp_path / "out.jsonl").read_text())
    with pytest.raises(InputError, match="is a file that is read"):
        predict_command(made[1], source=f"{tmp_path}/i?{name[2:]}", to=str(path), to_format="csv")
    assert [row["id"] for row in found] == ["1", "2", "3"]
    assert found[1]["error"] == "the text is empty"
    assert found[0].get("day", "2026-01-02") == "2026-01-02"
    expected = [*predict(made[1], ["alpha beta", "gamma"], device="cpu")]
    assert [row["probabilities"] for row in (found[0], found[2])] == [row["probabilities"] for row in expected]
    with pytest.raises(InputError, match="did you mean 'text'"):
        predict_command(made[1], source=str(path), text_field="txt", device="cpu")


def test_a_file_that_nothing_could_be_predicted_of_replaces_no_other(made: Made, tmp_path: Path) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    target.write_text("of yesterday\n")
    source.write_text('{"body": "alpha"}\n' * 2)
    with pytest.raises(InputError, match=r"because none of its 2 rows can be predicted; the first: no field 'text'"):
        predict_command(made[1], source=str(source), to=str(target), device="cpu")
    assert target.read_text() == "of yesterday\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", "out.jsonl"]
    predict_command(made[1], source=str(source), to=str(target), text_field="body", device="cpu")
    assert len(answers(target.read_text())) == 2


def test_a_file_called_csv_is_written_as_csv(made: Made, tmp_path: Path) -> None:
    (source := tmp_path / "IN.TXT").write_text("{alpha\n")  # no JSON
    for name, begins in (("out.csv", "row,text,"), ("out.CSV", "row,text,"), ("out", '{"row": 1')):
        predict_command(made[1], source=str(source), to=str(tmp_path / name), device="cpu")
        assert (tmp_path / name).read_text(encoding="utf-8-sig").startswith(begins)
    predict_command(made[1], source=str(source), to=str(tmp_path / "as.csv"), to_format="jsonl", device="cpu")
    assert (tmp_path / "as.csv").read_text().startswith("{")


def test_a_folder_serves_as_well(made: Made) -> None:
    folder = Artifact.open(made[1]).path("model")
    assert list(predict(str(folder), ["alpha"], device="cpu")) == list(predict(made[1], ["alpha"], device="cpu"))


def test_classes_stand_in_the_order_of_their_numbers_and_one_alone_is_a_number() -> None:
    names = {str(number): f"class {number}" for number in reversed(range(12))}
    assert model_labels({"id2label": names}) == [f"class {number}" for number in range(12)]
    assert model_labels({"id2label": {"0": "LABEL_0"}}) is None


def test_a_folder_of_others_may_leave_out_the_names_of_two_classes(made: Made, tmp_path: Path) -> None:
    """As `transformers` does, if they are LABEL_0 and LABEL_1."""
    config = Path(download(made[1], str(tmp_path / "folder"))) / "config.json"
    values = json.loads(config.read_text())
    config.write_text(
        json.dumps({name: value for name, value in values.items() if name not in ("id2label", "label2id")})
    )
    (found,) = predict(str(config.parent), ["one text"], device="cpu")
    assert list(found["probabilities"]) == ["LABEL_0", "LABEL_1"]


@pytest.mark.parametrize("kind", ["mpnet", "data2vec-text", "esm", "ibert", "roberta-prelayernorm", "xmod"])
def test_a_text_is_cut_at_the_last_position_of_models_whose_positions_start_late(tmp_path: Path, kind: str) -> None:
    shape = {"vocab_size": 9, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "pad_token_id": 1}
    more = {"mask_token_id": 4, "default_language": "en_XX", "intermediate_size": 16, "max_position_embeddings": 34}
    config = CONFIG_MAPPING[kind](**shape, **more)
    AutoModelForSequenceClassification.from_config(config).save_pretrained(tmp_path)
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nsea\n")
    BertTokenizerFast(str(tmp_path / "vocab.txt")).save_pretrained(tmp_path)  # which names no limit
    (found,) = predict(str(tmp_path), ["sea " * 99], device="cpu")
    assert found["label"] in ("LABEL_0", "LABEL_1")


def test_a_report_stands_for_the_model_that_it_recommends(tmp_path: Path) -> None:
    rows: list[Row] = [
        (f"{'good' if index % 2 else 'bad'} {text}", None, "yes" if index % 2 else "no", split)
        for index, text in enumerate(words(60, 0))
        for split in (("train", "dev", "test")[index % 3],)
    ]
    task = make_task(tmp_path, rows, "macro_f1", ["no", "yes"])
    linear = baseline(task, root=str(tmp_path))
    encoder = evaluate(random_model(tmp_path, task, words(50, 9), "modernbert")[1], task, root=str(tmp_path))
    made = report([encoder, linear], root=str(tmp_path))
    assert [*predict(made, ["good"])] == [*predict(linear, ["good"])]
    assert trained(made).uri == trained(linear).uri != trained(encoder).uri


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"source": "absent.txt"}, "absent.txt cannot be read: No such file or directory"),
        ({"source": "empty.txt"}, "the input is empty"),
        ({"source": "in.csv", "text_field": "txt"}, "no column 'txt'; it has 'text', 'b'; did you mean 'text'?"),
        ({"source": "open.csv"}, "the head of the CSV cannot be read"),
        ({"source": "blank.csv"}, "the input is empty"),
        ({"source": "in.txt", "keep": ["b"]}, "plain text has no field 'b'"),
        ({"source": "in.csv", "pair_field": "b"}, "the model learned from single texts; do without --pair-field"),
        ({"source": "in.csv", "pair_field": "text"}, "text_field and pair_field are both 'text'; expected different"),
        ({"source": "in.txt", "device": "gpu"}, "device 'gpu' is unknown"),
        ({"source": "in.txt", "model": "nowhere/model/1"}, "there is no finished model here"),
        ({"source": "in.txt", "to": "in.txt"}, "in.txt is a file that is read"),
        ({"source": "in.txt", "to": "link"}, "link is a file that is read"),
        ({"source": "in.txt", "to": "absent/out"}, "absent/out cannot be written"),
    ],
)
def test_what_cannot_be_is_said_in_a_sentence(
    settings: dict[str, object], message: str, made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    files = {"empty.txt": "", "in.csv": "text,b\nx,y\n", "open.csv": '"text\nfoo\n', "blank.csv": "\n \n"}
    for name, text in {**files, "in.txt": "a text\n"}.items():
        Path(name).write_text(text)
    Path("link").symlink_to("in.txt")
    with pytest.raises(InputError) as error:
        predict_command(**{"model": made[1], **settings})
    assert message in str(error.value)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), min_size=1, max_size=6))
def test_jsonl_rows_come_back_as_they_were(texts: list[str]) -> None:
    lines = [json.dumps({"text": text, "n": 1}) + "\n" for text in texts]
    found = list(read_rows(iter(lines), "auto", "text"))
    assert [row.text for row in found] == [text if text.strip() else "" for text in texts]
    assert [row.error for row in found] == ["" if text.strip() else "the text is empty" for text in texts]


def test_a_decomposed_text_gets_the_answer_of_the_composed_one_and_stays_as_it_is(tmp_path: Path) -> None:
    """Some programs write é as e with a combining accent; texts that models learn from are composed."""
    splits = ["train"] * 40 + ["dev"] * 10 + ["test"] * 10
    rows: list[Row] = [
        (f"{'café' if n % 2 else 'œuvre'} numéro {n}", None, "ab"[n % 2], split) for n, split in enumerate(splits)
    ]
    metrics = baseline(make_task(tmp_path, rows, "macro_f1", ["a", "b"]), root=str(tmp_path))
    composed = "un café numéro"
    decomposed = unicodedata.normalize("NFD", composed)
    first, second = predict(metrics, [composed, decomposed])
    assert decomposed != composed
    assert second["text"] == decomposed
    assert second["probabilities"] == first["probabilities"]
    paired = baseline(make_task(tmp_path, [(text, text, *rest) for text, _, *rest in rows], "macro_f1", ["a", "b"]))
    first, second = predict(paired, [("un", composed), ("un", decomposed)])
    assert second["probabilities"] == first["probabilities"]


@pytest.mark.parametrize("text", ["plain", "naïve"])
def test_looking_for_invisible_characters_takes_less_time_than_writing_the_row(text: str) -> None:
    """Of 500 classes, nearly all of a row is numbers."""
    row = {"text": text, "probabilities": {f"topic {number}": number / 7e7 for number in range(20_000)}}

    def seconds(work: Callable[[], str]) -> float:
        begun = time.process_time()
        work()
        return time.process_time() - begun

    line = json.dumps(row, ensure_ascii=False)
    assert escaped(line) == line
    looking, writing = (
        min(seconds(work) for _ in range(5)) for work in (lambda: escaped(line), lambda: json.dumps(row))
    )
    assert looking < writing


def test_utf_16_is_no_text(made: Made, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_bytes("Hello\nthere\n".encode("utf-16"))
    with pytest.raises(InputError, match="UTF-16 or not text; convert it, as iconv -f UTF-16 -t UTF-8 does"):
        predict_command(made[1], source=str(tmp_path / "texts.txt"), to=str(tmp_path / "to.jsonl"))


def test_what_is_written_to_be_labelled_can_be_read_back(tmp_path: Path) -> None:
    """Direction marks and soft hyphens are part of Arabic and German texts; overrides and controls are spelled out."""
    texts = ["سلام\u200f", "Donau\u00addampf", "a\u200bb", "evil\u202etxt", "bell\x07"]
    write_new(str(tmp_path / "new.csv"), [{"text": text} for text in texts], ["text"])
    with (tmp_path / "new.csv").open(encoding="utf-8-sig", newline="") as file:
        assert [row["text"] for row in csv.DictReader(file)] == [*texts[:3], "evil⟨U+202E⟩txt", "bell⟨U+0007⟩"]
