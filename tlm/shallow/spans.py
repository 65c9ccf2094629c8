"""Spans that a task marks in its texts, as in ``[[ one ]] and << another >>``: found by their marks, and cut out."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tlm.errors import InputError
from tlm.shallow.words import words_of

NEARLY_ALL = 0.95  # of the texts hold each mark exactly once
MOST_SPANS = 4
NEIGHBOURS = 3  # words beside a span that are features
LONGEST_BETWEEN = 8  # words between two spans that are one feature as a whole
# Marks that are looked for: <e1> … </e1>, [E1] … [/E1], and runs of two or more of the same punctuation, as in [[ … ]].
_MARK = re.compile(r"</?[A-Za-z]\w{0,15}>|\[/?[A-Z]\d{0,2}\]|([^\w\s])\1+")
_MIRROR = str.maketrans("([{<)]}>", ")]}>([{<")

Marks = tuple[tuple[str, str], ...]  # the opening and the closing mark of each kind of span


@dataclass(frozen=True)
class Marked:
    """The parts of a text with marked spans, as words.

    Attributes:
        whole: All words of the text, marks left out.
        spans: The words inside each kind of mark, in the order of the marks; [] where the text lacks one of them.
        order: The kinds of spans by their place in the text, such as "AB".
        between: The words between each two consecutive spans.
        left: The words before the first span.
        right: The words after the last span.
    """

    whole: list[str]
    spans: list[list[str]]
    order: str
    between: list[list[str]]
    left: list[str]
    right: list[str]


def find_marks(texts: Sequence[str]) -> Marks:
    """Find the marks that nearly all texts hold exactly once, the opening one before the closing one.

    Returns () where texts are not marked, or where they are marked in another way (`named_marks`).
    """
    counts: Counter[str] = Counter()
    for text in texts:
        found = Counter(match[0] for match in _MARK.finditer(text))
        counts.update(mark for mark, count in found.items() if count == 1 and _is_open(text, mark))
    frequent = sorted(mark for mark, count in counts.items() if count >= NEARLY_ALL * len(texts))
    return tuple((mark, _closing(mark)) for mark in frequent[:MOST_SPANS])


def named_marks(given: Sequence[str]) -> Marks:
    """Marks as a user names them: the opening and the closing one with a space between, such as ``<e1> </e1>``.

    Raises:
        InputError: one of `given` is not two marks, or there are more than `MOST_SPANS`.
    """
    pairs = [tuple(one.split()) for one in given]
    for text, pair in zip(given, pairs, strict=True):
        if len(pair) != 2:
            raise InputError(f"spans '{text}' is not two marks; expected such as '[[ ]]' or '<e1> </e1>'")
    if len(pairs) > MOST_SPANS:
        raise InputError(f"spans names {len(pairs)} pairs of marks; expected at most {MOST_SPANS}")
    return tuple((opening, closing) for opening, closing in pairs)


def marks_of(texts: Sequence[str], named: Marks | None) -> Marks:
    """The marks of texts: those that were named, or those that are found.

    Raises:
        InputError: no text has one of the named marks.
    """
    if named is None:
        return find_marks(texts)
    for opening, closing in named:
        if not any(opening in text and closing in text for text in texts):
            raise InputError(f"spans: no training text has the marks '{opening} {closing}'; check how they are written")
    return named


def parts(text: str, marks: Marks) -> Marked:
    """Cut a text at its marks. A kind of span whose marks the text lacks is empty."""
    places = []
    for kind, (opening, closing) in enumerate(marks):
        start = text.find(opening)
        stop = text.find(closing, start + len(opening))
        if start >= 0 and stop >= 0:
            places.append((start, start + len(opening), stop, stop + len(closing), kind))
    places.sort()
    cuts = [0, *(cut for *place, _ in places for cut in place), len(text)]
    pieces = [_plain(text[start:stop], marks) for start, stop in zip(cuts[::2], cuts[1::2], strict=True)]
    inside = dict(zip((kind for *_, kind in places), pieces[1::2], strict=True))
    return Marked(
        whole=_plain(text, marks),
        spans=[inside.get(kind, []) for kind in range(len(marks))],
        order="".join("ABCD"[kind] for *_, kind in places),
        between=pieces[2:-1:2],
        left=pieces[0],
        right=pieces[-1] if places else [],
    )


def features(marked: Marked) -> list[str]:
    """Names of the features of a text's spans, for a linear model: what they are, where, and what stands between."""
    order, found = marked.order, []
    for name, span in zip("ABCD", marked.spans, strict=False):
        found += [f"{name}: {gram}" for gram in _grams(span, 2)]
        found += [f"{name} begins {span[0]}", f"{name} ends {span[-1]}"] if span else []
    last = [span[-1] for span in marked.spans if span]
    found.append(f"ends {' '.join(last)}")
    for number, words in enumerate(marked.between):
        grams = _grams(words, 3)
        found += [f"between {number}: {gram}" for gram in grams]
        found += [f"{order} between {number}: {gram}" for gram in grams]
        found.append(f"{order} between {number} whole: {' '.join(words[:LONGEST_BETWEEN])}")
        found.append(f"{order} distance {number}: {_rounded(len(words))}")
        found += [f"{order} after {number}.{place}: {word}" for place, word in enumerate(words[:NEIGHBOURS])]
        found += [
            f"{order} before {number}.{place}: {word}" for place, word in enumerate(words[: -NEIGHBOURS - 1 : -1])
        ]
    for side, words in (("left", marked.left[: -NEIGHBOURS - 1 : -1]), ("right", marked.right[:NEIGHBOURS])):
        found += [f"{prefix}{side} {place}: {word}" for place, word in enumerate(words) for prefix in ("", f"{order} ")]
    return found


def _is_open(text: str, mark: str) -> bool:
    """Whether the mark that closes this one stands once in the text, behind it."""
    closing = _closing(mark)
    return closing != mark and text.count(closing) == 1 and text.index(closing) > text.index(mark)


def _closing(mark: str) -> str:
    if mark[1].isalpha():
        return f"{mark[0]}/{mark[1:]}"
    return mark[::-1].translate(_MIRROR)


def _plain(text: str, marks: Marks) -> list[str]:
    for pair in marks:
        for mark in pair:
            text = text.replace(mark, " ")
    return words_of(text)


def _grams(words: list[str], longest: int) -> list[str]:
    return [
        " ".join(words[start : start + size])
        for size in range(1, longest + 1)
        for start in range(len(words) - size + 1)
    ]


def _rounded(distance: int) -> int:
    """Distances up to 3 as they are, then in steps of 4 up to 20."""
    return distance if distance < 4 else 4 * min(distance // 4, 5)
