"""Labelled examples and their labels as they are read, before they become a task."""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tlm.data.overlap import overlapping
from tlm.data.reading.files import RawFile
from tlm.data.reading.readers import read_all
from tlm.data.reading.records import BadRow, Record, Rejects, checked_text, name_of, text_of, value_of
from tlm.data.text import compared, fold, tokens
from tlm.settings.options import Fields

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def label_of(values: Mapping[str, Any], field: str) -> str:
    """Return the label in `field` as a string: 3 is '3', 0.5 is '0.5', true is 'true'.

    Raises BadRow: missing, null, empty, NaN (also as text), infinite (also by overflow), or a type that is no label.
    """
    value = value_of(values, field)
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str | int | float):
        raise BadRow("not a label", f"field '{field}' is of type {type(value).__name__}; expected a string or number")
    label = checked_text(str(value), field)
    if label.lower() == "nan":
        raise BadRow("NaN", f"field '{field}' is {label}")
    if value in (math.inf, -math.inf) or (is_number(label) and math.isinf(float(label))):
        raise BadRow("infinite", f"field '{field}' is {label[:20]}")
    return label


def labels_of(values: Sequence[Any], field: str) -> tuple[str, ...]:
    """Return a text's labels in `field` as sorted strings, each once. Raises BadRow as `label_of` does."""
    return tuple(sorted({label_of({field: value}, field) for value in values}))


def is_number(label: str) -> bool:
    """Whether a label is a number."""
    return _NUMBER.fullmatch(label) is not None


UNLABELLED = "unlabelled"  # the split of texts without labels


@dataclass(frozen=True)
class Example:
    """A labelled text or pair of texts."""

    file: RawFile
    line: int  # in the file
    id: str
    text: str
    pair: str | None  # the second text of a pair
    label: str
    split: str
    twin: str  # see `twin_key`
    group: str = ""  # value of the group field, if there is one
    several: tuple[str, ...] | None = None  # all labels, in place of `label`, where a text may have several or none

    @property
    def where(self) -> str:
        """File and line, for messages."""
        return f"{self.file.where}:{self.line}"

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels, of a task with one label a text that one."""
        return (self.label,) if self.several is None else self.several


def read_examples(files: Mapping[str, list[RawFile]], fields: Fields, rejects: Rejects) -> list[Example]:
    """Read the examples of all splits in file order; unusable rows go to `rejects`.

    Raises InputError: too many bad rows, or more than a tenth of the rows of dev or test.
    """
    split_of = {file.where: split for split, own in files.items() for file in own}
    ordered = [file for own in files.values() for file in own]
    found = list(read_all(ordered, fields.wanted, rejects, partial(_example, fields, split_of)))
    rejects.check()
    for split in ("dev", "test"):
        rejects.check_held_out(split, files.get(split, []))
    return found


def read_unlabelled(
    files: Sequence[RawFile], fields: Fields, rejects: Rejects, labelled: Sequence[Example]
) -> tuple[list[Example], dict[str, int]]:
    """Read texts without labels in file order; unusable rows go to `rejects`.

    Returns:
        The texts, each once, without the texts of labelled examples and without texts that overlap a dev or test text
        as no passage may; and how many were left out, by reason.
    """
    known = {example.twin: "in train" if example.split == "train" else "in dev or test" for example in labelled}
    found, left_out = [], Counter[str]()
    for example in read_all(files, fields.of_texts, rejects, partial(_text, fields)):
        if example.twin in known:
            left_out[f"{UNLABELLED}, {known[example.twin]}"] += 1
        else:
            known[example.twin] = "repeated"
            found.append(example)
    rejects.check()
    free = [example for example, leaks in zip(found, _overlapping(found, labelled), strict=True) if not leaks]
    if len(free) < len(found):
        left_out[f"{UNLABELLED}, overlaps dev or test"] = len(found) - len(free)
    return free, dict(sorted(left_out.items()))


def _overlapping(found: Sequence[Example], labelled: Sequence[Example]) -> NDArray[np.bool_]:
    """Whether a text of each example overlaps one of dev or test, shape [n]."""
    held_out = [example for example in labelled if example.split != "train"] if found else []
    protected = [text for example in held_out for text in (example.text, example.pair) if text is not None]
    either = overlapping([example.text for example in found], protected)
    if found and found[0].pair is not None:
        either |= overlapping([example.pair or "" for example in found], protected)
    return either


def twin_key(text: str, pair: str | None = None) -> str:
    """Return a key that is equal for examples that differ only in case, spaces, punctuation and marks around spans."""
    parts = [compared(text)] if pair is None else [compared(text), compared(pair)]
    return "\0".join(" ".join(tokens(part)) or fold(part) for part in parts)


def _text(fields: Fields, file: RawFile, row: Record) -> Example:
    line, values = row
    text = text_of(values, fields.text_field)
    pair = text_of(values, fields.pair_field) if fields.pair_field else None
    return Example(file, line, f"{file.name}:{line}", text, pair, "", UNLABELLED, twin_key(text, pair))


def _example(fields: Fields, split_of: Mapping[str, str], file: RawFile, row: Record) -> Example:
    values, found = row.values, _text(fields, file, row)
    value, separator = values.get(fields.label_field), fields.label_separator
    if separator and isinstance(value, str):
        value = [part for part in value.split(separator) if part.strip()]
    several = labels_of(value, fields.label_field) if isinstance(value, list | tuple) else None
    label = label_of(values, fields.label_field) if several is None else ""
    name, group = name_of(values, fields.id_field, found.id), name_of(values, fields.group_field)
    return replace(found, id=name, label=label, split=split_of[file.where], group=group, several=several)
