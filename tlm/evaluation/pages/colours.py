"""Colours of pages and plots by role, for light and dark mode."""

import base64
from collections.abc import Iterable
from itertools import cycle

INK, MUTED, RULE = "#010203", "#040506", "#070809"


COLOURS = {  # role: (marker, light, dark)
    "ink": (INK, "#1f2024", "#e8e6e1"),
    "muted": (MUTED, "#6f6f76", "#9d9ca3"),
    "rule": (RULE, "#dedbd5", "#37383f"),
    "baseline": ("#0a0b0c", "#77757f", "#a3a1ab"),
    "task-only": ("#0d0e0f", "#c77700", "#f0b35a"),
    "random": ("#101112", "#2f7fc1", "#7ab8ee"),
    "bm25": ("#131415", "#00775a", "#3ccba0"),
    "other-0": ("#161718", "#a2417f", "#e48fc6"),
    "other-1": ("#191a1b", "#7a5c3e", "#c9a683"),
    "other-2": ("#1c1d1e", "#5b53b8", "#a7a1f0"),
    "other-3": ("#1f2021", "#a33b31", "#f08d83"),
    "other-4": ("#222324", "#5f7a12", "#b4cf5a"),
}


OWN_ROLES = ("baseline", "task-only", "random", "bm25")  # arms with a colour of their own


SPARE_ROLES = tuple(f"other-{number}" for number in range(5))  # the colours of all others, in turn


def roles(arms: Iterable[str]) -> list[str]:
    """Colour roles: the first of an arm in `OWN_ROLES` gets the arm's own colour, all others a spare one."""
    found: list[str] = []
    spare = cycle(SPARE_ROLES)
    for arm in arms:
        found.append(arm if arm in OWN_ROLES and arm not in found else next(spare))
    return found


def css_colours(mode: int) -> str:
    """The colours as CSS variables: mode 1 is light, 2 is dark."""
    return "".join(f"--{role}:{tones[mode]};" for role, tones in COLOURS.items())


def data_uri(drawn: str) -> str:
    """An SVG as the data URI of an image in a page."""
    return "data:image/svg+xml;base64," + base64.b64encode(drawn.encode()).decode()
