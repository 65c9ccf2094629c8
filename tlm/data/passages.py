"""Documents become passages: the fields of a row, and where texts are cut, by number of words."""

import re
from dataclasses import dataclass

import pyarrow as pa
import regex

from tlm.data.reading.files import RawFile
from tlm.data.reading.records import Row, name_of, text_of
from tlm.data.text import UNSPACED
from tlm.errors import InputError

STAGED = pa.schema([("id", "string"), ("text", "string"), ("source", "string")])
LONGEST_WORD = 50  # characters; longer runs without spaces count as one word per 50 characters
_SEAM = " \0"  # a possible word boundary without a space in the text; never in normalised text
# The Unicode blocks of these scripts and others: ten times as fast to search as the exact characters
_PERHAPS_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u19ff\u2e80-\uffff\U00010000-\U0010ffff]")
_UNSPACED = regex.compile(rf"[{UNSPACED}--\p{{M}}]", regex.V1)
_BETWEEN = regex.compile(
    rf"(?<=\S)(?=[{UNSPACED}--\p{{M}}])|(?<=[{UNSPACED}--\p{{M}}]\p{{M}}*)(?=[^\s\p{{M}}])", regex.V1
)
_LONG = regex.compile(rf"[^\s\0]{{{LONGEST_WORD}}}(?=[^\s\0])")


@dataclass(frozen=True)
class Layout:
    """The fields of a row, and how documents are cut. Raises InputError: a setting out of range."""

    text_field: str
    id_field: str  # "": file name and line
    source_field: str  # "": file name
    words: int  # per passage
    overlap: int  # words shared by consecutive passages

    def __post_init__(self) -> None:
        if not self.text_field:
            raise InputError("text_field is empty; give the name of the field with the text")
        if self.words < 1:
            raise InputError(f"words is {self.words}; expected 1 or more words per passage")
        if not 0 <= self.overlap < self.words:
            raise InputError(f"overlap is {self.overlap}; expected 0 to {self.words - 1}, less than words")

    @property
    def fields(self) -> list[str]:
        """The fields needed of each row, the text's first."""
        return [name for name in (self.text_field, self.id_field, self.source_field) if name]

    def passages(self, file: RawFile, row: Row) -> list[tuple[str, str, str]]:
        """Return id, text and source of each passage of a row, as in the schema STAGED. Raises BadRow."""
        text = text_of(row.values, self.text_field)
        document = name_of(row.values, self.id_field, f"{file.name}:{row.line}")
        source = name_of(row.values, self.source_field, file.name)
        parts = split(text, self.words, self.overlap)
        if len(parts) == 1:
            return [(document, text, source)]
        return [(f"{document}#{number}", part, source) for number, part in enumerate(parts, start=1)]


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
