"""Groups of dependent examples: the same text with different spans marked, the same author, the same service."""

import re

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tlm.data.tasks.labelled import twin_key

COLUMN = "group"
# Marks around spans: <e1> … </e1>, [E1] … [/E1]. Marks without letters ([[ ]], << >>) are ignored as punctuation.
_SPAN_MARK = re.compile(r"</?[A-Za-z]\w{0,15}>|\[/?[A-Z]\d{0,2}\]")


def groups_of(examples: pa.Table) -> NDArray[np.int64]:
    """Return the ordinal of each example's group, shape [n].

    Examples with the same value in the task's group field belong together; without such a field, those whose texts
    are equal, ignoring case, punctuation and the marks around spans.

    Args:
        examples: Rows of a task, with the columns text, text_pair and, if the task has it, group.
    """
    if COLUMN in examples.column_names:
        names = examples[COLUMN].to_pylist()
    else:
        texts, pairs = examples["text"].to_pylist(), examples["text_pair"].to_pylist()
        names = [twin_key(_plain(text), pair and _plain(pair)) for text, pair in zip(texts, pairs, strict=True)]
    return np.unique(np.array(names, dtype=object), return_inverse=True)[1].astype(np.int64)


def _plain(text: str) -> str:
    return _SPAN_MARK.sub(" ", text)
