"""The study `minutes`: what finished models score, against the CPU time that they took."""

import json
from collections.abc import Sequence
from pathlib import Path
from string import ascii_lowercase, digits
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from research.studies import cpu_seconds, json_lines
from tlm.artifacts.artifact import Artifact
from tlm.data.tasks.examples import one_label_each
from tlm.errors import InputError

FOR_ALL = ("corpus", "index", "task", "metrics")  # serve all models, or score them
METRIC, SIGNS = "macro_f1", digits + ascii_lowercase  # what the picture has, and the classes of kept answers
KEPT = Path(__file__).parent / "results" / "minutes" / "models.jsonl"


def minutes(metrics: Sequence[str], *, file: Path = KEPT) -> str:
    """Add finished models to the kept ones, and draw the scores of all on test against their CPU minutes.

    The time is that of all steps that made a model except corpus, index and task; of a step without snapshots that was
    interrupted, only the last attempt is known. The time of an arm is the longest among its seeds. The answers on test,
    a digit for each (0-9, a-z, the place of the class), are kept too: seeds of several machines can be compared.

    Args:
        metrics: URIs of metrics.
        file: The kept models, a line of JSON each; the picture is beside it.
    """
    from research.score_and_minutes import score_against_minutes

    rows = {(row["task"], row["arm"], row["seed"]): row for row in [*json_lines(file), *map(_row, metrics)]}
    ordered = [rows[key] for key in sorted(rows)]
    lines = [json.dumps(row, sort_keys=True) for row in ordered]
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
    to = file.with_suffix(".svg")
    to.write_text(score_against_minutes(ordered), encoding="utf-8", newline="\n")
    return f"{to} has {len(rows)} models"


def _row(uri: str) -> dict[str, Any]:
    scored = Artifact.open(uri, "metrics")
    one_label_each(scored.input("task"), "minutes")
    metric, labels = map(scored.json("metrics.json").get, ("metric", "labels"))
    if metric != METRIC or len(labels) > len(SIGNS):
        raise InputError(f"{uri} has {metric}; minutes draws {METRIC} of tasks with at most {len(SIGNS)} classes")
    named = {name: scored.details[name] for name in ("task", "arm", "seed", "dev", "test")}
    steps = (one for one in scored.lineage() if one.manifest.kind not in FOR_ALL)
    spent = sum(cpu_seconds(one.run()) for one in steps)
    answers = pq.read_table(scored.path("predictions.parquet"), filters=pc.field("split") == "test")["predicted"]
    classes = dict(zip(labels, SIGNS, strict=False))
    found = {"answers": "".join(classes[one] for one in answers.to_pylist())}
    return named | found | {"cpu_seconds": round(spent, 1), "metrics": scored.manifest.key}
