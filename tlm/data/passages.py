"""Cut documents into passages of a given number of words."""

import re

import regex

from tlm.data.text import UNSPACED

LONGEST_WORD = 50  # characters; longer runs without spaces count as one word per 50 characters
_SEAM = " \0"  # a possible word boundary without a space in the text; never in normalised text
# The Unicode blocks of these scripts and others: ten times as fast to search as the exact characters
_PERHAPS_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u19ff\u2e80-\uffff\U00010000-\U0010ffff]")
_UNSPACED = regex.compile(rf"[{UNSPACED}--\p{{M}}]", regex.V1)
_BETWEEN = regex.compile(
    rf"(?<=\S)(?=[{UNSPACED}--\p{{M}}])|(?<=[{UNSPACED}--\p{{M}}]\p{{M}}*)(?=[^\s\p{{M}}])", regex.V1
)
_LONG = regex.compile(rf"[^\s\0]{{{LONGEST_WORD}}}(?=[^\s\0])")


def split(text: str, words: int, overlap: int = 0) -> list[str]:
    """Cut a normalised text into passages of `words` words, of which the last `overlap` also begin the next passage.

    Words are separated by spaces. In scripts without spaces (Han, kana, Thai, Lao, Khmer, Burmese) each character
    counts as a word, and in runs of more than 50 characters every 50 do. A last passage with fewer than words/10 words
    of its own is joined to the previous one. With overlap=0 each word is in exactly one passage.
    """
    tail = max(1, words // 10)
    if _surely_below(text, words + tail):
        return [text]
    pieces, stride = _pieces(text), words - overlap
    last = max(0, len(pieces) - words - tail + 1)  # from here on, the remainder is too short for another passage
    starts = range(0, last + stride, stride)
    ends = [*(start + words for start in starts[:-1]), len(pieces)]
    return [_join(pieces[start:end]) for start, end in zip(starts, ends, strict=True)]


def count(text: str) -> int:
    """The number of words of a normalised text, as `split` counts them."""
    return len(_pieces(text))


def _surely_below(text: str, words: int) -> bool:
    """Tell quickly, for most texts, that there are fewer than `words` words, counting long runs generously."""
    at_most = text.count(" ") + 1 + len(text) // LONGEST_WORD
    return at_most < words and (len(text) < words or not _has_unspaced(text))


def _has_unspaced(text: str) -> bool:
    return not text.isascii() and bool(_PERHAPS_UNSPACED.search(text)) and bool(_UNSPACED.search(text))


def _pieces(text: str) -> list[str]:
    if _has_unspaced(text):
        text = _BETWEEN.sub(_SEAM, text)
    pieces = text.split(" ")
    if max(map(len, pieces)) > LONGEST_WORD:
        pieces = _LONG.sub(rf"\g<0>{_SEAM}", text).split(" ")
    return pieces


def _join(pieces: list[str]) -> str:
    return " ".join(pieces).replace(_SEAM, "").removeprefix(_SEAM[1:])
