"""A Jupyter notebook on a model: its gravest mistakes, what decided one of them, and its answers to other texts."""

import json
from typing import Any

import pyarrow as pa

from tlm import __version__
from tlm.artifacts.artifact import Artifact
from tlm.artifacts.stores.local import here, write_whole
from tlm.data.tasks.examples import examples
from tlm.errors import InputError
from tlm.evaluation.pages.blocks import Heading, Span, Text
from tlm.evaluation.pages.plain import markdown
from tlm.evaluation.pages.text import visible
from tlm.evaluation.predict.models import resolved, trained
from tlm.evaluation.score.mix import ReportRow
from tlm.evaluation.score.scores import metric_names, predictions_of

HOW = (
    "The cells read the model and its texts from the store; this file holds none of them. Install tlm-kubeflow "
    f"{__version__} where this notebook runs, and give it the pipeline's access to the store."
)
MISTAKES = """\
## Its gravest mistakes

Texts of dev on which the model is wrong and most sure, or farthest off. Some of their labels may be wrong. Leave test \
alone: a model that you improve by looking at test must be measured on other texts.
"""
WHY = "## What decided the first mistake"
OTHERS = """\
## Your texts

A pair is a tuple of two texts. For a file, use `tlm predict`.
"""
SHOW_MISTAKES = """\
from tlm.evaluation.report.notebook import mistakes

METRICS = {uri!r}
wrong = mistakes(METRICS)
for row in wrong:
    print(f"{{row['gold']}}, not {{row['predicted']}} ({{row['weight']:.2f}})\\n    {{row['text']}}\\n")"""
EXPLAIN = """\
from tlm.cli.show import explain

for row in wrong[:1]:
    text, pair = row["text"] if isinstance(row["text"], tuple) else (row["text"], "")
    print(explain(METRICS, text, pair=pair))"""
PREDICT = """\
from tlm.evaluation.predict.predict import predict

TEXTS = [row["text"] for row in wrong[:3]]  # put yours here
for answer in predict(METRICS, TEXTS):
    print(answer)"""


def notebook(model: str, *, to: str = "model.ipynb") -> str:
    """Write a Jupyter notebook on a model: its mistakes on dev, why it made the first, its answers to your texts.

    Args:
        model: URI of metrics, or of a report (the model that it recommends).
        to: File to write, which must be new.

    Raises:
        InputError: the file exists, or the metrics are of imported predictions.
    """
    metrics = resolved(model, "metrics", "report")
    trained(metrics.uri)  # refuses imported predictions
    path = here(to)
    if path.exists():
        raise InputError(f"{path} exists, perhaps with texts of yours; name a new file")
    facts = metrics.details
    scores = " and ".join(f"{100 * facts[split]:.1f} on {split}" for split in ("dev", "test"))
    names = metric_names(metrics.json("metrics.json")["labels"])
    about = f"{names[facts['metric']]}: {scores}. {HOW}"
    name = Span(ReportRow.of(facts["arm"], facts["stage"]).name)
    opening = markdown([Heading((name, " on ", Span(visible(facts["task"], 80))), 1), Text(about)])
    cells = [_cell(opening), _cell(MISTAKES), _cell(SHOW_MISTAKES.format(uri=metrics.uri), code=True)]
    cells += [_cell(WHY), _cell(EXPLAIN, code=True), _cell(OTHERS), _cell(PREDICT, code=True)]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    numbered = [{"id": f"cell-{number}", **cell} for number, cell in enumerate(cells)]
    book = {"cells": numbered, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    write_whole(path, json.dumps(book, indent=1, ensure_ascii=False) + "\n")
    return str(path)


def _cell(source: str, *, code: bool = False) -> dict[str, Any]:
    more: dict[str, Any] = {"outputs": [], "execution_count": None} if code else {}
    return {"cell_type": "code" if code else "markdown", "metadata": {}, "source": source, **more}


def mistakes(metrics: str, *, split: str = "dev", most: int = 20) -> list[dict[str, Any]]:
    """The gravest errors of a model on a split.

    Args:
        metrics: URI of the model's metrics.
        split: dev or test.
        most: How many.

    Returns:
        A row for each: ``text`` (a tuple for a pair, as `predict` takes it), ``gold``, ``predicted``, and ``weight``:
        the probability of the wrong label; of numbers the distance, of several labels how many are wrong.
    """
    artifact = Artifact.open(metrics, "metrics")
    rows = predictions_of(artifact, split).to_pylist()
    wrong = sorted((row for row in rows if row["gold"] != row["predicted"]), key=_weight, reverse=True)[:most]
    found = examples(artifact.input("task")).take(pa.array((row["example"] for row in wrong), pa.int64())).to_pylist()
    texts = [one["text"] if one["text_pair"] is None else (one["text"], one["text_pair"]) for one in found]
    return [
        {"text": text, "gold": row["gold"], "predicted": row["predicted"], "weight": _weight(row)}
        for text, row in zip(texts, wrong, strict=True)
    ]


def _weight(row: dict[str, Any]) -> float:
    gold, predicted = row["gold"], row["predicted"]
    if isinstance(gold, list):
        return float(len({*gold} ^ {*predicted}))
    return max(row["probabilities"] or [0.0]) if isinstance(gold, str) else float(abs(gold - predicted))
