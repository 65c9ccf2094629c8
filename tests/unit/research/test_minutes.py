"""Scores against CPU minutes: what counts as a model's time, and names that can be read."""

import json
from itertools import combinations
from pathlib import Path
from statistics import mean, stdev

import pyarrow.parquet as pq
import pytest

from research.minutes import FOR_ALL, KEPT, minutes
from research.score_and_minutes import APART, NEAR, _names, score_against_minutes
from tests.toy_reports import as_if, toy_world
from tests.toys import Row, make_task
from tlm.artifacts.artifact import Artifact
from tlm.data.tasks.splits import SPLITS
from tlm.errors import InputError
from tlm.evaluation.score.baseline import baseline


def test_the_time_is_that_of_all_steps_behind_a_model_but_those_that_serve_all(tmp_path: Path) -> None:
    world, file = toy_world(tmp_path), tmp_path / "minutes.jsonl"
    uris = [world.metrics("bm25", seed, 0.6 + seed / 10) for seed in (0, 1)]
    as_if(tmp_path, "*", process_seconds=1000.0)
    for kind, seconds in (("model", 1.0), ("checkpoint", 20.0), ("subset", 300.0)):
        as_if(tmp_path, kind, process_seconds=seconds)
    steps = [one for one in Artifact.open(uris[0]).lineage() if one.manifest.kind not in FOR_ALL]
    others = [one for one in steps if one.manifest.kind not in ("model", "checkpoint", "subset")]
    assert "2 models" in minutes(uris, file=file)
    first, second = map(json.loads, file.read_text().splitlines())
    assert first["cpu_seconds"] == second["cpu_seconds"] == 321 + 1000 * len(others)
    assert (first["seed"], second["seed"], second["test"] - first["test"] > 0.05) == (0, 1, True)
    scored = Artifact.open(uris[0])
    labels, table = scored.json("metrics.json")["labels"], pq.read_table(scored.path("predictions.parquet")).to_pylist()
    assert [labels[int(one)] for one in first["answers"]] == [
        one["predicted"] for one in table if one["split"] == "test"
    ]
    written = file.read_bytes(), file.with_suffix(".svg").read_bytes()
    minutes(uris[:1], file=file)
    assert (file.read_bytes(), file.with_suffix(".svg").read_bytes()) == written


def test_other_metrics_and_more_classes_than_signs_are_refused(tmp_path: Path) -> None:
    """The picture would call them macro-F1."""
    for metric, classes, told in (("accuracy", 2, "accuracy"), ("macro_f1", 37, "macro_f1")):
        labels = [f"c{place:02d}" for place in range(classes)]
        texts = [(f"word{label} common text {n}", label) for n in range(3) for label in labels]
        rows: list[Row] = [(f"{text} {split}", None, label, split) for split in SPLITS for text, label in texts]
        scored = baseline(make_task(tmp_path, rows, metric, labels, metric), root=str(tmp_path))
        with pytest.raises(InputError, match=f"has {told}; minutes draws macro_f1 of tasks with at most 36 classes"):
            minutes([scored], file=tmp_path / "minutes.jsonl")


def test_names_of_models_that_took_as_long_do_not_overlap() -> None:
    times = [60.0, 61.0, 62.0, 200.0]
    arms = {f"arm-{n}": [{"cpu_seconds": time, "test": 0.7 + n / 1000}] for n, time in enumerate(times)}
    placed = [(place[0], height) for _, place, height, _ in _names(arms, (50.0, 80.0))]
    assert len(placed) == len(arms)
    for (time, height), (other, below) in combinations(placed, 2):
        assert abs(height - below) >= APART * 30 - 1e-9 or not 1 / NEAR < other / time < NEAR


def test_the_kept_picture_names_all_kept_models() -> None:
    rows = [json.loads(line) for line in KEPT.read_text(encoding="utf-8").splitlines()]
    drawn, kept = score_against_minutes(rows), KEPT.with_suffix(".svg").read_text(encoding="utf-8")
    for row in rows:
        name = row["arm"].replace("all-MiniLM-L6-v2", "MiniLM").replace("baseline", "linear")
        assert f">{name}<" in drawn
        assert f">{name}<" in kept


def test_results_has_the_kept_scores_and_times_of_fine_tuned_models() -> None:
    rows = [json.loads(line) for line in KEPT.read_text(encoding="utf-8").splitlines()]
    page = Path("research/RESULTS.md").read_text(encoding="utf-8").splitlines()
    model = "published-all-MiniLM-L6-v2"
    for arm, name in ((model, "MiniLM, fine-tuned"), (f"{model} + baseline", "MiniLM + linear")):
        (line,) = (line for line in page if line.startswith(f"| {name} |"))
        for task in ("scierc", "acl-arc"):
            for split in ("dev", "test"):
                scores = [100 * row[split] for row in rows if (row["task"], row["arm"]) == (task, arm)]
                assert f"{mean(scores):.1f} ± {stdev(scores):.1f}" in line
    times = {
        task: [row["cpu_seconds"] / 60 for row in rows if (row["task"], row["arm"]) == (task, model)]
        for task in ("scierc", "acl-arc")
    }
    told = " | | ".join(f"{min(own):.0f} to {max(own):.0f}" for own in times.values())
    assert f"| CPU minutes of a fine-tuning | {told} | |" in page
