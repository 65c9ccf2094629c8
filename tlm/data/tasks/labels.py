"""Labels: what one may be, whether they make classes or a regression, and which metric goes with that."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tlm.data.reading.records import BadRow, checked_text, value_of
from tlm.errors import InputError, nearest

CLASSIFICATION = ("macro_f1", "micro_f1", "accuracy", "matthews")
POSITIVE = "f1"  # that of the second of two classes
REGRESSION = ("pearson", "spearman")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


class SeveralLabels(Exception):
    """A text with a list of labels; such tasks are refused."""


def label_of(values: Mapping[str, Any], field: str) -> str:
    """The label in `field` as a string: 3 is '3', 0.5 is '0.5', true is 'true'.

    Raises:
        BadRow: missing field, null, empty, NaN (also as text), a number beyond all floats, or a value that is no label.
        SeveralLabels: a list.
    """
    value = value_of(values, field)
    if isinstance(value, list | tuple):
        raise SeveralLabels
    if isinstance(value, float) and math.isnan(value):
        raise BadRow("NaN", f"field '{field}' is {value}")
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


def is_number(label: str) -> bool:
    """Whether a label reads as a number."""
    return _NUMBER.fullmatch(label) is not None


def targets_of(labels: Sequence[str]) -> list[float] | None:
    """The labels as numbers if they make a regression, else None.

    They do if every one reads as a number and at least one has a fractional part: 1, 2, 3 and 1.0, 2.0 are classes,
    4.5, 2 and 3.25 are targets.
    """
    if not all(map(is_number, labels)):
        return None
    targets = [float(label) for label in labels]
    return None if all(target.is_integer() for target in targets) else targets


def check_metric(metric: str) -> None:
    """Raise InputError if there is no metric of that name."""
    known = ("auto", *CLASSIFICATION, POSITIVE, *REGRESSION)
    if metric not in known:
        raise InputError(f"metric '{metric}' is not known{nearest(metric, known)}")


def metric_for(labels: Sequence[str], metric: str) -> str:
    """The metric to use for a task's classes, or for a regression where there are none.

    'auto' is macro_f1 for classes, pearson for regression. Raises InputError if the metric is for another problem.
    """
    fitting = CLASSIFICATION if labels else REGRESSION
    if metric == "auto":
        return fitting[0]
    if len(labels) == 2:
        fitting = (*fitting, POSITIVE)
    if metric not in fitting:
        problem = f"a classification with {len(labels)} classes" if labels else "a regression"
        raise InputError(f"metric '{metric}' does not fit: the labels make {problem}; expected {', '.join(fitting)}")
    return metric
