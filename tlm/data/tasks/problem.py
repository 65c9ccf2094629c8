"""What the labels are: classes, numbers, or several a text; if only a few rows would decide, the user is asked."""

from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import Any

from tlm.data.reading.files import RawFile
from tlm.data.reading.readers import read
from tlm.data.reading.records import Record
from tlm.data.tasks.labelled import Example, is_number
from tlm.data.text import fold
from tlm.errors import InputError
from tlm.settings.options import Fields

PROBLEMS = ("auto", "classification", "regression")
FEW, SHARE_FEW = 3, 0.01  # labels that look like slips: at most so many, or this share of the rows ...
MOST_FEW = 0.2  # ... but never more than this share
MANY_CLASSES = 10  # more classes with fewer than two examples each are not classes
MANY_ROWS, SHARE_TEXTS = 30, 0.1  # of this many rows, at least this share have distinct texts
INSPECTED_ROWS = 1000  # to find the column that was meant


def is_regression(examples: Sequence[Example], fields: Fields, problem: str) -> bool:
    """Decide whether the labels are numbers to predict.

    With problem "auto" they are if all are numbers and at least one has a fractional part: 1, 2, 3 and 1.0, 2.0 are
    classes, 4.5, 2 and 3.25 are numbers to predict.

    Raises:
        InputError: a label of a regression is not a number; with "auto", a few rows would decide, two labels differ in
            spelling only, or a column looks like text where labels are expected or the reverse.
    """
    if problem == "classification":
        return False
    numbers, words = list[Example](), list[Example]()
    for example in examples:
        (numbers if is_number(example.label) else words).append(example)
    if problem == "regression":
        if words:
            raise InputError(f"{words[0].where}: label '{words[0].label}' is not a number, as a regression requires")
        return True
    _check_texts(examples, fields)
    fractions = [example for example in numbers if not float(example.label).is_integer()]
    _check_slips(words, numbers, fractions)
    if fractions and not words:
        return True
    _check_classes(examples, fields)
    _check_spelling(examples)
    return False


def has_several(examples: Sequence[Example], fields: Fields, problem: str) -> bool:
    """Decide whether a text may have several labels: all rows hold lists, which may be empty.

    Raises:
        InputError: some rows hold lists and others do not, `problem` is a regression, or, with "auto", two labels
            differ in spelling only, or a column looks like text where labels are expected or the reverse.
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
    if problem == "auto":
        _check_texts(examples, fields)
        _check_classes(examples, fields)
        _check_spelling(examples)
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


def _few(some: Sequence[Example], examples: Sequence[Example]) -> bool:
    total = len(examples)
    return 0 < len(some) <= min(max(FEW, SHARE_FEW * total), MOST_FEW * total)


def _check_spelling(examples: Sequence[Example]) -> None:
    """Raise InputError if two labels differ in case only, or as numbers in how they are written."""
    counts = Counter(label for example in examples for label in example.labels)
    first = dict[str | float, str]()
    for label in sorted(counts, key=lambda label: -counts[label]):
        frequent = first.setdefault(float(label) if is_number(label) else fold(label), label)
        if frequent != label:
            where = next(example.where for example in examples if label in example.labels)
            raise InputError(
                f"{where}: labels '{label}' ({counts[label]:,} rows) and '{frequent}' ({counts[frequent]:,} rows) "
                "differ in spelling only; unify them, or set problem to classification to keep both"
            )


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
        raise InputError(
            f"{examples[0].file.where}: field '{fields.text_field}' has {len(texts):,} different values in "
            f"{len(examples):,} rows, so it looks like labels, not text{meant or ';'} if it is text, set problem to "
            "classification or regression"
        )


def _meant(file: RawFile, fields: Fields, setting: str, repeating: bool) -> str:
    """Suggest the first other column whose values repeat as labels do, or do not as texts do; '' if there is none."""
    rows = [row.values for row in islice(read(file, fields.wanted), INSPECTED_ROWS) if isinstance(row, Record)]
    for name in dict.fromkeys(name for row in rows for name in row if name not in fields.wanted):
        values: set[Any] = {str(row.get(name)) for row in rows}
        if len(values) > 1 and (len(values) < SHARE_TEXTS * len(rows)) == repeating:
            return f"; did you mean {setting}={name}?"
    return ""
