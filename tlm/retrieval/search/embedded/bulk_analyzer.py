"""The terms of many texts at once: what `analyzer.terms` finds in each, by array operations over all of their letters.

Texts are laid end to end, as bytes where they are ASCII, else as UTF-16 units; the class of each unit says where words
begin and end. Texts with something beyond this (emoji, ideographs, marks, words of more than 255 units: one in a
hundred) go through `analyzer.terms_by_grammar`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tlm.retrieval.search import analyzer

Lengths = npt.NDArray[np.int64]
Units = npt.NDArray[Any]  # uint8 or uint16
Kinds = npt.NDArray[np.uint8]

LETTER, DIGIT, JOINER, BETWEEN_LETTERS, BETWEEN_DIGITS, BEYOND = 1, 2, 4, 8, 16, 32
KINDS = {
    **{"L": LETTER, "N": DIGIT, "D": DIGIT, "_": JOINER},
    **{".": BETWEEN_LETTERS | BETWEEN_DIGITS, "'": BETWEEN_LETTERS | BETWEEN_DIGITS},
    **{":": BETWEEN_LETTERS, ",": BETWEEN_DIGITS},
}
GAP = "\n"  # between texts: no part of any word


@dataclass(frozen=True)
class Terms:
    """The terms of some texts, with repetitions: the distinct ones, and for each token which of these it is.

    Attributes:
        distinct: In order of first appearance.
        tokens: int32[tokens], into `distinct`; text after text.
        lengths: int64[texts], tokens in each text.
    """

    distinct: list[str]
    tokens: npt.NDArray[np.int32]
    lengths: Lengths


def terms(texts: Sequence[str]) -> Terms:
    """The terms of all `texts`."""
    ascii_only = np.fromiter(map(str.isascii, texts), bool, len(texts))
    narrow, wide = np.flatnonzero(ascii_only), np.flatnonzero(~ascii_only)
    found = [_find(*_bytes(_those(texts, narrow))), _find(*_utf16(_those(texts, wide)))]
    alone = np.concatenate([rows[left] for rows, (_, _, left) in zip((narrow, wide), found, strict=True)])
    singly = [analyzer.terms_by_grammar(text) for text in _those(texts, alone)]
    words = [words for words, _, _ in found] + [pa.array([term for one in singly for term in one], pa.string())]
    counts = np.concatenate([*(count for _, count, _ in found), np.array([len(one) for one in singly], np.int64)])
    encoded = pa.concat_arrays(words).dictionary_encode()
    return _in_order(encoded, np.concatenate([narrow, wide, alone]), counts, len(texts))


def _those(texts: Sequence[str], rows: Lengths) -> list[str]:
    return [texts[row] for row in rows.tolist()]


def _in_order(encoded: pa.DictionaryArray, rows: Lengths, counts: Lengths, texts: int) -> Terms:
    """From tokens of texts in the order of `rows`, of which some stand twice (once with no tokens), to their own."""
    tokens, distinct = encoded.indices.to_numpy(), encoded.dictionary
    lengths = np.zeros(texts, np.int64)
    np.add.at(lengths, rows, counts)
    filled = counts > 0
    if (np.diff(rows[filled]) > 0).all():
        return Terms(distinct.to_pylist(), tokens, lengths)
    starts, here = np.cumsum(lengths) - lengths, np.cumsum(counts) - counts
    ordered = np.empty_like(tokens)
    ordered[np.arange(len(tokens)) + np.repeat(starts[rows] - here, counts)] = tokens
    first = np.empty(len(distinct), np.int64)
    first[ordered[::-1]] = np.arange(len(ordered))[::-1]  # of several, the last that is assigned stays
    order = np.argsort(first)
    place = np.empty(len(order), np.int32)
    place[order] = np.arange(len(order))
    return Terms(distinct.take(pa.array(order)).to_pylist(), place[ordered], lengths)


def _bytes(texts: list[str]) -> tuple[Units, Kinds, Lengths]:
    """ASCII texts as lower-case bytes with a gap around each, their classes, and where each text's gap begins."""
    data = GAP.join(["", *texts, ""]).encode("ascii").lower()
    kinds = np.frombuffer(data.translate(_kinds()[:256].tobytes()), np.uint8)
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    return np.frombuffer(data, np.uint8), kinds, np.cumsum(lengths + 1)


def _utf16(texts: list[str]) -> tuple[Units, Kinds, Lengths]:
    """The same as UTF-16 units."""
    parts = [analyzer.lower_case(text).encode("utf-16-le", "surrogatepass") for text in texts]
    gap = GAP.encode("utf-16-le")
    units = np.frombuffer(gap.join([b"", *parts, b""]), np.uint16)
    lengths = np.fromiter(map(len, parts), np.int64, len(parts)) // 2
    return units, _kinds()[units], np.cumsum(lengths + 1)


@lru_cache(maxsize=1)
def _kinds() -> Kinds:
    """The flags of each UTF-16 unit, uint8[0x10000]."""
    of_class = np.zeros(256, np.uint8)
    of_class[[ord(letter) for letter in analyzer.BEYOND]] = BEYOND
    of_class[[ord(letter) for letter in KINDS]] = list(KINDS.values())
    flags: Kinds = of_class[analyzer.class_table()[:0x10000]]
    flags[0xD800:0xE000] = BEYOND
    return flags


def _find(units: Units, kinds: Kinds, ends: Lengths) -> tuple[pa.Array, Lengths, Lengths]:
    """The words, text after text; how many each text has; and the texts to be looked at alone (none here)."""
    inside = (kinds & (LETTER | DIGIT | JOINER)) > 0
    between = np.flatnonzero((kinds >= BETWEEN_LETTERS) & (kinds < BEYOND))
    around = kinds[between - 1] & kinds[between + 1]
    inside[between[((around << 3) & kinds[between] & (BETWEEN_LETTERS | BETWEEN_DIGITS)) > 0]] = True
    edges = np.flatnonzero(inside[1:] != inside[:-1]) + 1
    starts, stops = edges[::2], edges[1::2]
    bare = [row for row in np.flatnonzero(kinds[starts] == JOINER) if not (kinds[starts[row] : stops[row]] & 3).any()]
    strange = np.concatenate([np.flatnonzero(kinds == BEYOND), starts[stops - starts > analyzer.MAX_TOKEN_LENGTH]])
    alone = np.array(sorted(set(np.searchsorted(ends, strange).tolist())), np.int64)
    unwanted = [np.array(bare, np.int64)]
    for text in alone:
        start, end = ends[text - 1] if text else 0, ends[text]
        unwanted.append(np.arange(*np.searchsorted(starts, (start, end))))
    dropped = np.concatenate(unwanted)
    if len(dropped):
        for row in dropped:
            inside[starts[row] : stops[row]] = False
        starts, stops = np.delete(starts, dropped), np.delete(stops, dropped)
    counts = np.diff(np.searchsorted(starts, ends), prepend=0)
    return _strings(units, inside, starts, stops), counts, alone


def _strings(units: Units, inside: npt.NDArray[np.bool_], starts: Lengths, stops: Lengths) -> pa.Array:
    """The units inside words, which begin and end there, as strings in UTF-8."""
    lengths = stops - starts
    letters = (units * inside).tobytes()
    if units.dtype == np.uint16:
        letters = letters.decode("utf-16-le").encode()
        large = np.flatnonzero((units > 0x7F) & inside)
        more = np.bincount(np.searchsorted(starts, large, "right") - 1, 1 + (units[large] > 0x7FF), len(starts))
        lengths = lengths + more.astype(np.int64)
    letters = letters.translate(None, b"\0")  # several times as fast as units[inside]
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.StringArray.from_buffers(len(lengths), pa.py_buffer(offsets), pa.py_buffer(letters))
