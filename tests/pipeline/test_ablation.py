"""A table of the paper under kfp.local, from files to kept results: settings × arms through the same steps."""

import json
from pathlib import Path

from tests.tiny import write_tiny


def test_a_table_runs_and_its_results_are_kept(run_module, tmp_path: Path) -> None:
    write_tiny(tmp_path / "data", documents=200, train=30, held_out=12)
    values = {
        "corpus_paths": "data/corpus.jsonl",
        "task_path": "data/task",
        "paper_table": "7",
        "paper_scale": "tiny",
        "run_seeds": "3",
    }
    changes = [item for name, value in values.items() for item in ("--set", f"{name}={value}")]
    done = run_module("pipelines.run", "local", "--pipeline", "ablation", *changes)
    report = done.stdout.strip().splitlines()[-1]
    assert "stage 1 only" in done.stdout
    run_module("tlm.cli", "keep", report, "--table", "7", "--results", "kept", "--revision", "abc")
    kept = [json.loads(path.read_text()) for path in (tmp_path / "kept").rglob("*.json")]
    assert {one["key"] for one in kept} == {"tiny-task-bm25", "tiny-task-bm25-stage-1", "baseline-task"}
    shown = run_module("tlm.cli", "paper", "7", "--scale", "tiny", "--results", "kept", "--markdown").stdout
    assert "without stage 2" in shown
