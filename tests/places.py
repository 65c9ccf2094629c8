"""Names that have to stand in several places: where one was forgotten."""

import re
from collections.abc import Callable, Mapping, Set
from typing import Any

from tlm.cli.command import descriptions


def check_places(places: Mapping[str, tuple[Set[str], Set[str]]]) -> None:
    """Fail with all places at once of which the first set, what is needed there, has names that the second lacks."""
    forgotten = {place: sorted(needed - found) for place, (needed, found) in places.items() if needed - found}
    assert not forgotten, f"add these names to these places: {forgotten}"


def words_in(text: str) -> set[str]:
    """Words such as task-only."""
    return {*re.findall(r"[\w-]+", text)}


def in_help(documented: Callable[..., Any], parameter: str) -> set[str]:
    """The words that say what a parameter is."""
    return words_in(descriptions(documented)[parameter])
