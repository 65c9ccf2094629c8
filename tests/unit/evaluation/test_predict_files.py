"""Many files are predicted into a folder: each whole or not at all, and none twice."""

import csv
import json
import os
import shutil
from collections.abc import Iterator
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

from pipelines.compiled import of_this_code
from tests.tiny import refused
from tests.toys import Row, make_task, words
from tlm.artifacts.artifact import Artifact
from tlm.cli.upkeep import download
from tlm.data.reading.files import RawFile
from tlm.errors import InputError
from tlm.evaluation.predict import files, written
from tlm.evaluation.predict.files import predict_command
from tlm.evaluation.predict.models import trained
from tlm.evaluation.predict.predict import predict
from tlm.evaluation.predict.rows import InputRow, table_rows
from tlm.evaluation.score.baseline import baseline

LABELS = ["even", "odd"]
OTHER_OPTIONS: list[dict[str, Any]] = [{"keep": ["id"]}, {"at_least": 0.5}, {"likeliest": 1}, {"text_field": "id"}]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("made")
    rows: list[Row] = [
        (text, None, LABELS[index % 2], ("train", "dev", "test")[index % 3]) for index, text in enumerate(words(60, 0))
    ]
    return trained(baseline(make_task(root, rows, "macro_f1", LABELS), root=str(root))).uri


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """Two days with a file of one name, and a third file of another format."""
    for place, lines in (("day-1/a.jsonl", 3), ("day-2/a.jsonl", 2)):
        write(tmp_path / "in" / place, [{"id": number, "text": f"text {number}"} for number in range(lines)])
    (tmp_path / "in" / "b.csv").write_text("id,text\n7,seven\n")
    return tmp_path / "in"


def write(path: Path, rows: list[dict[str, object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def made(folder: Path) -> dict[str, float]:
    """The files of answers by name, with the times when they were written."""
    found = [path for path in folder.rglob("*.*") if path.name[0] not in "._" and ".scratch" not in path.parts]
    return {path.relative_to(folder).as_posix(): path.stat().st_mtime_ns for path in found}


def test_each_file_has_its_own_with_the_answers_of_one_alone(model: str, texts: Path, tmp_path: Path) -> None:
    to = tmp_path / "labels"
    predict_command(model, source=str(texts), to=f"{to}/", keep=["id"])
    assert {*made(to)} == {"day-1/a.jsonl.jsonl", "day-2/a.jsonl.jsonl", "b.csv.jsonl"}
    for name in made(to):
        predict_command(model, source=str(texts / name.removesuffix(".jsonl")), to=str(tmp_path / "one"), keep=["id"])
        assert [{**json.loads(line), "id": 0} for line in (to / name).open()] == [
            {**json.loads(line), "id": 0}
            for line in (tmp_path / "one").open()  # a CSV's numbers are texts for one
        ]


def test_only_new_files_are_predicted_and_names_do_not_depend_on_others(
    model: str, texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    to = tmp_path / "labels"
    (texts / "day-2" / "a.jsonl").unlink()
    predict_command(model, source=f"{texts}/day-*/*.jsonl", to=f"{to}/")
    before = made(to)
    write(texts / "day-2" / "a.jsonl", [{"text": "new"}])
    predict_command(model, source=f"{texts}/day-*/*.jsonl", to=str(to))  # a folder that exists needs no slash
    assert f"files written to {to}: 1; there already: 1" in capsys.readouterr().err
    assert {*made(to)} == {"day-1/a.jsonl.jsonl", "day-2/a.jsonl.jsonl"}
    assert made(to)["day-1/a.jsonl.jsonl"] == before["day-1/a.jsonl.jsonl"]


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_only_the_likeliest_labels_have_a_probability(model: str, texts: Path, tmp_path: Path, form: str) -> None:
    """The rest of an answer is as it is without that option; 0 stands for all."""
    rows = []
    for likeliest in (0, 1, 3):
        to, how = tmp_path / f"{likeliest}.{form}", {"keep": ["id"], "likeliest": likeliest}
        predict_command(model, source=str(texts / "day-1" / "a.jsonl"), to=str(to), **how)
        with to.open(newline="") as lines:
            rows.append([*(csv.DictReader(lines) if form == "csv" else map(json.loads, lines))])
    for whole, one, both in zip(*rows, strict=True):
        chances = {label: float(whole.pop(f"p({label})")) for label in LABELS} if form == "csv" else {}
        chances = chances or whole.pop("probabilities")
        found = [row.pop("probabilities") for row in (one, both)]
        first, every = map(json.loads, found) if form == "csv" else found
        assert whole == one == both
        assert every == chances
        assert list(every.values()) == sorted(every.values(), reverse=True)
        assert first == {whole["label"]: float(whole["probability"])}
    with pytest.raises(InputError, match="likeliest is -1; expected 0 or more"):
        predict_command(model, source=str(texts), likeliest=-1)
    with pytest.raises(InputError, match="likeliest is -1; expected 0 or more"):
        next(predict(model, ["a text"], likeliest=-1))


def test_a_run_without_new_files_does_not_load_the_model(
    model: str, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        predict_command(model, source=str(texts), to=f"{tmp_path}/labels/")
        monkeypatch.setattr("tlm.evaluation.predict.files.open_predictor", None)


def test_a_file_that_changes_while_it_is_answered_is_answered_by_the_next_run(
    model: str, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def growing(file: RawFile, fields: list[str], keep: list[str]) -> Iterator[InputRow]:
        yield from table_rows(file, fields, keep)
        if file.where.endswith("b.csv"):
            (texts / "b.csv").write_text("id,text\n7,seven\n8,eight\n")

    monkeypatch.setattr(files, "table_rows", growing)
    said = refused(predict_command, model, source=str(texts), to=f"{tmp_path}/labels/")
    assert "b.csv changed while it was read; repeat the step when nothing writes to it" in said
    monkeypatch.undo()
    predict_command(model, source=str(texts), to=f"{tmp_path}/labels/")
    assert len((tmp_path / "labels" / "b.csv.jsonl").read_text().splitlines()) == 2


def test_files_that_are_newer_than_their_answers_are_named(
    model: str, texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Such a file was replaced under its name, or still being written: its new rows have no answer."""
    predict_command(model, source=str(texts), to=f"{tmp_path}/labels/")
    predict_command(model, source=str(texts), to=f"{tmp_path}/labels/")
    assert "warning" not in capsys.readouterr().err
    later = (tmp_path / "labels" / "b.csv.jsonl").stat().st_mtime + 60
    os.utime(texts / "b.csv", (later, later))
    predict_command(model, source=str(texts), to=f"{tmp_path}/labels/")
    assert (
        f"warning: 1 files changed after they were answered, {texts}/b.csv for one; "
        "to have such a file answered again, remove its answers (b.csv.jsonl)"
    ) in capsys.readouterr().err


def test_a_folder_that_kubeflow_began_goes_on_anywhere(model: str, texts: Path, tmp_path: Path) -> None:
    """It hands 0.0 to a step as 0."""
    for at_least in (0, 0.0):
        predict_command(model, source=str(texts), to=f"{tmp_path}/labels/", at_least=at_least)


def test_a_bad_file_stops_no_other_and_is_named_at_the_end(model: str, texts: Path, tmp_path: Path) -> None:
    write(texts / "day-1" / "a.jsonl", [{"body": "no text"}])
    (texts / "c.csv").write_text("id,body\n1,no text\n")
    (texts / "d.txt").write_text("a line\n")
    said = refused(predict_command, model, source=str(texts), to=f"{tmp_path}/labels/")
    assert said.startswith(f"3 of the 5 files of {texts} cannot be predicted; the first: ")
    assert {*made(tmp_path / "labels")} == {"day-2/a.jsonl.jsonl", "b.csv.jsonl"}


def test_a_table_without_rows_is_answered_with_none(model: str, texts: Path, tmp_path: Path) -> None:
    """A day without texts is no fault, which would end all later runs with exit code 2; an empty file may be one."""
    (texts / "quiet.csv").write_text("id,text\n")
    predict_command(model, source=str(texts), to=f"{tmp_path}/labels/")
    assert (tmp_path / "labels" / "quiet.csv.jsonl").read_text() == ""
    (texts / "other.csv").write_text("id,body\n")
    (texts / "nothing.csv").write_text("")
    said = refused(predict_command, model, source=str(texts), to=f"{tmp_path}/labels/")
    assert said.startswith(f"2 of the 6 files of {texts} cannot be predicted; the first: {texts}/nothing.csv is empty")


def test_every_option_of_predict_is_everywhere() -> None:
    asked = {*signature(predict_command).parameters} - {"source_format", "to_format", "device"}
    known = {"model", "source", "to", "pair_field"}.union(*OTHER_OPTIONS)
    forgotten = asked - {name.removeprefix("predict_") for name in of_this_code("predict")}
    assert not forgotten, f"give the pipeline predict, in pipelines/tlm.py, these options: {forgotten}"
    told = "add these to `options` in tlm/evaluation/predict/files.py, and to OTHER_OPTIONS here with another value"
    assert not asked - known, f"{told}: {asked - known}"


def test_answers_of_another_model_or_with_other_options_are_not_mixed(model: str, texts: Path, tmp_path: Path) -> None:
    assert "no field 'txt'" in refused(
        predict_command, model, source=f"{texts}/day-1", to=f"{tmp_path}/labels/", text_field="txt"
    )  # so there are no answers yet
    predict_command(model, source=f"{texts}/day-1/*", to=f"{tmp_path}/labels/")
    for other in (*OTHER_OPTIONS, {"source": f"{texts}/day-2"}):
        assert "has answers of another model or source, or with other options" in refused(
            predict_command, model, **{"source": f"{texts}/day-1", "to": f"{tmp_path}/labels/", **other}
        )
    known = Artifact.open(model)
    assert json.loads((tmp_path / "labels" / files.ABOUT).read_text())["model"] == known.content
    download(model, str(tmp_path / "model"))
    predict_command(str(tmp_path / "model"), source=f"{texts}/day-1/a.jsonl", to=f"{tmp_path}/labels")  # the same


def test_a_model_that_takes_the_place_of_another_in_its_folder_is_another(
    model: str, texts: Path, tmp_path: Path
) -> None:
    """Without `tlm download`, nothing but its files tells the models of a folder apart."""
    place, to = tmp_path / "model", f"{tmp_path}/labels/"
    shutil.copytree(Artifact.open(model).path("model"), place)
    predict_command(str(place), source=str(texts), to=to)
    (place / ".noted").write_text("by a program")
    predict_command(str(place), source=str(texts), to=to)
    for _ in range(2):
        predict_command(str(place), source=str(texts), to=f"{place}/answers/")
    predict_command(str(place), source=str(texts), to=to)
    (place / "config.json").write_text((place / "config.json").read_text().replace("odd", "new"))
    assert "has answers of another model" in refused(predict_command, str(place), source=str(texts), to=to)


def test_a_folder_of_answers_within_its_source_is_not_read(model: str, texts: Path) -> None:
    for _ in range(2):
        predict_command(model, source=str(texts), to=f"{texts}/labels/")
    assert {*made(texts / "labels")} == {"day-1/a.jsonl.jsonl", "day-2/a.jsonl.jsonl", "b.csv.jsonl"}


def test_links_and_parents_lead_to_the_same_folders(
    model: str, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to(texts)
    monkeypatch.chdir(texts / "day-1")
    for source, to in ((f"{tmp_path}/link/", "../labels/"), ("../../link", f"{texts}/labels/")):
        predict_command(model, source=source, to=to)
    assert {*made(texts / "labels")} == {"day-1/a.jsonl.jsonl", "day-2/a.jsonl.jsonl", "b.csv.jsonl"}


@pytest.mark.parametrize("to", ["", "day-1", "day-1/."])
def test_answers_never_stand_among_their_texts_or_nowhere(
    model: str, texts: Path, to: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(texts)
    monkeypatch.setenv("TLM_ROOT", str(texts / "store"))
    said = refused(predict_command, model, source="day-1" if to else "b.csv", to=to)
    assert ("cannot be written" if not to else "the folder of the answers; name another --to") in said
    assert {path.name for path in texts.rglob("*") if path.is_file()} == {"a.jsonl", "b.csv"}


def test_a_source_is_never_written_over_and_rows_of_several_files_are_numbered_through(
    model: str, texts: Path, tmp_path: Path
) -> None:
    file = texts / "day-1" / "a.jsonl"
    assert "is a file that is read" in refused(predict_command, model, source=str(file), to=f"file://{file}")
    predict_command(model, source=f"file://{texts}/day-*/a.jsonl", to=str(tmp_path / "one.jsonl"))
    assert [json.loads(line)["row"] for line in (tmp_path / "one.jsonl").open()] == [1, 2, 3, 4, 5]


def test_what_is_gone_stops_no_other_and_another_run_s_options_do(
    model: str, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(file: RawFile, fields: list[str], keep: list[str]) -> Iterator[InputRow]:
        if file.where.endswith("day-1/a.jsonl"):
            file.cache = tmp_path  # as if on S3, from where it cannot be had
            file.locate = lambda: tmp_path / "absent"
            raise InputError("gone")
        if file.where.endswith("day-2/a.jsonl") and other:
            (tmp_path / "labels" / files.ABOUT).write_text("{}")
        return table_rows(file, fields, keep)

    other = False
    monkeypatch.setattr(files, "table_rows", gone)
    assert "1 of the 3 files" in refused(predict_command, model, source=str(texts), to=f"{tmp_path}/labels/")
    assert {*made(tmp_path / "labels")} == {"day-2/a.jsonl.jsonl", "b.csv.jsonl"}
    (texts / "day-3.jsonl").write_text((texts / "day-2" / "a.jsonl").read_text())
    (tmp_path / "labels" / "day-2" / "a.jsonl.jsonl").unlink()
    other = True
    assert "another run began to fill" in refused(predict_command, model, source=str(texts), to=f"{tmp_path}/labels/")


def test_what_ends_in_the_middle_leaves_no_file(
    model: str, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def torn(row: dict[str, object]) -> str:
        if row["row"] == 2:
            raise KeyboardInterrupt
        return "{}\n"

    monkeypatch.setattr(written, "_json_line", torn)
    with pytest.raises(KeyboardInterrupt):
        predict_command(model, source=str(texts), to=f"{tmp_path}/labels/")
    assert {*made(tmp_path / "labels")} == {"b.csv.jsonl"}  # the first, of one row


def test_a_folder_called_as_stdout_is_not_filled(
    model: str, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "-").mkdir()
    monkeypatch.chdir(tmp_path)
    predict_command(model, source=str(texts / "b.csv"))
    assert capsys.readouterr().out.startswith('{"row": 1')
    assert not [*(tmp_path / "-").iterdir()]


def test_a_folder_needs_files(model: str, tmp_path: Path) -> None:
    assert "is a folder; name files with --source" in refused(predict_command, model, to=f"{tmp_path}/labels/")
    with pytest.raises(InputError, match="leave out --source-format"):
        predict_command(model, source="in.txt", source_format="txt", to=f"{tmp_path}/labels/")
