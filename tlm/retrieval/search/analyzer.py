"""Lucene's `standard` analyzer in Python, so that both engines see the same terms.

Words are segmented by UAX #29 as in Lucene 9 and 10 (StandardTokenizer, Unicode 12.1): an emoji sequence is one token,
each ideograph and hiragana is a token. Tokens are cut at 255 UTF-16 units and lower-cased one code point at a time.
There are no stop words and no stemming. The grammar takes a clause of Thai, Lao, Khmer or Burmese for one word, which
hardly any other text has, so both engines get the pairs of its neighbouring letters instead (`in_pairs`).

`terms_of_text` turns a text into a string of word-break classes, one letter per code point, and runs the grammar over
that string. `terms` finds the same terms faster in many texts: it concatenates them as UTF-16 units, and the kind of
each unit shows where words begin and end. Texts that need the full grammar (emoji, ideographs, combining marks, words
of more than 255 units; about one in a hundred) are analyzed one by one.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from itertools import chain, pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import regex


def batched(texts: Iterable[str], count: int, characters: int) -> Iterator[list[str]]:
    """Cut `texts` into batches, each ended by the text that brings it to `count` texts or to so many characters."""
    batch: list[str] = []
    size = 0
    for text in texts:
        batch.append(text)
        size += len(text)
        if len(batch) == count or size >= characters:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


MAX_TOKEN_LENGTH = 255  # UTF-16 units, Elasticsearch's default

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
_EMOJI = (
    f"Z*+[Ee]{_Y}PT++t"
    f"|(?:Z*+{_E}|{_M}(?<=Z){_E})(?:PZ(?:Z*+{_E}|{_M}(?<=Z){_E}))*+(?:P(?:Z{_M})?+)?+"
    f"|{_M}"
    f"|[D#]{_Y}PC{_Y}|[D#][xsZTtM]*+C{_Y}"
    f"|R{_X}R{_X}"
)
_MAYBE_EMOJI = re.compile("[EeMRC]")
_WORD_OR_EMOJI = regex.compile(f"(?p){_WORD.pattern}|{_EMOJI}")  # the longer one if both begin at the same position

_CLAUSE = regex.compile(r"[\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}&&[\p{L}\p{M}]]+", regex.V1)
_LETTER = regex.compile(r".\p{M}*")  # with its vowel signs and tones


def in_pairs(text: str) -> str:
    """Replace each run of Thai, Lao, Khmer or Burmese letters with its pairs of neighbouring letters, spaced apart.

    Applied again, it changes nothing but spaces.
    """
    return text if text.isascii() else _CLAUSE.sub(_pairs, text)


def _pairs(clause: re.Match[str]) -> str:
    pairs = " ".join(map("".join, pairwise(_LETTER.findall(clause[0]))))
    return f" {pairs or clause[0]} "


def terms_of_text(text: str) -> list[str]:
    """Return the terms of `text` in order, with repetitions, as Elasticsearch's `standard` analyzer of `in_pairs`."""
    text = in_pairs(text)
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
    token = _WORD_OR_EMOJI if _MAYBE_EMOJI.search(classes) else _WORD
    spans = [match.span() for match in token.finditer(classes)]
    if any(end - start > MAX_TOKEN_LENGTH // 2 and _units(text, start, end) > MAX_TOKEN_LENGTH for start, end in spans):
        return list(_cut(classes, text))
    return spans


def _cut(classes: str, text: str) -> Iterator[tuple[int, int]]:
    """Segment like Lucene with a full buffer: each token is the longest one within the next 255 UTF-16 units."""
    start = 0
    while start < len(text):
        end = min(start + MAX_TOKEN_LENGTH, len(text))
        while _units(text, start, end) > MAX_TOKEN_LENGTH:
            end -= 1
        token = _WORD_OR_EMOJI.match(classes, start, end)
        if token:
            yield token.span()
        start = token.end() if token else start + 1


def _units(text: str, start: int, end: int) -> int:
    return len(text[start:end].encode("utf-16-le", "surrogatepass")) // 2


Lengths = npt.NDArray[np.int64]
Units = npt.NDArray[np.uint16]
Kinds = npt.NDArray[np.uint8]

LETTER, DIGIT, JOINER, BETWEEN_LETTERS, BETWEEN_DIGITS, OTHER = 1, 2, 4, 8, 16, 32
BETWEEN = BETWEEN_LETTERS | BETWEEN_DIGITS
KINDS = {"L": LETTER, "N": DIGIT, "D": DIGIT, "_": JOINER}
KINDS |= {".": BETWEEN, "'": BETWEEN, ":": BETWEEN_LETTERS, ",": BETWEEN_DIGITS}
KINDS |= dict.fromkeys("HKISsxEeCZpP", OTHER)  # classes that only the full grammar can handle
TEXTS_TOGETHER, CHARACTERS_TOGETHER = 500, 1 << 19
GAP = "\n".encode("utf-16-le")  # separates texts; not part of any word


@dataclass(frozen=True)
class Terms:
    """The terms of a sequence of texts, with repetitions.

    Attributes:
        distinct: The distinct terms, in order of first appearance.
        tokens: int32[tokens], the index of each token in `distinct`, text after text.
        lengths: int64[texts], the number of tokens of each text.
    """

    distinct: list[str]
    tokens: npt.NDArray[np.int32]
    lengths: Lengths

    def by_text(self) -> Iterator[list[str]]:
        """Yield the terms of each text, in order."""
        words, start = np.array(self.distinct, object)[self.tokens].tolist(), 0
        for length in self.lengths.tolist():
            yield words[start : start + length]
            start += length


def terms_of_each(texts: Iterable[str]) -> Iterator[list[str]]:
    """Yield the terms of each text; memory does not grow with their number."""
    for batch in batched(texts, TEXTS_TOGETHER, CHARACTERS_TOGETHER):
        yield from terms(batch).by_text()


def terms(texts: Sequence[str]) -> Terms:
    """Find the terms of all `texts`."""
    words, counts, left = _find(*_utf16(texts))
    by_grammar = [terms_of_text(texts[text]) for text in left]
    left_words = pa.array(chain.from_iterable(by_grammar), pa.string())
    left_counts = np.array([len(found) for found in by_grammar], np.int64)
    text_of = np.repeat(np.concatenate([np.arange(len(texts)), left]), np.concatenate([counts, left_counts]))
    all_words = pa.concat_arrays([words, left_words]).dictionary_encode()
    in_order = all_words.indices.take(pa.array(np.argsort(text_of, kind="stable"))).dictionary_encode()
    distinct = all_words.dictionary.take(in_order.dictionary).to_pylist()
    return Terms(distinct, in_order.indices.to_numpy(), np.bincount(text_of, minlength=len(texts)))


def _utf16(texts: Sequence[str]) -> tuple[Units, Kinds, Lengths]:
    """Concatenate texts as lower-case UTF-16 units, with gaps around them.

    Returns the units, the kind of each one, and the position of the gap after each text.
    """
    parts = [lower_case(text).encode("utf-16-le", "surrogatepass") for text in texts]
    units = np.frombuffer(GAP.join([b"", *parts, b""]), np.uint16)
    lengths = np.fromiter(map(len, parts), np.int64, len(parts)) // 2
    return units, _kinds().take(units), np.cumsum(lengths + 1)


@lru_cache(maxsize=1)
def _kinds() -> Kinds:
    """The kind of each UTF-16 unit, as flags, uint8[0x10000]."""
    of_class = np.zeros(256, np.uint8)
    of_class[[*map(ord, KINDS)]] = [*KINDS.values()]
    flags: Kinds = of_class[class_table()[:0x10000]]
    flags[0xD800:0xE000] = OTHER
    return flags


def _find(units: Units, kinds: Kinds, ends: Lengths) -> tuple[pa.Array, Lengths, Lengths]:
    """Find the words of concatenated texts.

    Returns the words, text after text; the number of words in each text; and the texts that need the full grammar,
    for which no words are returned.
    """
    inside = (kinds & (LETTER | DIGIT | JOINER)) > 0
    between = np.flatnonzero((kinds >= BETWEEN_LETTERS) & (kinds < OTHER))
    on_both_sides = kinds[between - 1] & kinds[between + 1]
    # three bits up, LETTER is BETWEEN_LETTERS, and DIGIT is BETWEEN_DIGITS
    inside[between[((on_both_sides << 3) & kinds[between] & BETWEEN) > 0]] = True
    starts, stops = _edges(inside)
    need_grammar = np.concatenate([np.flatnonzero(kinds == OTHER), starts[stops - starts > MAX_TOKEN_LENGTH]])
    left = np.unique(np.searchsorted(ends, need_grammar))
    dropped = [(ends[text - 1] if text else 0, ends[text]) for text in left]
    for row in np.flatnonzero(kinds[starts] == JOINER):
        if not (kinds[starts[row] : stops[row]] & (LETTER | DIGIT)).any():  # underscores alone are no word
            dropped.append((starts[row], stops[row]))
    for start, end in dropped:
        inside[start:end] = False
    if dropped:
        starts, stops = _edges(inside)
    counts = np.diff(np.searchsorted(starts, ends), prepend=0)
    return _strings(units, inside, starts, stops), counts, left


def _edges(inside: npt.NDArray[np.bool_]) -> tuple[Lengths, Lengths]:
    """Where words begin, and where they end."""
    edges = np.flatnonzero(inside[1:] != inside[:-1]) + 1
    return edges[::2], edges[1::2]


def _strings(units: Units, inside: npt.NDArray[np.bool_], starts: Lengths, stops: Lengths) -> pa.Array:
    """Make UTF-8 strings of the words that begin at `starts` and end at `stops`."""
    large = np.flatnonzero((units > 0x7F) & inside)
    more = np.bincount(np.searchsorted(starts, large, "right") - 1, 1 + (units[large] > 0x7FF), len(starts))
    offsets = np.zeros(len(starts) + 1, np.int32)
    np.cumsum(stops - starts + more.astype(np.int64), out=offsets[1:])
    # without the bytes of 0: several times as fast as units[inside]
    letters = (units * inside).tobytes().decode("utf-16-le").encode().translate(None, b"\0")
    return pa.StringArray.from_buffers(len(starts), pa.py_buffer(offsets), pa.py_buffer(letters))
