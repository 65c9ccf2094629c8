"""Words as shallow models and selectors see them, and the pairs of letters where words are not set apart.

A word is a run of letters and digits with their marks, of any length. In scripts without spaces between words (Han,
kana, Thai, Lao, Khmer, Burmese) each letter is a word. Runs of punctuation are words of models: scikit-learn's default
pattern drops them and one-letter words, but span marks and one-letter words carry the answer in some tasks.
"""

import re
from collections.abc import Sequence
from itertools import pairwise

import regex

from tlm.data.text import is_plain, is_unspaced, word_pattern

_PLAIN_WORD, _PLAIN_LETTERS = re.compile(r"\w+|[^\w\s]+"), re.compile(r"[^\W_]+")
_WORD = regex.compile(rf"{word_pattern('_')}|[^\p{{L}}\p{{N}}_\s]+", regex.V1)
_LETTERS = regex.compile(word_pattern(), regex.V1)


def words_of(text: str) -> list[str]:
    """The lower-cased words of a text, runs of punctuation among them."""
    lowered = text.lower()
    found: list[str] = (_PLAIN_WORD if is_plain(lowered) else _WORD).findall(lowered)
    return found


def letters_of(text: str) -> list[str]:
    """The lower-cased words of a text without punctuation and underscores."""
    lowered = text.lower()
    found: list[str] = (_PLAIN_LETTERS if is_plain(lowered) else _LETTERS).findall(lowered)
    return found


def with_pairs(words: Sequence[str]) -> Sequence[str]:
    """Words, and behind each letter of a script without spaces its pair with the next such letter."""
    if is_plain("".join(words)):
        return words
    found = []
    for word, following in pairwise([*words, ""]):
        found.append(word)
        if is_unspaced(word) and is_unspaced(following):
            found.append(word + following)
    return found


def joined(texts: Sequence[str], pairs: Sequence[str] | None) -> list[str]:
    """The texts; the two texts of a pair become one."""
    if pairs is None:
        return list(texts)
    return [f"{first} \n {second}" for first, second in zip(texts, pairs, strict=True)]
