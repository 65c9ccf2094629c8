"""Labelled examples and their labels as they are read, before they become a task; and what problem they are.

Labels are classes, numbers, or several a text; if only a few rows would decide which, the user is asked.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tlm.data.overlap import overlapping
from tlm.data.reading.files import RawFile, some
from tlm.data.reading.readers import read, read_all
from tlm.data.reading.records import BadRow, Record, Rejects, checked_text, name_of, text_of, value_of
from tlm.data.text import compared, fold, tokens
from tlm.errors import InputError, nearest
from tlm.settings.options import Fields

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?")
_LARGEST = 1e100  # models and scores square the numbers that they predict


def label_of(values: Mapping[str, Any], field: str) -> str:
    """Return the label in `field` as a string: 3 is '3', 0.5 is '0.5', true is 'true'.

    Raises BadRow: missing, null, empty, NaN (also as text), a number beyond 1e100, or a type that is no label.
    """
    value = value_of(values, field)
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str | int | float | Decimal):
        raise BadRow("not a label", f"field '{field}' is of type {type(value).__name__}; expected a string or number")
    label = checked_text(str(value), field)
    if label.lower() == "nan":
        raise BadRow("NaN", f"field '{field}' is {label}; if it is a class, give it another name")
    if (not isinstance(value, str) or is_number(label)) and abs(float(label)) > _LARGEST:
        raise BadRow("too large", f"field '{field}' is {label[:20]}; the limit is ±{_LARGEST:g}")
    return label


def labels_of(values: Sequence[Any], field: str) -> tuple[str, ...]:
    """Return a text's labels in `field` as sorted strings, each once. Raises BadRow as `label_of` does."""
    return tuple(sorted({label_of({field: value}, field) for value in values}))


def is_number(label: str) -> bool:
    """Whether a label is a number. Its exponent has at most three digits: 12e45678 is a class, such as a short hash."""
    return _NUMBER.fullmatch(label) is not None


_SEPARATORS = (";", "|", ",", "#")  # of several labels in one cell; doccano writes #
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


def read_examples(
    files: Mapping[str, list[RawFile]], fields: Fields, rejects: Rejects, classes: Sequence[str] = ()
) -> list[Example]:
    """Read the examples of all splits in file order; unusable rows go to `rejects`.

    Given `classes`, so do rows of other ones, and lists of labels.

    Raises InputError: too many bad rows, or more than a tenth of the rows of dev or test.
    """
    split_of = {file.where: split for split, own in files.items() for file in own}
    ordered = [file for own in files.values() for file in own]
    found = list(read_all(ordered, fields.wanted, rejects, partial(_example, fields, split_of, classes)))
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


def text_and_pair(values: Mapping[str, Any], fields: Fields) -> tuple[str, str | None]:
    """The text of a row, and the second text if it is a pair. Raises BadRow as `text_of` does."""
    return text_of(values, fields.text_field), (text_of(values, fields.pair_field) if fields.pair_field else None)


def _text(fields: Fields, file: RawFile, row: Record) -> Example:
    line, values = row
    text, pair = text_and_pair(values, fields)
    return Example(file, line, f"{file.name}:{line}", text, pair, "", UNLABELLED, twin_key(text, pair))


def _example(
    fields: Fields, split_of: Mapping[str, str], classes: Sequence[str], file: RawFile, row: Record
) -> Example:
    values, found = row.values, _text(fields, file, row)
    answer = "" if fields.label_field == "answer" else values.get("answer")
    if answer in ("reject", "ignore") and "_task_hash" in values:
        advice = "keep the accepted rows (jq -c 'select(.answer == \"accept\")')"
        raise InputError(f"{found.where}: Prodigy's answer is '{answer}', so the row does not give a label; {advice}")
    value, separator = values.get(fields.label_field), fields.label_separator
    if separator and isinstance(value, str):
        value = [part for part in value.split(separator) if part.strip()]
    several = labels_of(value, fields.label_field) if isinstance(value, list | tuple) and not classes else None
    label = label_of(values, fields.label_field) if several is None else ""
    if classes and label not in classes:
        raise BadRow("unknown label", f"'{label}'{nearest(label, classes)}")
    name, group = name_of(values, fields.id_field, found.id), name_of(values, fields.group_field)
    return replace(found, id=name, label=label, split=split_of[file.where], group=group, several=several)


PROBLEMS = ("auto", "classification", "regression")
FEW, SHARE_FEW = 3, 0.01  # labels that look like slips: at most so many, or this share of the rows ...
MOST_FEW = 0.2  # ... but never more than this share
MANY_CLASSES = 10  # more classes with fewer than two examples each are not classes
MANY_ROWS, SHARE_TEXTS = 30, 0.1  # of this many rows, at least this share have distinct texts
_WITH_COMMA = re.compile(r"[+-]?\d+(,\d+)+(\.\d+)?|[+-]?\d+(\.\d+)*,\d+")
INSPECTED_ROWS = 1000  # to find the column that was meant


def is_regression(examples: Sequence[Example], fields: Fields, problem: str) -> bool:
    """Decide whether the labels are numbers to predict; lists of labels (`has_several`) are not.

    With problem "auto" they are if all are numbers and at least one has a fractional part: 1, 2, 3 and 1.0, 2.0 are
    classes, 4.5, 2 and 3.25 are numbers to predict.

    Raises:
        InputError: a label of a regression is not a number; with "auto", a few rows would decide, two labels differ in
            spelling only, or a column looks like text where labels are expected or the reverse.
    """
    if problem == "classification":
        return False
    numbers = [example for example in examples if is_number(example.label)]
    words = [example for example in examples if not is_number(example.label)]
    if problem == "regression":
        if words:
            what = f"{words[0].where}: label '{words[0].label}' is not a number"
            raise InputError(f"{what} such as 1234.5, which a regression needs; fix the row")
        return True
    _check_texts(examples, fields)
    fractions = [example for example in numbers if not float(example.label).is_integer()]
    _check_slips(words, numbers, fractions)
    if words and all(_WITH_COMMA.fullmatch(example.label) for example in words):
        raise InputError(
            f"{words[0].where}: label '{words[0].label}' looks like a number with a comma; write numbers as 1234.5, or "
            "set problem to classification (each label is a class)"
        )
    if fractions and not words:
        return True
    _check_classes(examples, fields)
    _check_joined(examples)
    _check_spelling(examples)
    return False


def has_several(examples: Sequence[Example], problem: str) -> bool:
    """Decide whether a text may have several labels: all rows hold lists, which may be empty.

    Raises InputError: some rows hold lists and others do not, or `problem` is a regression.
    """
    listed = [example for example in examples if example.several is not None]
    if not listed:
        return False
    if problem == "regression":
        raise InputError(f"{listed[0].where}: the label is a list, but a regression requires numbers")
    if len(listed) < len(examples):
        other = next(example for example in examples if example.several is None)
        raise InputError(
            f"{other.where}: label '{other.label}' is not a list, those of {len(listed):,} other rows are; give every "
            "text a list of its labels, which may be empty"
        )
    return True


def _check_slips(words: Sequence[Example], numbers: Sequence[Example], fractions: Sequence[Example]) -> None:
    """Raise InputError if a few labels have a fraction, or are not numbers, and all others are of the other kind."""
    if not words and _few(fractions, numbers):
        raise InputError(
            f"{fractions[0].where}: label '{fractions[0].label}' has a fraction, the other "
            f"{len(numbers) - len(fractions):,} labels are whole numbers; fix it, or set problem to classification "
            "(each label is a class) or regression (numbers to predict)"
        )
    if _few(words, [*words, *numbers]) and fractions and not _few(fractions, numbers):
        raise InputError(
            f"{words[0].where}: label '{words[0].label}' is not a number, the other {len(numbers):,} labels are; fix "
            "it, or set problem to classification (each label is a class)"
        )


def _few(part: Sequence[Example], examples: Sequence[Example]) -> bool:
    return 0 < len(part) <= min(max(FEW, SHARE_FEW * len(examples)), MOST_FEW * len(examples))


def _check_spelling(examples: Sequence[Example]) -> None:
    """Raise InputError if labels differ only in case, in invisible characters, or in how a number is written."""
    counts = Counter(label for example in examples for label in example.labels)
    first, pairs = dict[str | Decimal, str](), dict[str, str]()
    for label in sorted(counts, key=lambda label: -counts[label]):
        seen = compared(label)
        frequent = first.setdefault(Decimal(seen) if is_number(seen) else fold(seen), label)
        if frequent != label:
            pairs[label] = f"'{label}' ({counts[label]:,}) and '{frequent}' ({counts[frequent]:,})"
    if pairs:
        where = next(example.where for example in examples if not pairs.keys().isdisjoint(example.labels))
        advice = "unify them, or set problem to classification to keep them all"
        raise InputError(f"{where}: labels {some([*pairs.values()])} differ in spelling only; {advice}")


def _check_joined(examples: Sequence[Example]) -> None:
    """Raise InputError if a label looks like several: a list or an object of JSON, or with a separator between them."""
    labels = {example.label for example in examples}
    joined = {label for separator in _SEPARATORS for label in _joined(labels, separator)}
    joined |= {label for label in labels if label.startswith(("['", '["', '{"')) and label.endswith(("]", "}"))}
    for example in examples:
        if example.label in joined:
            raise InputError(
                f"{example.where}: label '{example.label}' looks like several; write them as in 'a;b' and give "
                "label_separator=';' (or what separates them), or set problem to classification if it is one class"
            )


def _joined(labels: Collection[str], separator: str) -> Iterator[str]:
    """Yield the labels whose parts all occur in other labels, too, if one part is a label itself."""
    parts = {label: {part.strip() for part in label.split(separator) if part.strip()} for label in labels}
    uses = Counter(part for own in parts.values() for part in own)
    for label, own in parts.items():
        if len(own) > 1 and not own.isdisjoint(labels) and all(uses[part] > 1 for part in own):
            yield label


def _check_classes(examples: Sequence[Example], fields: Fields) -> None:
    """Raise InputError if there are about as many labels as rows."""
    labels = {label for example in examples for label in example.labels}
    if len(labels) <= MANY_CLASSES or 2 * len(labels) <= len(examples):
        return
    found = f"field '{fields.label_field}' has {len(labels):,} different values in {len(examples):,} rows"
    if all(map(is_number, labels)):
        advice = "; if they are numbers to predict, set problem=regression; if they are classes, problem=classification"
    else:
        meant = _meant(examples[0].file, fields, "label_field", repeating=True)
        advice = f", so it looks like text, not labels{meant or ';'} if they are classes, set problem=classification"
    raise InputError(f"{examples[0].file.where}: {found}{advice}")


def _check_texts(examples: Sequence[Example], fields: Fields) -> None:
    """Raise InputError if there are many rows with only a few different texts."""
    texts = {(example.text, example.pair) for example in examples}
    if len(examples) >= MANY_ROWS and len(texts) < SHARE_TEXTS * len(examples):
        meant = _meant(examples[0].file, fields, "text_field", repeating=False)
        found = f"field '{fields.text_field}' has {len(texts):,} different values in {len(examples):,} rows"
        advice = "if it is text, set problem to classification or regression"
        raise InputError(f"{examples[0].file.where}: {found}, so it looks like labels, not text{meant or ';'} {advice}")


def _meant(file: RawFile, fields: Fields, setting: str, repeating: bool) -> str:
    """Suggest the first other column whose values repeat as labels do, or do not as texts do; '' if there is none."""
    rows = [row.values for row in islice(read(file, fields.wanted), INSPECTED_ROWS) if isinstance(row, Record)]
    for name in dict.fromkeys(name for row in rows for name in row if name not in fields.wanted):
        values: set[Any] = {str(row.get(name)) for row in rows}
        if len(values) > 1 and (len(values) < SHARE_TEXTS * len(rows)) == repeating:
            return f"; did you mean {setting}={name}?"
    return ""
