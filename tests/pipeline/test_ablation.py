"""A table of the paper under kfp.local, from files to kept results: settings × arms through the same steps."""

import json
from pathlib import Path

import pytest

from research.paper.plan import make_models
from tests.published import write_bert
from tests.tiny import GLUE, TOPICS, write_tiny
from tlm.data.tasks.task import load_task
from tlm.errors import InputError

BERT = "bert_uncased_L-2_H-128_A-2"


def run_table(run_module, tmp_path: Path, number: str, **more: object):  # type: ignore[no-untyped-def]
    """One of the paper's tables at scale tiny."""
    write_tiny(tmp_path / "data", documents=200, train=30, held_out=12)
    values = {
        "corpus_paths": "data/corpus.jsonl", "task_path": "data/task", "paper_table": number, "paper_scale": "tiny",
        "run_seeds": "3", **more,
    }  # fmt: skip
    changes = [item for name, value in values.items() for item in ("--set", f"{name}={value}")]
    return run_module("pipelines.run", "local", "--pipeline", "ablation", *changes)


@pytest.mark.slow
def test_a_table_runs_and_its_results_are_kept(run_module, tmp_path: Path) -> None:
    """Without a network, and without published models: this table needs none."""
    done = run_table(run_module, tmp_path, "7")
    report = done.stdout.strip().splitlines()[-1]
    assert "stage 1 only" in done.stdout
    run_module("research", "keep", report, "--table", "7", "--results", "kept", "--revision", "abc")
    kept = [json.loads(line) for line in (tmp_path / "kept" / "7.jsonl").read_text().splitlines()]
    assert {one["key"] for one in kept} == {"tiny-task-bm25", "tiny-task-bm25-stage-1", "baseline-task"}
    shown = run_module("research", "paper", "7", "--scale", "tiny", "--results", "kept", "--markdown").stdout
    assert "without stage 2" in shown


@pytest.mark.slow
def test_published_models_stand_beside_tlm(run_module, tmp_path: Path) -> None:
    arms = {"published": "PLM (RoBERTa-Base)", "published-task-only": "PLM + MLM on task data"}
    number, seeds = "8", [3, 4]
    write_bert(tmp_path / "models" / BERT, [*GLUE, *(word for words in TOPICS.values() for word in words)])
    done = run_table(run_module, tmp_path, number, paper_models="models", run_seeds=",".join(map(str, seeds)))
    report = done.stdout.strip().splitlines()[-1]
    run_module("research", "keep", report, "--table", number, "--results", "kept", "--revision", "abc")
    kept = [json.loads(line) for line in (tmp_path / "kept" / f"{number}.jsonl").read_text().splitlines()]
    by_arm = {arm: [one for one in kept if one["arm"] == arm] for arm in ("bm25", *arms)}
    assert {arm: sorted(one["seed"] for one in found) for arm, found in by_arm.items()} == dict.fromkeys(by_arm, seeds)
    for arm, row in arms.items():
        assert {one["cell"]["row"] for one in by_arm[arm]} == {row}
        assert {one["settings"]["start"] for one in by_arm[arm]} == {BERT}
        contents = [next(item for item in one["made_from"].items() if "model/" in item[0]) for one in by_arm[arm]]
        assert len(set(contents)) == len(seeds)  # each seed has a model of its own
    before = {arm: {one["cost"]["stage 1"]["steps"] for one in found} for arm, found in by_arm.items()}
    assert before == {arm: {0 if arm == "published" else 24} for arm in before}
    shown = run_module(
        "research", "paper", number, "--scale", "tiny", "--results", "kept", "--markdown", "--check"
    ).stdout
    assert f"over {arms['published']}" in shown
    assert f"google/{BERT}" in shown.replace("\\", "")
    assert ", 0 do not match" in shown


def test_a_model_that_is_missing_is_said(tmp_path: Path) -> None:
    write_tiny(tmp_path / "data", documents=200, train=30, held_out=12)
    task = load_task(str(tmp_path / "data" / "task"), root=str(tmp_path / "root"))
    with pytest.raises(InputError) as caught:
        make_models(task, table="2", scale="tiny", folder=str(tmp_path / "models"), root=str(tmp_path / "root"))
    said = str(caught.value)
    assert f"models/{BERT}: there is no such folder, and the table compares with google/{BERT}" in said
    assert f"hf download google/{BERT}" in said
