"""Words as the shallow models see them: runs of letters and digits of any length, and runs of punctuation.

scikit-learn's default pattern drops one-letter words and punctuation, but span marks and one-letter words carry the
answer in some tasks.
"""

import re
from collections.abc import Sequence

WORD = r"\w+|[^\w\s]+"
_WORD = re.compile(WORD)


def words_of(text: str) -> list[str]:
    """The lower-cased words of a text."""
    return _WORD.findall(text.lower())


def joined(texts: Sequence[str], pairs: Sequence[str] | None) -> list[str]:
    """The texts; the two texts of a pair become one."""
    if pairs is None:
        return list(texts)
    return [f"{first} \n {second}" for first, second in zip(texts, pairs, strict=True)]
