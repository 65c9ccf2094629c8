"""Folders of shallow models: config.json describes the model, vocabulary.json and weights.safetensors hold it."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from tlm.errors import InputError

CONFIG, VOCABULARY, WEIGHTS = "config.json", "vocabulary.json", "weights.safetensors"
AGAIN = "copy the model again with `tlm download`, or upgrade tlm if a newer one made it"
UNFINISHED = ".unfinished-download"  # while `tlm download` copies into a folder; holds the URI
KNOWN = "tlm.json"  # what `tlm download` says of a model: uri, content, and pair, whether it learned from pairs
FAMILY = "tlm_family"  # key of config.json; without it, the model is one of transformers

Arrays = dict[str, NDArray[Any]]


def write(folder: Path, config: dict[str, Any], vocabulary: dict[str, list[str]], arrays: Arrays) -> None:
    """Write a model into a new folder. The same values give the same bytes."""
    folder.mkdir(parents=True)
    for name, values in ((CONFIG, config), (VOCABULARY, vocabulary)):
        text = json.dumps(values, ensure_ascii=False, indent=1 if name == CONFIG else None, allow_nan=False)
        (folder / name).write_text(text + "\n", encoding="utf-8")
    tensors = {name: np.ascontiguousarray(array) for name, array in sorted(arrays.items())}
    (folder / WEIGHTS).write_bytes(save(tensors))  # save_file raises no OSError where the disk is full


def read(folder: Path) -> tuple[dict[str, Any], dict[str, list[str]], Arrays]:
    """Read the config, the vocabularies and the arrays of a model."""
    try:
        return config_of(folder), _json(folder / VOCABULARY), load_file(folder / WEIGHTS)
    except (OSError, SafetensorError) as error:
        raise InputError(f"{folder / WEIGHTS} cannot be read: {error}; {AGAIN}") from None


def config_of(folder: Path) -> dict[str, Any]:
    """Read the config.json of any model folder. Raises InputError if it is missing or no JSON object."""
    return _json(folder / CONFIG)


def known_of(folder: Path) -> dict[str, Any]:
    """What `tlm download` says of the model in a folder; {} if it did not write it."""
    return _json(folder / KNOWN) if (folder / KNOWN).is_file() else {}


def json_or_none(file: Path) -> Any:
    """Read a file that may be missing or no JSON, which is reported where it is read for its content."""
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def refuse_code(folder: Path, names: Iterable[str] = (CONFIG, "tokenizer_config.json")) -> None:
    """Raise InputError if one of these files, of a model or its tokenizer, names code of the folder (``auto_map``)."""
    for name in names:
        values = json_or_none(folder / name)
        if isinstance(values, dict) and values.get("auto_map"):
            what = f"{folder}/{name} names code of its own, which is never run"
            raise InputError(f"{what}; take another model, or remove auto_map if the library's own class will do")


def _json(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{file} cannot be read: {error}; {AGAIN}") from None
    if not isinstance(found, dict):
        raise InputError(f"{file} is not a JSON object; {AGAIN}")
    return found
