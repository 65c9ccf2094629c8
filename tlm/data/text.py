"""What counts as the same text: one clean form, one folded form for equality, one list of tokens for overlap."""

import itertools
import re
import unicodedata

import regex

# C0, DEL and C1 controls: they carry no text, but hide equality and upset tokenizers
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f]")
# Scripts written without spaces between words: there, each character is a token
UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_TOKEN = regex.compile(rf"[{UNSPACED}--\p{{M}}]\p{{M}}*|[\p{{L}}\p{{N}}\p{{M}}--[{UNSPACED}]]+", regex.V1)
MANY_MARKS = 500
_MANY_MARKS = regex.compile(rf"\p{{M}}{{{MANY_MARKS},}}")
_ASCII_TOKEN = re.compile(r"[a-z0-9]+")


def normalise(text: str) -> str:
    """The clean form of a text: Unicode NFC, control characters and all white space as single spaces, none at the ends.

    Idempotent. Case, punctuation and invisible format characters (joiners, soft hyphens) stay.
    """
    # All white space but the space itself is unprintable, as controls are: most texts need no more than a look
    if not text.isprintable() or "  " in text or text[:1] == " " or text[-1:] == " ":
        text = " ".join(_CONTROLS.sub(" ", text).split())
    return text if text.isascii() else _nfc(text)


def fold(text: str) -> str:
    """The form by which two texts are equal: `normalise`, without regard to case."""
    return fold_clean(normalise(text))


def fold_clean(text: str) -> str:
    """`fold` of a text that is normalised already: saves a third of the time where there are millions."""
    folded = text.casefold()
    return folded if folded.isascii() else _nfc(folded)  # casefolding may decompose ('ǰ')


def _nfc(text: str) -> str:
    # Putting n marks of one letter in order takes `unicodedata` n² steps, hours for a file of nothing else
    if any(unicodedata.category(letter)[0] == "M" for letter in text[::MANY_MARKS]):
        text = _MANY_MARKS.sub(_in_order, text)
    return text if unicodedata.is_normalized("NFC", text) else unicodedata.normalize("NFC", text)


def _in_order(marks: re.Match[str]) -> str:
    """The same marks decomposed and in canonical order: a stable sort, by class, of what stands between starters."""
    decomposed = "".join(unicodedata.normalize("NFD", mark) for mark in marks[0])
    runs = itertools.groupby(decomposed, key=lambda mark: unicodedata.combining(mark) > 0)
    return "".join(itertools.chain.from_iterable(sorted(run, key=unicodedata.combining) for _, run in runs))


def tokens(text: str) -> list[str]:
    """Lower-cased runs of letters and digits, in order: what is left when markers and punctuation are ignored.

    In scripts without spaces between words (Han, kana, Thai, Lao, Khmer, Burmese) each letter is a token.
    """
    if text.isascii():
        return _ASCII_TOKEN.findall(text.lower())
    found: list[str] = _TOKEN.findall(fold(text))
    return found
