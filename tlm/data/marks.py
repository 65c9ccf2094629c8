"""Marks around spans, as in ``[[ one ]] and << another >>``: found, named, and put first in a text."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from tlm.errors import InputError

SPANS_FIRST = "tlm_spans_first"  # key of config.json
NEARLY_ALL = 0.95  # of the texts hold each mark exactly once
MOST_SPANS = 4
# Marks that are looked for: <e1> … </e1>, [E1] … [/E1], and runs of two or more of the same punctuation, as in [[ … ]].
_MARK = re.compile(r"</?[A-Za-z]\w{0,15}>|\[/?[A-Z]\d{0,2}\]|([^\w\s])\1+")
_MIRROR = str.maketrans("([{<)]}>", ")]}>([{<")

Marks = tuple[tuple[str, str], ...]  # the opening and the closing mark of each kind of span


def find_marks(texts: Sequence[str]) -> Marks:
    """Find the marks that nearly all texts hold exactly once, the opening one before the closing one.

    Marks with no word outside them in most texts, such as ``<html>``, are around whole texts, not around spans.

    Returns () where texts are not marked, or where they are marked in another way (`named_marks`).
    """
    counts, inside = Counter[str](), Counter[str]()
    for text in texts:
        found = Counter(match[0] for match in _MARK.finditer(text))
        opening = [mark for mark, count in found.items() if count == 1 and _is_open(text, mark)]
        counts.update(opening)
        inside.update(mark for mark in opening if _has_words_outside(text, mark))
    enough = {mark for mark, count in inside.items() if count >= len(texts) / 2}
    frequent = sorted(mark for mark in enough if counts[mark] >= NEARLY_ALL * len(texts))
    return tuple((mark, _closing(mark)) for mark in frequent[:MOST_SPANS])


def named_marks(given: Sequence[str]) -> Marks:
    """Read marks as a user names them: the opening and the closing one with a space between, such as ``<e1> </e1>``.

    Raises:
        InputError: one of `given` is not two marks, or there are more than `MOST_SPANS`.
    """
    pairs = [tuple(one.split()) for one in given]
    for text, pair in zip(given, pairs, strict=True):
        if len(pair) != 2:
            raise InputError(f"spans '{text}' is not two marks; expected two, such as '[[ ]]' or '<e1> </e1>'")
    if len(pairs) > MOST_SPANS:
        raise InputError(f"spans names {len(pairs)} pairs of marks; expected at most {MOST_SPANS}")
    return listed_marks(pairs)


def listed_marks(pairs: Iterable[Sequence[str]]) -> Marks:
    """Marks from lists of two, as JSON has them."""
    return tuple((opening, closing) for opening, closing in pairs)


def marks_in(config: dict[str, Any]) -> Marks:
    """The marks around the spans that an encoder reads first, by its config.json; () if it reads texts as they are."""
    return listed_marks(config.get(SPANS_FIRST, ()))


def marks_of(texts: Sequence[str], named: Marks | None) -> Marks:
    """Return the marks of texts: the named ones, or else the marks that are found.

    Raises:
        InputError: no text has one of the named marks.
    """
    if named is None:
        return find_marks(texts)
    for opening, closing in named:
        if not any(opening in text and closing in text for text in texts):
            raise InputError(f"spans: no training text has the marks '{opening} {closing}'; check how they are written")
    return named


def places(text: str, marks: Marks) -> list[tuple[int, int, int, int, int]]:
    """Find the spans of a text, in its order; a kind of span whose marks the text lacks is left out.

    Returns:
        For each span, begin and end of its opening mark, begin and end of its closing mark, and its kind, which is
        the number of its marks.
    """
    found = []
    for kind, (opening, closing) in enumerate(marks):
        start = text.find(opening)
        stop = text.find(closing, start + len(opening))
        if start >= 0 and stop >= 0:
            found.append((start, start + len(opening), stop, stop + len(closing), kind))
    return sorted(found)


def with_spans_first(text: str, marks: Marks) -> str:
    """Put the spans of a text, with the words between them, in front of it. A text without spans stays as it is."""
    found = places(text, marks)
    if not found:
        return text
    start, stop = found[0][0], max(place[3] for place in found)
    return f"{text[start:stop]} . {text}"


def _is_open(text: str, mark: str) -> bool:
    """Whether the mark that closes this one stands once in the text, behind it."""
    closing = _closing(mark)
    return closing != mark and text.count(closing) == 1 and text.index(closing) > text.index(mark)


def _has_words_outside(text: str, mark: str) -> bool:
    outside = text[: text.index(mark)] + text[text.index(_closing(mark)) :]
    return any(map(str.isalnum, _MARK.sub("", outside)))


def _closing(mark: str) -> str:
    return f"{mark[0]}/{mark[1:]}" if mark[1].isalpha() else mark[::-1].translate(_MIRROR)
