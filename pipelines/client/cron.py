"""Cron lines as Kubeflow Pipelines reads them: six fields, seconds first."""

import re

from tlm.errors import InputError

_FIELDS = (
    ("second", 0, 59),
    ("minute", 0, 59),
    ("hour", 0, 23),
    ("day of month", 1, 31),
    ("month", 1, 12),
    ("weekday", 0, 6),
)
_NAMES = {
    "month": ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"),
    "weekday": ("sun", "mon", "tue", "wed", "thu", "fri", "sat"),
}
_WORDS = ("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly")
_EVERY = re.compile(r"@every (\d+(\.\d+)?[hms])+")
_PART = re.compile(r"(?:[*?]|(?P<first>\w+)(?:-(?P<last>\w+))?)(?:/(?P<step>\d+))?")


def checked(line: str) -> str:
    """The line with six fields.

    One of five fields gets a 0 for the seconds: KFP would read it as seconds to month, and start at another time.

    Raises:
        InputError: Kubeflow could not read it.
    """
    if line in _WORDS or _EVERY.fullmatch(line):
        return line
    fields = line.split()
    if len(fields) == 5:
        fields = ["0", *fields]
    if len(fields) != 6:
        raise InputError(
            f"cron line '{line}' has {len(fields)} fields, expected six (second, minute, hour, day, month, weekday),"
            " such as '0 0 3 * * 1' for Mondays at three"
        )
    for field, (name, least, most) in zip(fields, _FIELDS, strict=True):
        for part in field.split(","):
            if not _valid(part, name, least, most):
                raise InputError(f"cron line '{line}': '{part}' is no {name}: expected {least} to {most}, *, a-b, */n")
    return " ".join(fields)


def _valid(part: str, name: str, least: int, most: int) -> bool:
    match = _PART.fullmatch(part)
    if not match or match["step"] == "0":
        return False
    first = _number(match["first"], name) if match["first"] else least
    last = _number(match["last"], name) if match["last"] else first
    return first is not None and last is not None and least <= first <= last <= most


def _number(text: str, name: str) -> int | None:
    names = _NAMES.get(name, ())
    if text.lower() in names:
        return names.index(text.lower()) + (name == "month")
    return int(text) if text.isascii() and text.isdigit() else None
