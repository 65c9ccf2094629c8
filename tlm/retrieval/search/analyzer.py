"""Lucene's `standard` analyzer in Python, so that both engines see the same terms.

Word segmentation is UAX #29 as Lucene 9 and 10 implement it (StandardTokenizer: Unicode 12.1; emoji sequences are
tokens; ideographs and hiragana are tokens of their own; runs of Thai, Lao, Khmer and Myanmar stay whole), cut at 255
UTF-16 units, then lower-cased one code point at a time. No stop words, no stems.

Most text has only letters, digits and punctuation, where one expression over its characters does (`_plain`). Other
text is turned into a string of classes, one letter a code point, and the whole grammar runs over that (`_spans`).
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from importlib.resources import files

import numpy as np
import numpy.typing as npt

MAX_TOKEN_LENGTH = 255  # UTF-16 units, as in Elasticsearch's default
BEYOND = "HKISsxEeCZpP"  # classes that only the whole grammar can handle

# Classes: see word_classes.txt. Quantifiers are possessive and choices exclude one another, so that the first match
# is also the longest, which is what Lucene's scanner takes.
_X = "[xsZCpPTtM]*+"  # UAX #29 WB4: marks belong to what they follow
_MORE = f"(?:[:.']{_X}[LHe]{_X})"
_JOINED = (
    f"(?:H{_X}(?:'{_X}|\"{_X}H{_X}|(?=[:.]){_MORE}++)?+"  # after Hebrew a single quote stays, a double one joins
    f"|[Le]{_X}{_MORE}*+"
    f"|[ND]{_X}(?:[,.']{_X}[ND]{_X})*+)"
)
_PART = f"(?:(?:K{_X})++|{_JOINED}++)"
_UNDERSCORES = f"(?:_{_X}){{0,{MAX_TOKEN_LENGTH}}}+"
_WORD = re.compile(f"{_UNDERSCORES}{_PART}(?:(?:_{_X})++{_PART})*+{_UNDERSCORES}|(?:[Ss]{_X})++|I{_X}")

_Y = "[xsZCTtM]*+"  # marks without the presentation selectors, which have a place of their own in emoji
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
    """The terms of `text` in order, with repetitions, exactly as Elasticsearch's `standard` analyzer gives them."""
    if text.isascii():
        lower = text.lower()
        found, joiners = _ASCII.findall(lower), "_"
    else:
        lower = lower_case(text)
        plain, beyond, joiners = _plain()
        if beyond.search(text):
            return terms_by_grammar(text)
        found = plain.findall(lower)
    if any(joiner in lower for joiner in joiners):
        found = [term for term in found if term.strip(joiners)]  # a letter or digit must be there
    if len(text) > MAX_TOKEN_LENGTH and max(map(len, found), default=0) > MAX_TOKEN_LENGTH:
        return terms_by_grammar(text)
    return found


def terms_by_grammar(text: str) -> list[str]:
    """What `terms` finds, by the whole grammar: slower, for any text."""
    lower = lower_case(text)
    return [lower[start:end] for start, end in _spans(text)]


def lower_case(text: str) -> str:
    """Lower case by code point: unlike with `str.lower`, the length stays and a final sigma is a sigma."""
    return text.replace("İ", "i").replace("Σ", "σ").lower()


def _words_without_marks(letters: str, digits: str, joiners: str, mid: str, mid_letter: str, mid_digit: str) -> str:
    """The words of `_WORD` in text that has no marks, Hebrew or katakana; arguments are insides of character sets."""
    between_letters = f"(?<=[{letters}][{mid}{mid_letter}])(?=[{letters}])"
    between_digits = f"(?<=[{digits}][{mid}{mid_digit}])(?=[{digits}])"
    run = f"[{letters}{digits}{joiners}]++"
    return f"{run}(?:[{mid}{mid_letter}{mid_digit}](?:{between_letters}|{between_digits}){run})*+"


_ASCII = re.compile(_words_without_marks("a-z", "0-9", "_", ".'", ":", ",;"))


@lru_cache(maxsize=1)
def _plain() -> tuple[re.Pattern[str], re.Pattern[str], str]:
    """For the Basic Multilingual Plane: the words, what `_words_without_marks` cannot handle, and what joins words."""
    plane = class_table()[:0x10000]
    sets = {letter: _ranges(np.flatnonzero(plane == ord(letter))) for letter in map(chr, np.unique(plane))}
    words = _words_without_marks(sets["L"], sets["N"] + sets["D"], sets["_"], sets["."] + "'", sets[":"], sets[","])
    beyond = "".join(sets[letter] for letter in BEYOND) + "\U00010000-\U0010ffff"
    joiners = "".join(chr(code) for code in np.flatnonzero(plane == ord("_")))
    return re.compile(words), re.compile(f"[{beyond}]"), joiners


def _ranges(codes: npt.NDArray[np.int64]) -> str:
    """Sorted code points as the inside of a character set."""
    runs = np.split(codes, np.flatnonzero(np.diff(codes) != 1) + 1)
    return "".join(f"\\u{run[0]:04x}-\\u{run[-1]:04x}" for run in runs)


@lru_cache(maxsize=1)
def class_table() -> npt.NDArray[np.uint8]:
    """The class letter of each code point, uint8[0x110000]."""
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
    """Start and end of each token, for any text."""
    classes = _classes(text)
    if _MAYBE_EMOJI.search(classes):
        spans = list(_longest(classes))
    else:
        spans = [match.span() for match in _WORD.finditer(classes)]
    if any(end - start > MAX_TOKEN_LENGTH // 2 and _units(text, start, end) > MAX_TOKEN_LENGTH for start, end in spans):
        return list(_cut(classes, text))
    return spans


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
        end = min(start + MAX_TOKEN_LENGTH, len(text))
        while _units(text, start, end) > MAX_TOKEN_LENGTH:
            end -= 1
        stops = [match.end() for pattern in (_WORD, _EMOJI) if (match := pattern.match(classes, start, end))]
        if stops:
            yield start, max(stops)
        start = max(stops, default=start + 1)


def _units(text: str, start: int, end: int) -> int:
    return len(text[start:end].encode("utf-16-le", "surrogatepass")) // 2
