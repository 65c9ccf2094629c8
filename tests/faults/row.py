"""A line of the table of faults."""

from pathlib import Path

HOME = Path(__file__).parents[2]

Row = dict[str, str | int]


def row(what: str, tried: int, survived: int) -> Row:
    """So many were tried, so many ended as promised; the rest is lost."""
    return {"what": what, "tried": tried, "survived": survived}
