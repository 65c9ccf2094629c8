"""Make text from outside inert: nothing in it can act as markup, and nothing in it is invisible."""

import json
import re
from collections.abc import Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any

import regex

from tlm.data.text import with_pairs, word_pattern
from tlm.errors import BLANKS

# Without the joiners and emoji selectors that many texts need, and the zero-width spaces between words of Thai, Lao,
# Burmese and Khmer. Two names that differ in one of these look alike. A class comes first: `re` looks for it fast.
BIDI_AND_CONTROLS = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    rf"\ud800-\udfff{BLANKS}](?:(?<!\u200b)|(?<![\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]\u200b))"
)
LONGEST = 600
_ADDRESS = re.compile(r"://|www\.|@")  # some Markdown readers turn these into links
_WORD = regex.compile(rf"({word_pattern('_')})", regex.V1)
SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def visible(text: str, longest: int = LONGEST) -> str:
    """Put text on one line, shortened, with control and direction characters spelled out. Pages escape markup."""
    line = " ".join(text.split())
    cut = line if len(line) <= longest else f"{line[: longest - 1]}…"
    return BIDI_AND_CONTROLS.sub(spelled, cut)


def spelled(character: re.Match[str]) -> str:
    """An invisible character as its code point: ``⟨U+202E⟩``."""
    return f"⟨U+{ord(character[0]):04X}⟩"


def escaped(line: str) -> str:
    """A line of JSON with its invisible characters escaped. JSON itself escapes those of ASCII, except DEL."""
    if line.isascii() and "\x7f" not in line:
        return line
    return BIDI_AND_CONTROLS.sub(lambda found: json.dumps(found[0])[1:-1], line)


def whole_text(row: Mapping[str, Any]) -> str:
    """The text of an example, or both texts of a pair."""
    return " ⁄ ".join(part for part in (row["text"], row["text_pair"]) if part)


def label_text(label: str | Sequence[str] | float | None) -> str:
    """A label, several of them, or a number; "" for none."""
    if label is None or isinstance(label, str):
        return label or ""
    return "; ".join(label) if isinstance(label, Sequence) else str(label)


def code(text: str, longest: int = LONGEST) -> str:
    """A Markdown code span, in which links, HTML and emphasis have no effect. Backticks become apostrophes."""
    return f"`{visible(text, longest).replace('`', chr(39)) or ' '}`"


def power(value: float) -> str:
    """A number for people, a large one as a power of ten: ``1.3·10¹³``."""
    if value < 1e6:
        return f"{float(f'{value:.3g}'):,.0f}"
    digits, exponent = f"{value:.1e}".split("e")
    return f"{digits.removesuffix('.0')}·10{str(int(exponent)).translate(SUPERSCRIPTS)}"


def signed(value: float) -> str:
    """A number with its sign and one digit after the point; ``0.0`` has none."""
    return f"{value:+.1f}" if abs(value) >= 0.05 else "0.0"


def prose(text: str) -> str:
    """One of our sentences in Markdown: names in it cannot act as markup, and addresses do not become links."""
    shown = BIDI_AND_CONTROLS.sub(spelled, re.sub(r"\s+", " ", text))
    return re.sub(r"[^ ]+", lambda word: _inert(word[0]), shown)


def _inert(word: str) -> str:
    return code(word) if _ADDRESS.search(word) else re.sub(r"([\\`*_\[\]<>|~&#])", r"\\\1", word)


_COMMON = """about also among based been being between both does each from have into more most only other over some such
than that their them then there these they this those through under used using very were what when where which while
will with"""
COMMON = frozenset(_COMMON.split())


def shared_words(passage: str, question: str, least: int = 4) -> list[tuple[str, bool]]:
    """Split a passage into pieces, each with a flag: whether it consists of words that `question` has too.

    Words of fewer than `least` letters and the most common words are not marked. In scripts without spaces between
    words, pairs of neighbouring letters are.
    """
    words = _WORD.findall(question.lower())
    known, pairs = set(words) - COMMON, set(with_pairs(words)) - set(words)
    pieces = [piece for piece in _WORD.split(passage) if piece]
    alone = [len(piece) >= least and piece.lower() in known for piece in pieces]
    paired = [False, *((left + right).lower() in pairs for left, right in pairwise(pieces)), False]
    marks = [any(flags) for flags in zip(alone, paired, paired[1:], strict=False)]  # with the piece before, or after
    runs = groupby(zip(pieces, marks, strict=True), key=lambda pair: pair[1])
    return [("".join(piece for piece, _ in run), marked) for marked, run in runs]
