"""Spans that a task marks in its texts: cut out, and their features for a linear model."""

from dataclasses import dataclass

from tlm.data.marks import Marks, places
from tlm.shallow.words import words_of

NEIGHBOURS = 3  # words beside a span that are features
LONGEST_BETWEEN = 8  # words between two spans that are one feature as a whole


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


def parts(text: str, marks: Marks) -> Marked:
    """Cut a text at its marks. A kind of span whose marks the text lacks is empty."""
    found = places(text, marks)
    cuts = [0, *(cut for *place, _ in found for cut in place), len(text)]
    pieces = [_plain(text[start:stop], marks) for start, stop in zip(cuts[::2], cuts[1::2], strict=True)]
    inside = dict(zip((kind for *_, kind in found), pieces[1::2], strict=True))
    return Marked(
        whole=_plain(text, marks),
        spans=[inside.get(kind, []) for kind in range(len(marks))],
        order="".join("ABCD"[kind] for *_, kind in found),
        between=pieces[2:-1:2],
        left=pieces[0],
        right=pieces[-1] if found else [],
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
