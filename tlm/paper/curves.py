"""Curves: runs of the same models at several values of one quantity, such as the share of a corpus on topic."""

from typing import Any

from tlm.errors import InputError
from tlm.paper.tables import data

SCALE = "curve"  # stands where tables have their scale


def curves() -> dict[str, Any]:
    """The curves by name, as in ``curves.toml``."""
    return data("curves.toml")


def key_of(curve: str, task: str, arm: str, at: float) -> str:
    """The key of a point: runs that differ in their draw only have the same one."""
    return f"{curve}-{task}-{arm.replace(' ', '')}-at-{at:g}"


def place_of(curve: str, task: str, arm: str, at: float) -> dict[str, Any]:
    """Key and cell of a point, for its result.

    Raises:
        InputError: the value is not above 0.
    """
    if at <= 0:
        raise InputError(f"at is {at:g}; give the value on the axis of {curve}: {curves()[curve]['axis']}")
    cell = {"table": curve, "scale": SCALE, "column": task, "row": arm, "at": at}
    return {"key": key_of(curve, task, arm, at), "cell": cell}
