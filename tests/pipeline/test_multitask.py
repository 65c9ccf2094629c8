"""Multi-task TLM under kfp.local on two tasks, from files to the report in which they stand side by side."""

import json
import random
from pathlib import Path

import pytest

from pipelines.compiled import build, of_this_code
from pipelines.form import Parallelism
from tests.tiny import GLUE, TOPICS, write_tiny
from tlm.artifacts.artifact import Artifact
from tlm.errors import InputError


def write_second(folder: Path) -> None:
    """A task of two classes whose words are those of one topic: is it about rain?"""
    chance = random.Random(11)
    folder.mkdir()
    for split, rows in (("train", 36), ("dev", 12), ("test", 12)):
        with (folder / f"{split}.jsonl").open("w", encoding="utf-8") as file:
            for row in range(rows):
                words = TOPICS["rain"] if row % 2 else TOPICS["chess"]
                text = " ".join(chance.choice(words if chance.random() < 0.6 else GLUE) for _ in range(9))
                file.write(json.dumps({"text": text, "label": "rain" if row % 2 else "dry"}) + "\n")


@pytest.mark.slow
def test_two_tasks_train_alone_and_together_and_stand_side_by_side(run_module, tmp_path: Path) -> None:
    write_tiny(tmp_path / "data", documents=200, train=30, held_out=12)
    write_second(tmp_path / "data" / "weather")
    values = {
        "corpus_paths": "data/corpus.jsonl",
        "task_paths": "data/task, data/weather",
        "run_preset": "tiny",
        "run_seeds": "3",
    }
    changes = [item for name, value in values.items() for item in ("--set", f"{name}={value}")]
    done = run_module("pipelines.run", "local", "--pipeline", "multitask", *changes)
    report = Artifact.open(str(tmp_path / done.stdout.strip().splitlines()[-1]), "report")
    told = json.loads(report.path("report.json").read_text())
    assert [task["name"] for task in told["tasks"]] == ["task", "weather"]
    assert [arm["arm"] for arm in told["arms"]] == ["baseline", "bm25", "multi-task"]
    _, alone, together = told["arms"]
    assert alone["seeds"] == together["seeds"] == [3]
    trained = [[(one["stage"], one["tasks"]) for one in arm["trainings"]] for arm in (alone, together)]
    second = [("stage 2", ["task"]), ("stage 2", ["weather"])]
    assert trained == [
        [("stage 1", ["task"]), ("stage 1", ["weather"]), *second],
        [("stage 1", ["task", "weather"]), *second],
    ]
    steps = [sum(one["steps"]["mean"] for one in arm["trainings"]) for arm in (alone, together)]
    assert steps[0] == steps[1] == alone["total"]["steps"]["mean"]  # equal total compute
    for number in range(2):
        page = report.input(f"report-{number:03d}").path("report.md").read_text()
        assert "bm25" in page
        assert "multi-task" in page
        assert "one training for task, weather" in page


def test_it_compiles_with_the_parameters_of_the_first_pipeline() -> None:
    theirs, ours = of_this_code("multitask"), of_this_code("tlm")
    assert theirs.keys() - ours.keys() == {"task_paths"}
    of_one_task = {"run_arms", "task_path", "task_files", "task_unlabelled_path", "registry_address", "registry_model"}
    of_one_task |= {"run_published", "run_published_preset", "report_against", "task_max_rejected"}
    assert ours.keys() - theirs.keys() <= of_one_task
    assert all(theirs[name] == ours[name] for name in theirs.keys() & ours.keys())


def test_it_is_not_for_several_nodes() -> None:
    with pytest.raises(InputError, match="trains each stage 1 on one machine; leave --nodes out"):
        build("multitask", Parallelism(nodes=2))
