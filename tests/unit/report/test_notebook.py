"""The notebook: every cell runs, for each kind of task, and its mistakes are those of the model, the gravest first."""

import json
import random
from contextlib import redirect_stdout
from importlib import import_module
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import missing
from tests.tiny import refused, small_files
from tests.toys import make_task
from tests.toys_several import rows as several_rows
from tests.toys_several import several, write
from tests.unit.shallow.test_shallow import LABELS, rows_of
from tlm.artifacts.artifact import Artifact
from tlm.data.tasks.examples import examples, read_splits
from tlm.data.tasks.task import load_task
from tlm.evaluation.predict.predict import predict
from tlm.evaluation.report.notebook import mistakes, notebook
from tlm.evaluation.report.report import report
from tlm.evaluation.score.baseline import baseline
from tlm.evaluation.score.imported import import_predictions

KINDS = ("plain", "pairs", "numbers", "several")


def metrics_of(kind: str, folder: Path) -> str:
    """Metrics of a linear model of labels that have nothing to do with the texts."""
    root = str(folder / "store")
    if kind == "several":
        texts, labels = zip(*several_rows(240), strict=True)
        file = write(folder / "colours.jsonl", [*zip(texts, random.Random(1).sample(labels, len(labels)), strict=True)])
        return baseline(load_task(str(file), root=root), root=root)
    rows, numbers = rows_of(kind), kind == "numbers"
    golds = random.Random(1).sample([row[2] for row in rows], len(rows))
    rows = [(*row[:2], gold, row[3]) for row, gold in zip(rows, golds, strict=True)]
    metric = "pearson" if numbers else "macro_f1"
    return baseline(make_task(Path(root), rows, metric, None if numbers else LABELS, "a <b>task</b>"), root=root)


def code(path: str) -> list[str]:
    found = json.loads(Path(path).read_text(encoding="utf-8"))["cells"]
    return [cell["source"] for cell in found if cell["cell_type"] == "code"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_cell_runs(kind: str, tmp_path: Path) -> None:
    names: dict[str, Any] = {}
    shown = []
    for source in code(notebook(metrics_of(kind, tmp_path), to=str(tmp_path / "it.ipynb"))):
        with redirect_stdout(StringIO()) as said:
            exec(source, names)  # noqa: S102
        shown.append(said.getvalue())
    assert shown[0].count("\n\n") == len(names["wrong"]) > 0  # each apart from the next
    assert "Nearest training texts" in shown[1]
    assert len(shown[2].splitlines()) == len(names["TEXTS"]) > 0


@pytest.mark.parametrize("kind", KINDS)
def test_mistakes_are_what_the_model_answers_wrongly(kind: str, tmp_path: Path) -> None:
    metrics = metrics_of(kind, tmp_path)
    found = mistakes(metrics, split="test", most=1000)  # answers on dev may be cross-fitted
    weights = [row["weight"] for row in found]
    assert weights == sorted(weights, reverse=True)
    assert [row["weight"] for row in mistakes(metrics, split="test", most=3)] == weights[:3]
    answers = list(predict(metrics, [row["text"] for row in found]))
    for row, answer in zip(found, answers, strict=True):
        assert row["gold"] != row["predicted"]
        if kind == "numbers":
            assert answer["value"] == pytest.approx(row["predicted"], abs=1e-6)
            assert row["weight"] == abs(row["gold"] - row["predicted"])
        elif kind == "several":
            assert set(answer["labels"]) == set(row["predicted"])
        else:
            assert (answer["label"], answer["probability"]) == (
                row["predicted"],
                pytest.approx(row["weight"], abs=1e-6),
            )
    test = read_splits(Artifact.open(metrics, "metrics").input("task"), "test")["test"]
    texts = zip(test.texts, test.pairs, strict=True) if test.pairs else test.texts
    assert {row["text"] for row in found} <= {*texts}


def test_a_report_stands_for_the_model_that_it_recommends(tmp_path: Path) -> None:
    metrics = metrics_of("plain", tmp_path)
    of_metrics = Path(notebook(metrics, to=str(tmp_path / "metrics.ipynb"))).read_text(encoding="utf-8")
    of_report = Path(notebook(report([metrics]), to=str(tmp_path / "report.ipynb"))).read_text(encoding="utf-8")
    assert of_metrics == of_report
    assert of_metrics.count("`a <b>task</b>`") == of_metrics.count("<b>") == 1


def test_a_file_with_somebodys_texts_is_kept_and_imported_answers_have_no_notebook(tmp_path: Path) -> None:
    metrics, path = metrics_of("plain", tmp_path), tmp_path / "mine.ipynb"
    path.write_text("mine")
    assert "exists, perhaps with texts of yours" in refused(notebook, metrics, to=str(path))
    assert path.read_text() == "mine"
    task = Artifact.open(metrics, "metrics").input("task")
    (tmp_path / "answers.jsonl").write_text(
        "".join(
            json.dumps({"id": row["id"], "label": LABELS[0]}) + "\n"
            for row in examples(task).to_pylist()
            if row["split"] != "train"
        )
    )
    imported = import_predictions(str(tmp_path / "answers.jsonl"), task.uri, name="other", root=str(tmp_path / "store"))
    assert "has no model: it is of imported predictions" in refused(notebook, imported, to=str(tmp_path / "new.ipynb"))
    assert not (tmp_path / "new.ipynb").exists()


def test_the_name_of_home_is_answered_as_the_file_that_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shell does not replace the ~ of ``--to=~/my.ipynb``, nor that of an answer in ``$(…)``."""
    metrics = metrics_of("plain", tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert notebook(metrics, to="~/my.ipynb") == str(tmp_path / "my.ipynb")
    assert (tmp_path / "my.ipynb").is_file()


def test_a_disk_that_is_full_leaves_no_file_that_the_next_try_would_refuse(tmp_path: Path) -> None:
    metrics, path = metrics_of("plain", tmp_path), str(tmp_path / "model.ipynb")
    with small_files(1000), pytest.raises(OSError, match="File too large"):
        notebook(metrics, to=path)
    assert notebook(metrics, to=path) == path


def test_a_model_without_mistakes_has_a_notebook_too(tmp_path: Path) -> None:
    metrics = baseline(several(tmp_path).uri, root=str(tmp_path / "store"))
    assert mistakes(metrics) == []
    names: dict[str, Any] = {}
    for source in code(notebook(metrics, to=str(tmp_path / "it.ipynb"))):
        exec(source, names)  # noqa: S102


def test_jupyter_runs_it(tmp_path: Path) -> None:
    if not find_spec("nbclient") or not find_spec("ipykernel"):
        missing("nbclient or ipykernel is not installed: pip install -r research/benchmarks/requirements.txt")
    nbformat, client = import_module("nbformat"), import_module("nbclient")
    book = nbformat.read(notebook(metrics_of("plain", tmp_path), to=str(tmp_path / "it.ipynb")), as_version=4)
    nbformat.validate(book)
    client.NotebookClient(book, timeout=300).execute()
    said = "".join(output.get("text", "") for cell in book.cells for output in cell.get("outputs", []))
    assert "Nearest training texts" in said
    assert "'label': '" in said
