"""Text normalisation: a clean form, a case-folded form for equality, a form for comparisons, and tokens."""

import itertools
import re
import unicodedata
from collections.abc import Sequence

import regex

# C0, DEL and C1 controls: not text, but they break equality and tokenizers
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f]")
# Scripts written without spaces between words: each character is a token
UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_TOKEN = regex.compile(rf"(?!\p{{M}})(?:[{UNSPACED}]\p{{M}}*|[\p{{L}}\p{{N}}\p{{M}}--[{UNSPACED}]]+)", regex.V1)
# What stands inside a word behind a letter: vowel signs and other marks, and the joiners of Indic and Persian spelling
MARKS = r"\p{M}\p{Join_Control}"
_UNSPACED = regex.compile(rf"[{UNSPACED}]", regex.V1)
_NOT_PLAIN = regex.compile(rf"[{MARKS}{UNSPACED}]", regex.V1)
MANY_MARKS = 500
_MANY_MARKS = regex.compile(rf"\p{{M}}{{{MANY_MARKS},}}")
_ASCII_TOKEN = re.compile(r"[a-z0-9]+")
# Soft hyphens, joiners, zero-width spaces, and variation selectors (which make ❤ red)
_INVISIBLE = regex.compile(r"[\p{Cf}\p{Variation_Selector}]+")
# <e1> or [E1], and </e1>, [/E1] or [E1/]: the marks around a span, and other tags, which may have attributes
_MARK = re.compile(r"([<\[])(/?)([A-Za-z][\w:.-]{0,31})(?:\s[^<>\[\]]{0,100}?)?(/?)([>\]])")
_WORD = r"[\p{L}\p{N}\p{M}]"
_ENDS_IN_WORD, _BEGINS_WITH_WORD = regex.compile(rf"{_WORD}\Z"), regex.compile(_WORD)
# Marks without letters are no tokens, but they would cut a word
_WITHIN_WORD = regex.compile(rf"(?<={_WORD})(?:\[\[|\]\]|<<|>>)(?={_WORD})")


def normalise(text: str) -> str:
    """Return a text in Unicode NFC, with control characters and white space as single spaces, stripped at the ends.

    Idempotent. Case, punctuation and invisible format characters (joiners, soft hyphens) are kept.
    """
    # White space other than the space is unprintable, like controls: most texts need no more than this check
    if not text.isprintable() or "  " in text or text[:1] == " " or text[-1:] == " ":
        text = " ".join(_CONTROLS.sub(" ", text).split())
    return text if text.isascii() else _nfc(text)


def fold(text: str) -> str:
    """Return the form in which texts are compared: normalised and case-folded."""
    folded = normalise(text).casefold()
    return folded if folded.isascii() else _nfc(folded)  # casefolding may decompose ('ǰ')


def _nfc(text: str) -> str:
    # `unicodedata` takes n² steps to sort n marks of one character: hours for a file of only such marks
    if any(unicodedata.category(letter)[0] == "M" for letter in text[::MANY_MARKS]):
        text = _MANY_MARKS.sub(_in_order, text)
    return unicodedata.normalize("NFC", text)


def _in_order(marks: re.Match[str]) -> str:
    """Decompose marks and put them in canonical order: a stable sort by combining class between starters."""
    decomposed = "".join(unicodedata.normalize("NFD", mark) for mark in marks[0])
    runs = itertools.groupby(decomposed, key=lambda mark: unicodedata.combining(mark) > 0)
    return "".join(itertools.chain.from_iterable(sorted(run, key=unicodedata.combining) for _, run in runs))


def compared(text: str) -> str:
    """Return a text as it is compared with others: without marks around spans, and without invisible characters.

    Marks are ``<e1> … </e1>``, ``[E1] … [/E1]`` and whatever else opens and closes like that. Those without letters,
    such as ``[[ … ]]``, stay, as `tokens` ignores them, but not within a word. Idempotent.
    """
    if not text.isascii():
        text = _INVISIBLE.sub("", text)
    if any(mark in text for mark in ("[[", "]]", "<<", ">>")):
        text = _WITHIN_WORD.sub("", text)
    return _without_marks(text) if any(mark in text for mark in ("</", "[/", "/>", "/]")) else text


def _without_marks(text: str) -> str:
    opened, closed = set[str](), set[str]()
    for mark in _MARK.finditer(text):
        name = mark[1] + mark[3]
        if not (mark[2] or mark[4]):
            opened.add(name)
        elif name in opened:
            closed.add(name)

    def without(mark: re.Match[str]) -> str:
        if mark[1] + mark[3] not in closed:
            return mark[0]
        within = _ENDS_IN_WORD.search(text, max(0, mark.start() - 1), mark.start())
        return "" if within and _BEGINS_WITH_WORD.match(text, mark.end()) else " "

    return _MARK.sub(without, text)


def tokens(text: str) -> list[str]:
    """Return the lower-cased runs of letters and digits, in order, without markers and punctuation.

    In scripts without spaces between words (Han, kana, Thai, Lao, Khmer, Burmese) each character is a token.
    """
    if text.isascii():
        return _ASCII_TOKEN.findall(text.lower())
    found: list[str] = _TOKEN.findall(fold(text))
    return found


def word_pattern(more: str = "") -> str:
    """A pattern for `regex.V1` of a word: letters and digits with their marks; of a script without spaces, one letter.

    Args:
        more: Other characters that words have, as in a character class.
    """
    unspaced = rf"[\p{{L}}\p{{N}}&&[{UNSPACED}]]\p{{M}}*"
    first, others = (rf"[\p{{L}}\p{{N}}{marks}{more}--[{UNSPACED}]]" for marks in ("", MARKS))
    return rf"(?:{unspaced}|{first}{others}*)"


def is_plain(text: str) -> bool:
    """Whether a text has neither marks nor scripts without spaces, so that ``\\w+`` finds its words, and faster."""
    return text.isascii() or not _NOT_PLAIN.search(text)


def is_unspaced(word: str) -> bool:
    """Whether a word is a letter of a script without spaces."""
    return not word.isascii() and bool(_UNSPACED.match(word))


def with_pairs(words: Sequence[str]) -> Sequence[str]:
    """Words, and behind each letter of a script without spaces its pair with the next such letter."""
    if is_plain("".join(words)):
        return words
    found = []
    for word, following in itertools.pairwise([*words, ""]):
        found.append(word)
        if is_unspaced(word) and is_unspaced(following):
            found.append(word + following)
    return found


def csv_separator(head: str) -> str:
    """The separator of a CSV file with this first line: a semicolon where spreadsheets write decimal commas."""
    bare = re.sub(r'"[^"]*"', "", head)
    return ";" if bare.count(";") > bare.count(",") else ","
