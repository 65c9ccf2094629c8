"""The errors that users see: one sentence each, and an exit code. Also: how to word such a sentence.

A local run tells an error from a fault of the program by the name of this module, so errors of steps stand here.
"""

import difflib
import os
import re
import signal
from collections.abc import Iterable

NO_TORCH = (
    "neural networks need PyTorch, which is not installed here; install it with `make install`, or in "
    "a checkout `pip install '.[train]'`, or run the pipeline `shallow`, which has models without one"
)
# Characters that count as printable, but show nothing: fillers, variation selectors, tags.
BLANKS = (
    r"\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0e\uffa0\U0001bca0-\U0001bca3"
    r"\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_BLANK = re.compile(f"[{BLANKS}]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_PASSWORD = re.compile(r"(?<=://)(?:[^\s:/]*:\S*|[^/?#\s]*)@")  # the user and password of a URL
_UP_TO_AT = re.compile(r"(?<!\S)\S+@")  # the last of a word; what has none, as a hostile name, would take n² steps


class TlmError(Exception):
    """An error for users: one sentence that says what was found, what was expected, and what to do.

    User and password are removed from URLs in it (``https://…@host``), because errors are logged.

    Attributes:
        exit_code: With which the command line ends.
    """

    exit_code = 1

    def __init__(self, text: str) -> None:
        super().__init__(printable(_UP_TO_AT.sub(lambda word: _PASSWORD.sub("…@", word[0]), text)))


class InputError(TlmError):
    """An input, a setting or a server is wrong; repeating the command will not help until that is fixed."""

    exit_code = 2


class Damaged(InputError):
    """A published file is missing or was changed."""


class UnknownField(InputError):
    """A file lacks a field."""


class NothingLeft(InputError):
    """No passage was found for a task, the filters left none, or none has words to learn from."""


class Interrupted(TlmError):
    """Work was interrupted (disk full, store gone); repeating the command resumes it."""

    exit_code = 3


class Terminated(TlmError):
    """SIGTERM arrived: a snapshot was written, and repeating the command resumes the work.

    Attributes:
        by: Name of the signal, for messages.
    """

    exit_code = 143
    by = "SIGTERM"


class Cancelled(Terminated):
    """Ctrl-C (SIGINT) arrived: a snapshot was written, and repeating the command resumes the work."""

    exit_code = 130
    by = "Ctrl-C"


class HungUp(Terminated):
    """SIGHUP arrived, as where an SSH session is lost: a snapshot was written, and repeating resumes the work."""

    exit_code = 129
    by = "SIGHUP"


class Unread(TlmError):
    """The program that read stdout has ended, as `head` does. Commands end as SIGPIPE ends others: without a word."""

    exit_code = 128 + signal.SIGPIPE


STOPS: dict[int, type[Terminated]] = {signal.SIGTERM: Terminated, signal.SIGINT: Cancelled, signal.SIGHUP: HungUp}


def disk_full(where: str) -> str:
    """Say that the disk is full: where, if that is known, and what to do."""
    return f"no space left on the disk{where and f' ({where})'}; free some, then repeat"


def printable(text: str) -> str:
    """Return `text` as one line without control characters: line ends, escapes and bidi marks become \\n, \\x1b …

    Messages quote names of files, fields and labels, which may come from untrusted sources.
    """
    shown = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
    return _BLANK.sub(lambda found: found[0].encode("unicode_escape").decode(), shown)


def is_utf8(text: str) -> bool:
    """Whether a text can be written as UTF-8: it has no lone surrogate, which stands for a byte that is none."""
    return _SURROGATE.search(text) is None


def reason(error: Exception) -> str:
    """Return the first line of another library's error, or its type if it has no text, for use in a sentence."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


def in_pod() -> bool:
    """Whether this is a pod of Kubernetes, where users set secrets and config maps instead of variables."""
    return "KUBERNETES_SERVICE_HOST" in os.environ


def with_article(noun: str) -> str:
    """Return `noun` with its article (an index, a corpus); a plural such as hits has none."""
    if noun.endswith("s") and not noun.endswith("us"):
        return noun
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"


MOST_NAMED = 30


def nearest(word: str, known: Iterable[str]) -> str:
    """Return a hint for a misspelt name: ``; did you mean 'x'?``, or else the list of known names."""
    names = sorted(known)
    more = f" and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
    return did_you_mean(word, names) or f"; known are {', '.join(names[:MOST_NAMED]) or 'none'}{more}"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ``; did you mean 'x'?`` if one of the known names is similar, else ""."""
    close = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean '{close[0]}'?" if close else ""
