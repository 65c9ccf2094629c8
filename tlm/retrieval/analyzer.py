"""Lucene's `standard` analyzer in Python, so that both engines see the same terms.

Word segmentation is UAX #29 as Lucene 9 and 10 implement it (StandardTokenizer: Unicode 12.1; emoji sequences are
tokens; ideographs and hiragana are tokens of their own; runs of Thai, Lao, Khmer and Myanmar stay whole), cut at 255
UTF-16 units, then lower-cased one code point at a time. No stop words, no stems.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from importlib.resources import files

import numpy as np
import numpy.typing as npt

MAX_TOKEN_LENGTH = 255  # UTF-16 units, as in Elasticsearch's default

# ASCII, lower-cased already: letters join over : . ' and digits over . , ; '
_ASCII = re.compile(r"[a-z0-9_]++(?:(?:(?<=[a-z])[:.'](?=[a-z])|(?<=[0-9])[.,;'](?=[0-9]))[a-z0-9_]++)*+")

# Patterns over classes, one letter a code point (word_classes.txt). Quantifiers are possessive and choices exclude
# one another, so that the first match is the longest one, which is what Lucene's scanner takes.
_X = "[xsZCpPTtM]*+"  # UAX #29 WB4: marks belong to what they follow
_JOINED = (
    f"(?:H{_X}(?:'{_X}|\"{_X}H{_X}|[:.]{_X}(?=[LHe]))?+|[Le]{_X}(?:[:.']{_X}(?=[LHe]))?+|[ND]{_X}(?:[,.']{_X}(?=[ND]))?+)"
)
_PART = f"(?:(?:K{_X})++|{_JOINED}++)"
_UNDERSCORES = f"(?:_{_X}){{0,{MAX_TOKEN_LENGTH}}}+"
_WORD = re.compile(
    f"{_UNDERSCORES}{_PART}(?:(?:_{_X})++{_PART})*+{_UNDERSCORES}"
    f"|(?:[Ss]{_X})++"
    f"|I{_X}"
)  # fmt: skip

_Y = "[xsZCTtM]*+"  # marks without the presentation selectors, which have a place of their own in emoji
_E = f"[Ee]{_Y}(?:(?<=Z)[Ee]{_Y})*+"
_M = f"M{_Y}"
_EMOJI = re.compile(
    f"Z*+[Ee]{_Y}PT++t"
    f"|(?:Z*+{_E}|{_M}(?<=Z){_E})(?:PZ(?:Z*+{_E}|{_M}(?<=Z){_E}))*+(?:P(?:Z{_M})?+)?+"
    f"|{_M}"
    f"|[D#]{_Y}PC{_Y}|[D#][xsZTtM]*+C{_Y}"
    f"|R{_X}R{_X}"
)  # fmt: skip
_MAYBE_EMOJI = re.compile("[EeMRC]")


def terms(text: str) -> list[str]:
    """The terms of `text` in order, with repetitions, exactly as Elasticsearch's `standard` analyzer gives them."""
    if text.isascii():
        found = _ASCII.findall(text.lower())
        if "_" in text:
            found = [term for term in found if term.strip("_")]  # a letter or digit must be there
        if len(text) <= MAX_TOKEN_LENGTH or max(map(len, found), default=0) <= MAX_TOKEN_LENGTH:
            return found
    lower = _lower(text)
    return [lower[start:end] for start, end in _spans(text)]


def _lower(text: str) -> str:
    """Lower case by code point: unlike `str.lower`, the length stays and a final sigma is a sigma."""
    return text.replace("İ", "i").replace("Σ", "σ").lower()


@lru_cache(maxsize=1)
def _table() -> npt.NDArray[np.uint8]:
    """The class letter of each code point, uint8[0x110000]."""
    table = np.empty(0x110000, np.uint8)
    for line in files("tlm.retrieval").joinpath("word_classes.txt").read_text("ascii").splitlines():
        if not line.startswith("# "):
            start, letter = line.split(" ")
            table[int(start, 16) :] = ord(letter)
    return table


def _classes(text: str) -> str:
    code_points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    return _table()[code_points].tobytes().decode("ascii")


def _spans(text: str) -> list[tuple[int, int]]:
    """Start and end of each token."""
    classes = _classes(text)
    if _MAYBE_EMOJI.search(classes):
        spans = list(_longest(classes))
    else:
        spans = [match.span() for match in _WORD.finditer(classes)]
    if all(_units(text, *span) <= MAX_TOKEN_LENGTH for span in spans):
        return spans
    return list(_cut(classes, text))


def _longest(classes: str) -> Iterator[tuple[int, int]]:
    """Words and emoji, the longer where both begin at one place."""
    word, emoji = _WORD.search(classes), _EMOJI.search(classes)
    while word or emoji:
        token = min(filter(None, (word, emoji)), key=lambda match: (match.start(), -match.end()))
        yield token.span()
        if word and word.start() < token.end():
            word = _WORD.search(classes, token.end())
        if emoji and emoji.start() < token.end():
            emoji = _EMOJI.search(classes, token.end())


def _cut(classes: str, text: str) -> Iterator[tuple[int, int]]:
    """As Lucene with its full buffer: each token is the longest within the next 255 UTF-16 units."""
    start = 0
    while start < len(text):
        end = _limit(text, start)
        stops = [match.end() for pattern in (_WORD, _EMOJI) if (match := pattern.match(classes, start, end))]
        if stops:
            yield start, max(stops)
        start = max(stops, default=start + 1)


def _limit(text: str, start: int) -> int:
    """How far MAX_TOKEN_LENGTH UTF-16 units reach from `start`, in whole code points."""
    end = min(start + MAX_TOKEN_LENGTH, len(text))
    while _units(text, start, end) > MAX_TOKEN_LENGTH:
        end -= 1
    return end


def _units(text: str, start: int, end: int) -> int:
    if end - start <= MAX_TOKEN_LENGTH // 2:
        return end - start  # as good as exact: at most twice this
    return len(text[start:end].encode("utf-16-le", "surrogatepass")) // 2
