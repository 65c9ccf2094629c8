"""The pipeline `predict`: a folder of new files is labelled, and a repeated run labels what is new since."""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from components.training import predict
from pipelines.compiled import build, compile_text, of_this_code, parse, read_parameters
from pipelines.form import Parallelism
from tests.tiny import refused, write_rows
from tests.toys import make_task, words
from tlm.evaluation.predict.files import predict_command
from tlm.evaluation.report.report import report
from tlm.evaluation.score.baseline import baseline


@pytest.mark.slow
def test_a_repeated_run_labels_the_files_that_are_new(run_module: Callable, tmp_path: Path) -> None:
    rows = [
        (text, None, "ab"[index % 2], ("train", "dev", "test")[index % 3]) for index, text in enumerate(words(90, 0))
    ]
    scored = baseline(make_task(tmp_path, rows, "macro_f1", ["a", "b"]), root=str(tmp_path))
    to = tmp_path / "labels"
    values = {"model": report([scored], root=str(tmp_path)), "source": f"{tmp_path}/texts/*.jsonl", "to": str(to)}
    values |= {"keep": "id, day", "at_least": "0.7"}
    given = [part for name, value in values.items() for part in ("--set", f"predict_{name}={value}")]
    for day in (1, 2):
        path = tmp_path / "texts" / f"{day}.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"id": day, "day": "Monday", "text": "some words"}) + "\n")
        done = run_module("pipelines.run", "local", "--pipeline", "predict", *given)
        assert done.stdout == f"{to}\n"
        assert f"files written to {to}: 1; there already: {day - 1}" in done.stderr
    (first,) = map(json.loads, (to / "1.jsonl.jsonl").open())
    (second,) = map(json.loads, (to / "2.jsonl.jsonl").open())
    assert (first["id"], second["id"]) == (1, 2)
    assert {"day", "unsure", "label"} <= first.keys()


def test_the_component_passes_every_option_on(tmp_path: Path) -> None:
    texts = words(90, 0)
    rows = [(text, text[::-1], "ab"[n % 2], ("train", "dev", "test")[n % 3]) for n, text in enumerate(texts)]
    model = baseline(make_task(tmp_path, rows, "macro_f1", ["a", "b"]), root=str(tmp_path))
    write_rows(tmp_path / "in" / "1.jsonl", [{"first": text, "second": text[::-1], "id": 7} for text in texts[:3]])
    given = {"text_field": "first", "pair_field": "second", "at_least": 0.99, "likeliest": 1}
    predict.python_func(model, f"{tmp_path}/in/*", f"{tmp_path}/one", keep="id", gpus="0", **given)
    predict_command(model, source=f"{tmp_path}/in/*", to=f"{tmp_path}/two/", keep=["id"], **given)
    one, two = ((tmp_path / name / "1.jsonl.jsonl").read_text() for name in ("one", "two"))
    assert one == two
    assert {"id", "text_pair", "unsure", "probabilities"} <= json.loads(one.splitlines()[0]).keys()


def test_answers_that_would_end_with_the_pod_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A form in a browser does not say that s3:// is missing."""
    monkeypatch.chdir(tempfile.gettempdir())
    monkeypatch.setenv("KFP_POD_NAME", "a-step")
    options = {"text_field": "text", "pair_field": "", "at_least": 0.0, "likeliest": 0, "keep": "", "gpus": "0"}
    said = refused(predict.python_func, "s3://b/model", "s3://b/texts/", "b/labels", **options)
    assert said == "predict_to is 'b/labels', a folder that ends with this pod; give s3://bucket/prefix"


def test_model_source_and_target_must_be_given_() -> None:
    known = of_this_code("predict")
    assert {name for name, one in known.items() if one.required} == {
        f"predict_{one}" for one in ("model", "source", "to")
    }
    assert "default: predict_source; give --set predict_source=…" in refused(
        read_parameters, None, ["predict_model=m", "predict_to=l"], known
    )
    nothing = ["predict_model=", "predict_source=s", "predict_to=l"]
    assert "without a default: predict_model; give" in refused(read_parameters, None, nothing, known)
    assert "leave --nodes and --data-pods out" in refused(build, "predict", Parallelism(data_pods=2))


def test_a_file_that_cannot_be_predicted_is_tried_three_times() -> None:
    """Kubeflow waits longer before each try (20 seconds, 40, 80, 160, 320): six would take a quarter of an hour."""
    (step,) = (task for _, task in parse(compile_text(name="predict"), "predict").tasks())
    assert step["retryPolicy"]["maxRetryCount"] == 2
