"""A tiny task whose texts have one, two or three labels, or none; words tell which."""

import csv
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tlm.artifacts.artifact import Artifact
from tlm.data.tasks.task import load_task

WORDS = {"blue": ["blue", "azure", "navy"], "green": ["green", "olive", "mint"], "red": ["red", "crimson", "ruby"]}
BOTH = sorted(WORDS)
PLAIN = ["plain", "dull", "words", "only", "here", "and", "there", "of", "some", "kind"]


def rows(count: int, seed: int = 0) -> list[tuple[str, list[str]]]:
    """Texts with their labels, which their words tell."""
    chance = random.Random(seed)
    found = []
    for number in range(count):
        own = [label for place, label in enumerate(BOTH) if chance.random() < (0.5, 0.3, 0.4)[place]]
        words = [chance.choice(WORDS[label]) for label in own for _ in range(3)] + chance.choices(PLAIN, k=5)
        chance.shuffle(words)
        found.append((f"{' '.join(words)} n{number}", own))
    return found


def write(path: Path, given: Sequence[tuple[str, Any]]) -> Path:
    """A file of texts and labels, in the format of its extension."""
    path.parent.mkdir(parents=True, exist_ok=True)
    records = [{"text": text, "label": label} for text, label in given]
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(records), path)
    elif path.suffix == ".csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, ["text", "label"])
            writer.writeheader()
            writer.writerows(records)
    else:
        path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def several(root: Path, count: int = 240) -> Artifact:
    """The task, in a store at `root`."""
    return Artifact.open(load_task(str(write(root / "colours.jsonl", rows(count))), root=str(root / "store")), "task")
