"""The arm `rerank`: a pipeline of its own, after a run with the arm bm25."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipelines.compiled import build, of_this_code
from pipelines.form import Parallelism
from research.rerank.reranked import plan_reranked
from tests.pipeline.test_run import arguments, artifacts
from tests.tiny import write_tiny
from tlm.artifacts.artifact import Artifact
from tlm.errors import InputError

SETTINGS = {"run_preset": "tiny", "run_overrides": "train.steps=20", "run_seeds": "3"}


def after(report: str, **more: str) -> list[str]:
    """Arguments of the pipeline, which continues the run of a report."""
    values = {"compared_with": report, "store_root": "store", **SETTINGS, **more}
    return ["--pipeline", "rerank", *(item for name, value in values.items() for item in ("--set", f"{name}={value}"))]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rerank")
    write_tiny(folder)
    return folder


@pytest.mark.slow
def test_the_model_of_an_earlier_run_chooses_text_for_new_ones(
    tiny: Path, run_module: Callable[..., Any], tmp_path: Path
) -> None:
    overrides = ("--set", "run_overrides=train.steps=20", "--set", "export_near_duplicates=false")
    first = run_module("pipelines.run", "local", *arguments(tiny, "store", "embedded", "bm25", "3"), *overrides)
    report = first.stdout.strip().splitlines()[-1]
    done = run_module("pipelines.run", "local", *after(report))
    made = done.stdout.strip().splitlines()[-1]
    told = json.loads(Artifact.open(made, "report").path("report.json").read_text())
    rows = [(group["kind"], group["text"]) for group in told["groups"]]
    earlier = [(group["kind"], group["text"]) for group in json.loads(report_of(report))["groups"]]
    assert set(rows) == {*earlier, ("encoder", "rerank"), ("encoder + linear", "rerank")}
    subsets = {
        (one.details["arm"], one.details["passages"]): one for one in artifacts(str(tmp_path / "store"), "subset")
    }
    sizes = [size for arm, size in subsets if arm in ("bm25", "rerank")]
    assert len(sizes) == 3  # BM25's, BM25's with three times K, and what was chosen of these
    assert sorted(sizes)[0] == sorted(sizes)[1] < sorted(sizes)[2]
    assert all(one.manifest.settings["jaccard"] is None for one in subsets.values())
    chosen = next(one for one in told["bill"]["spent"] if (one["part"], one["arm"]) == ("selection", "rerank"))
    assert chosen["flops"] > Artifact.open(encoder(tmp_path).uri).details["cost"]["flops"]
    found = everything(tmp_path / "store")
    plan_reranked(report, SETTINGS["run_seeds"], preset="tiny", overrides=SETTINGS["run_overrides"], device="cpu")
    assert everything(tmp_path / "store") == found, "text was chosen again"


def everything(store: Path) -> set[Path]:
    """All artifacts of a store."""
    return {*store.glob("[a-z]*/*/manifest.json")}


def report_of(uri: str) -> str:
    return Artifact.open(uri, "report").path("report.json").read_text()


def encoder(folder: Path) -> Artifact:
    """The checkpoint of BM25's text."""
    made = artifacts(str(folder / "store"), "checkpoint")
    return next(one for one in made if one.input("subset_tokens").input("data").details["arm"] == "bm25")


def test_without_a_report_it_says_so(run_module: Callable[..., Any]) -> None:
    """Of a report without such a model, test_shallow.py sees to it."""
    done = run_module("pipelines.run", "local", *after(""), code=2)
    assert "compared_with is empty" in done.stderr
    assert "Traceback" not in done.stderr


def test_it_compiles_with_parameters_of_the_first_pipeline() -> None:
    theirs, ours = of_this_code("rerank"), of_this_code("tlm")
    assert theirs.keys() - ours.keys() == {"compared_with"}
    assert all(theirs[name] == ours[name] for name in theirs.keys() & ours.keys())


def test_it_has_no_corpus_to_load() -> None:
    with pytest.raises(InputError, match="loads no corpus; leave --data-pods out"):
        build("rerank", Parallelism(data_pods=2))
