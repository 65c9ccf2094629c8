"""The baseline: it learns, it never sees test labels, and it is the same each time."""

import json
import os
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.toys import Row, make_task, read_json, words
from tlm.artifacts.artifact import Artifact
from tlm.errors import InputError
from tlm.evaluation.score.baseline import baseline

SPLITS = ["train"] * 90 + ["dev"] * 30 + ["test"] * 30


def separable(seed: int = 0) -> list[Row]:
    """Three classes of different size, each with a word of its own in otherwise random text."""
    labels = [["yes", "no", "no", "maybe", "no"][index % 5] for index in range(150)]
    signs = {"yes": "kraken", "no": "unicorn", "maybe": "griffin"}
    texts = words(150, seed)
    return [
        (f"{text} {signs[label]}", None, label, split) for text, label, split in zip(texts, labels, SPLITS, strict=True)
    ]


def scored(root: Path, rows: list[Row], metric: str = "macro_f1", labels: list[str] | None = None) -> Artifact:
    return Artifact.open(baseline(make_task(root, rows, metric, labels), root=str(root)))


def test_test_labels_do_not_change_the_model(tmp_path: Path) -> None:
    rows = separable()
    moved = [row[2] for row in rows[120:]]
    shuffled = rows[:120] + [(text, None, moved[i - 1], split) for i, (text, _, _, split) in enumerate(rows[120:])]
    honest, cheated = (scored(tmp_path, task, labels=["maybe", "no", "yes"]) for task in (rows, shuffled))
    first, second = (pq.read_table(one.path("predictions.parquet")) for one in (honest, cheated))
    assert first["gold"] != second["gold"]
    assert first["predicted"] == second["predicted"]
    assert first["probabilities"] == second["probabilities"]
    assert read_json(honest, "metrics.json")["chosen"] == read_json(cheated, "metrics.json")["chosen"]


def test_dev_labels_have_a_say_in_what_is_chosen(tmp_path: Path) -> None:
    rows = separable()
    other: list[Row] = [(*row[:2], "maybe" if row[3] == "dev" else row[2], row[3]) for row in rows]
    first, second = (
        read_json(scored(tmp_path, task, labels=["maybe", "no", "yes"]), "metrics.json")["chosen"]["temperature"]
        for task in (rows, other)
    )
    assert first < 1 < second


def test_classes_without_training_examples_get_no_probability(tmp_path: Path) -> None:
    found = scored(tmp_path, separable(), labels=["absent", "maybe", "no", "yes"])
    chances = np.array(pq.read_table(found.path("predictions.parquet"))["probabilities"].to_pylist())
    assert chances.shape == (60, 4)
    assert chances[:, 0].max() == 0
    assert found.details["test"] > 0.95


def test_training_texts_without_a_word_are_said_in_a_sentence(tmp_path: Path) -> None:
    blank: list[Row] = [(" ", None, label, split) for label, split in (("a", "train"), ("b", "train"), ("a", "test"))]
    with pytest.raises(InputError, match="no training text has a word"):
        scored(tmp_path, blank, labels=["a", "b"])


@pytest.mark.slow
@pytest.mark.parametrize(("name", "least"), [("scierc", 0.65), ("acl-arc", 0.6)])
def test_published_data_sets_reach_what_is_expected_of_tf_idf(name: str, least: float, tmp_path: Path) -> None:
    if "TLM_DEV_DATA" not in os.environ:
        pytest.skip("set TLM_DEV_DATA to the folder with scierc/ and acl-arc/ to check the baseline on them")
    rows: list[Row] = []
    for split in ("train", "dev", "test"):
        for line in (Path(os.environ["TLM_DEV_DATA"]) / name / f"{split}.jsonl").open():
            record = json.loads(line)
            rows.append((record["text"], None, record["label"], split))
    assert scored(tmp_path, rows, labels=sorted({str(row[2]) for row in rows})).details["test"] >= least
