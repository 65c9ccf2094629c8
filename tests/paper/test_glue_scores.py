"""Every published score of a GLUE task is found in a kept run: files of GLUE's shape, scored, kept, looked up."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy import stats
from sklearn import metrics as reference

from research.paper.keep import keep
from research.paper.results import read_results
from research.paper.tables import cells
from tlm.artifacts.artifact import Artifact
from tlm.data.tasks.task import load_task
from tlm.evaluation.score.baseline import baseline

MRPC = ["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"]
STSB = ["sentence1", "sentence2", "score"]
COLUMNS = {
    "mrpc": {"mrpc": reference.accuracy_score, "mrpc/f1": reference.f1_score},
    "sts-b": {
        "sts-b": lambda gold, told: stats.pearsonr(gold, told).statistic,
        "sts-b/spearman": lambda gold, told: stats.spearmanr(gold, told).statistic,
    },
    "cola": {"cola": reference.matthews_corrcoef},
}


def row(name: str, number: int, rng: random.Random) -> list[str]:
    """An example whose words tell the label mostly; more of label 1, as in MRPC."""
    label = int(rng.random() < 0.7)
    text = " ".join(rng.choices(["near", "same"] if label == (rng.random() < 0.8) else ["far", "other"], k=4))
    if name == "mrpc":
        return [str(label), "1", "2", f"{text} {number}", text]
    if name == "sts-b":
        return [f"{text} {number}", text, f"{min(5, 2 * label + 3 * rng.random()):.2f}"]
    return ["gj04", str(label), "" if label else "*", f"{text} {number}"]


def write(folder: Path, name: str) -> Path:
    rng = random.Random(3)
    folder.mkdir()
    header = {"mrpc": [MRPC], "sts-b": [STSB], "cola": []}[name]
    for split, size in (("train", 120), ("dev", 60)):
        lines = [*header, *(row(name, number, rng) for number in range(size))]
        (folder / f"{split}.tsv").write_text("".join("\t".join(line) + "\n" for line in lines))
    return folder


@pytest.mark.parametrize("name", COLUMNS)
def test_both_published_scores_are_found(name, tmp_path):
    root = str(tmp_path / "store")
    task = load_task(f"glue:{name}", files=str(write(tmp_path / name, name)), root=root)
    metrics = baseline(task, root=root)
    keep([metrics], table="10", results=str(tmp_path / "results"))
    (kept,) = read_results(tmp_path / "results")
    rows = pq.read_table(Artifact.open(metrics).path("predictions.parquet")).to_pylist()
    test = [line for line in rows if line["split"] == "test"]
    asked = {cell.column: cell for cell in cells("10", "small", [name])}
    assert asked.keys() == COLUMNS[name].keys()
    for column, score in COLUMNS[name].items():
        gold, told = (_numbers([line[part] for line in test], task) for part in ("gold", "predicted"))
        found = kept.score("test", asked[column].metric)
        assert found == pytest.approx(100 * score(gold, told), abs=1e-6)
        assert 0 < found < 100


def _numbers(values: list[Any], task: str) -> np.ndarray:
    labels = Artifact.open(task).details["labels"]
    return np.array([labels.index(value) for value in values] if labels else values)
