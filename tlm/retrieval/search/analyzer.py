"""Lucene's `standard` analyzer in Python, so that both engines see the same terms.

Words are segmented by UAX #29 as in Lucene 9 and 10 (StandardTokenizer, Unicode 12.1): an emoji sequence is one token,
each ideograph and hiragana is a token, and a run of Thai, Lao, Khmer or Myanmar is not split. Tokens are cut at 255
UTF-16 units and lower-cased one code point at a time. There are no stop words and no stemming.

A text is turned into a string of word-break classes, one letter per code point, and the grammar runs over that string.
`bulk_analyzer` finds the same terms faster for many texts, and leaves to this module those that need the full grammar.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from importlib.resources import files

import numpy as np
import numpy.typing as npt

MAX_TOKEN_LENGTH = 255  # UTF-16 units, Elasticsearch's default
GRAMMAR_ONLY = "HKISsxEeCZpP"  # classes that only the full grammar can handle

# word_classes.txt explains the classes. Quantifiers are possessive and alternatives exclude each other, so that the
# first match is the longest one, which is what Lucene's scanner takes.
_X = "[xsZCpPTtM]*+"  # UAX #29 WB4: marks belong to the character before them
_MORE = f"(?:[:.']{_X}[LHe]{_X})"
_JOINED = (
    f"(?:H{_X}(?:'{_X}|\"{_X}H{_X}|(?=[:.]){_MORE}++)?+"  # after Hebrew, ' is kept and " joins
    f"|[Le]{_X}{_MORE}*+"
    f"|[ND]{_X}(?:[,.']{_X}[ND]{_X})*+)"
)
_PART = f"(?:(?:K{_X})++|{_JOINED}++)"
_UNDERSCORES = f"(?:_{_X}){{0,{MAX_TOKEN_LENGTH}}}+"
_WORD = re.compile(f"{_UNDERSCORES}{_PART}(?:(?:_{_X})++{_PART})*+{_UNDERSCORES}|(?:[Ss]{_X})++|I{_X}")

_Y = "[xsZCTtM]*+"  # marks except the presentation selectors, which emoji sequences treat separately
_E = f"[Ee]{_Y}(?:(?<=Z)[Ee]{_Y})*+"
_M = f"M{_Y}"
_EMOJI = re.compile(
    f"Z*+[Ee]{_Y}PT++t"
    f"|(?:Z*+{_E}|{_M}(?<=Z){_E})(?:PZ(?:Z*+{_E}|{_M}(?<=Z){_E}))*+(?:P(?:Z{_M})?+)?+"
    f"|{_M}"
    f"|[D#]{_Y}PC{_Y}|[D#][xsZTtM]*+C{_Y}"
    f"|R{_X}R{_X}"
)
_MAYBE_EMOJI = re.compile("[EeMRC]")


def terms(text: str) -> list[str]:
    """Return the terms of `text` in order, with repetitions, exactly as Elasticsearch's `standard` analyzer does."""
    lower = lower_case(text)
    return [lower[start:end] for start, end in _spans(text)]


def lower_case(text: str) -> str:
    """Lower-case each code point by itself. Unlike `str.lower` this keeps the length and has no final sigma."""
    return text.replace("İ", "i").replace("Σ", "σ").lower()


@lru_cache(maxsize=1)
def class_table() -> npt.NDArray[np.uint8]:
    """The class (an ASCII letter) of each code point, uint8[0x110000]."""
    table = np.empty(0x110000, np.uint8)
    for line in files("tlm.retrieval.search").joinpath("word_classes.txt").read_text("ascii").splitlines():
        if not line.startswith("# "):
            start, letter = line.split(" ")
            table[int(start, 16) :] = ord(letter)
    return table


def _classes(text: str) -> str:
    code_points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    return class_table()[code_points].tobytes().decode("ascii")


def _spans(text: str) -> list[tuple[int, int]]:
    """Return start and end of each token."""
    classes = _classes(text)
    if _MAYBE_EMOJI.search(classes):
        spans = list(_longest(classes))
    else:
        spans = [match.span() for match in _WORD.finditer(classes)]
    if any(end - start > MAX_TOKEN_LENGTH // 2 and _units(text, start, end) > MAX_TOKEN_LENGTH for start, end in spans):
        return list(_cut(classes, text))
    return spans


def _longest(classes: str) -> Iterator[tuple[int, int]]:
    """Yield words and emoji; the longer one if both begin at the same position."""
    word, emoji = _WORD.search(classes), _EMOJI.search(classes)
    while word or emoji:
        token = min(filter(None, (word, emoji)), key=lambda match: (match.start(), -match.end()))
        yield token.span()
        if word and word.start() < token.end():
            word = _WORD.search(classes, token.end())
        if emoji and emoji.start() < token.end():
            emoji = _EMOJI.search(classes, token.end())


def _cut(classes: str, text: str) -> Iterator[tuple[int, int]]:
    """Segment like Lucene with a full buffer: each token is the longest one within the next 255 UTF-16 units."""
    start = 0
    while start < len(text):
        end = min(start + MAX_TOKEN_LENGTH, len(text))
        while _units(text, start, end) > MAX_TOKEN_LENGTH:
            end -= 1
        stops = [match.end() for pattern in (_WORD, _EMOJI) if (match := pattern.match(classes, start, end))]
        if stops:
            yield start, max(stops)
        start = max(stops, default=start + 1)


def _units(text: str, start: int, end: int) -> int:
    return len(text[start:end].encode("utf-16-le", "surrogatepass")) // 2
