"""Documents into passages of so many words."""

import re

import regex

from tlm.data.text import UNSPACED

LONGEST_WORD = 50  # characters; a longer run without spaces counts as one word for every 50
_SEAM = " \0"  # a place where words may be parted, without a space in the text; no normalised text has it
# The blocks of those scripts and some more: looked through ten times as fast as their exact letters
_PERHAPS_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u19ff\u2e80-\uffff\U00010000-\U0010ffff]")
_UNSPACED = regex.compile(rf"[{UNSPACED}--\p{{M}}]", regex.V1)
_BETWEEN = regex.compile(
    rf"(?<=\S)(?=[{UNSPACED}--\p{{M}}])|(?<=[{UNSPACED}--\p{{M}}]\p{{M}}*)(?=[^\s\p{{M}}])", regex.V1
)
_LONG = regex.compile(rf"[^\s\0]{{{LONGEST_WORD}}}(?=[^\s\0])")


def split(text: str, words: int, overlap: int = 0) -> list[str]:
    """The passages of a normalised text: `words` words each, the last `overlap` of which begin the next one too.

    A word is what spaces part. In scripts without spaces (Han, kana, Thai, Lao, Khmer, Burmese) each letter counts
    as one, and a run of more than 50 characters counts once for every 50. A last passage with fewer than words/10
    words of its own is joined to the one before. With overlap=0 each word is in exactly one passage.
    """
    tail = max(1, words // 10)
    if _surely_below(text, words + tail):
        return [text]
    pieces, stride = _pieces(text), words - overlap
    last = max(0, len(pieces) - words - tail + 1)  # from here on, what is left is too little for a further passage
    starts = range(0, last + stride, stride)
    ends = [*(start + words for start in starts[:-1]), len(pieces)]
    return [_join(pieces[start:end]) for start, end in zip(starts, ends, strict=True)]


def _surely_below(text: str, words: int) -> bool:
    """A quick look that settles most texts: fewer words than `words`, however long runs are counted."""
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
