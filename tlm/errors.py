"""The errors that people see: one sentence each, and the exit code that goes with it."""

import difflib
import re
from collections.abc import Iterable

_PASSWORD = re.compile(r"(?<=://)(?:[^/?#\s]*|[^\s:]*:\S*)@")  # what stands in a URL before its host


class TlmError(Exception):
    """An error for people: its text is one sentence that says what was found, what was expected, what to do.

    A URL in it loses its password, whoever wrote the sentence: errors come into logs.
    """

    exit_code = 1

    def __init__(self, text: str) -> None:
        super().__init__(without_password(text))


class InputError(TlmError):
    """Input, setting or server at fault; nothing was begun, or all that was begun can be resumed."""

    exit_code = 2


class Damaged(InputError):
    """A published file is missing, or is not what was published."""


class Interrupted(TlmError):
    """Work stopped half-way (disk full, store gone) and goes on where it was when the command is repeated."""

    exit_code = 3


class Terminated(TlmError):
    """SIGTERM arrived: a checkpoint was written, and the command can be repeated."""

    exit_code = 143
    by = "SIGTERM"


class Cancelled(Terminated):
    """Ctrl-C (SIGINT): otherwise as Terminated."""

    exit_code = 130
    by = "Ctrl-C"


def without_password(text: str) -> str:
    """`text` with URLs as ``https://…@host`` where they tell who we are there."""
    return _PASSWORD.sub("…@", text)


def printable(text: str) -> str:
    """`text` as one line that no terminal takes for a command: line ends, escapes and bidi marks stand as \\n, \\x1b …

    What strangers wrote (names of files and fields, labels) comes into sentences for people.
    """
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def reason(error: Exception) -> str:
    """What another library's error says, as part of a sentence: its first line, or its kind where it says nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


def with_article(noun: str) -> str:
    """`noun` with its article: an index, a corpus; none before a plural such as hits."""
    if noun.endswith("s") and not noun.endswith("us"):
        return noun
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint for a misspelt name: ``; did you mean 'x'?`` or the list of what there is."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1)
    return f"; did you mean '{close[0]}'?" if close else f"; known are {', '.join(names) or 'none'}"


def refuse_negative(**numbers: float) -> None:
    """Raise InputError for a number below 0."""
    for name, value in numbers.items():
        if value < 0:
            raise InputError(f"{name} is {value}; expected 0 or more")
