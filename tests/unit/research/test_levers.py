"""The study `levers`: each change beside the recipe as it is, with the same seeds; what is finished is not repeated."""

import json
from pathlib import Path

from research import levers as command
from tests.toy_reports import as_if
from tests.toys_training import SMALL, checkpoint, model, passages, task, tokenizer
from tlm.artifacts.artifact import Artifact
from tlm.data.tasks.examples import read_splits


def test_the_time_of_a_training_is_that_of_all_its_attempts(tmp_path: Path) -> None:
    """In run.json, `process_seconds` are those of the last one."""
    examples = task(tmp_path)
    start = checkpoint(tmp_path, examples)
    end = model(tmp_path, start, examples)
    as_if(tmp_path, "checkpoint", process_seconds=1.0, cpu_seconds=20.0)
    as_if(tmp_path, "model", process_seconds=3.0, cpu_seconds=2.0)
    given = Artifact.open(examples)
    found = command._result(start, end, given, read_splits(given, "dev")["dev"])
    assert found["cpu_seconds"] == [20.0, 3.0]


def test_a_change_is_compared_seed_by_seed_and_finished_runs_are_read(tmp_path: Path, capsys) -> None:
    examples, file = task(tmp_path), tmp_path / "runs.jsonl"
    given = {
        "changes": ["train.masking=words", "train.mask_share=0.5"], "file": file, "preset": "tiny", "seeds": 1,
        "tokenizer": tokenizer(tmp_path, examples, kind="bpe"), "subset": passages(tmp_path, "subset"),
        "overrides": [*SMALL, "finetune.steps=2"], "root": str(tmp_path),
    }  # fmt: skip
    command.levers(examples, **given)
    first, runs = capsys.readouterr().out, [json.loads(line) for line in file.read_text().splitlines()]
    assert [run["change"] for run in runs] == [command.PLAIN, *given["changes"]]
    assert [line.split("\t")[0] for line in first.splitlines()] == ["change", command.PLAIN, *given["changes"]]
    assert {len(run["answers"]) for run in runs} == {18}
    assert len({run["mlm"] for run in runs}) == 3
    command.levers(examples, **given)
    assert capsys.readouterr().out == first
    assert len(file.read_text().splitlines()) == 3
    command.levers(examples, **{**given, "changes": [], "overrides": [*SMALL, "finetune.steps=3"]})
    assert len(file.read_text().splitlines()) == 4, "another recipe is another run"
