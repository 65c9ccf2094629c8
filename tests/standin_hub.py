"""A stand-in of the Hugging Face Hub and its two packages: small files in a folder, read as `datasets` gives them.

It stands for `load_dataset` (streaming) and `HfApi.dataset_info`, and knows only what tlm/data/registry.py asks.
"""

import csv
import json
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class DatasetNotFoundError(FileNotFoundError):
    pass


class Info:
    sha = COMMIT


class HfApi:
    def dataset_info(self, name: str) -> Info:
        home(name)
        return Info()


def home(name: str) -> Path:
    if "TLM_TEST_HUB" not in os.environ:
        raise ConnectionError("Name or service not known")
    folder = Path(os.environ["TLM_TEST_HUB"]) / name
    if not folder.is_dir():
        raise DatasetNotFoundError(f"Dataset '{name}' doesn't exist on the Hub or cannot be accessed.")
    return folder


def load_dataset(
    path: str,
    name: str | None = None,
    *,
    split: str,
    streaming: bool,
    revision: str,
    data_files: dict[str, str] | None = None,
) -> "Rows":
    assert streaming
    assert revision == COMMIT
    file = home(path) / (data_files[split] if data_files else f"{name or '.'}/{split}.jsonl")
    if not file.exists():
        raise ValueError(f'Bad split: {split}. Available splits: ["train"]')
    return Rows(file)


class Rows:
    """The rows of a file, with the names of classes that `classes.json` beside it may hold, by column."""

    def __init__(self, file: Path) -> None:
        self.file, classes = file, file.parent / "classes.json"
        named = json.loads(classes.read_text(encoding="utf-8")) if classes.exists() else None
        kinds = {column: {"_type": "ClassLabel", "names": names} for column, names in (named or {}).items()}
        metadata = {"huggingface": json.dumps({"info": {"features": kinds}})}
        self.features = named and SimpleNamespace(arrow_schema=pa.schema([], metadata))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        with self.file.open(newline="", encoding="utf-8") as lines:
            if self.file.suffix == ".csv":  # as pandas reads it
                for row in csv.DictReader(lines):
                    yield {name: int(value) if value.isdecimal() else value or None for name, value in row.items()}
            else:
                yield from map(json.loads, lines)
