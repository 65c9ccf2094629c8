"""Labels: valid values, and whether they are numbers."""

import math
import re
from collections.abc import Mapping
from typing import Any

from tlm.data.reading.records import BadRow, checked_text, value_of

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


def is_number(label: str) -> bool:
    """Tell whether a label is a number."""
    return _NUMBER.fullmatch(label) is not None
