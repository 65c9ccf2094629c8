"""The comparisons of a report: few, and chosen without a look at test, because each widens the others' intervals."""

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any, NamedTuple

from tlm.evaluation.mixture.kinds import ENCODER, LINEAR, NETWORKS, STUDENT
from tlm.evaluation.score.imported import IMPORTED

Summary = dict[str, Any]  # of `Group.summary`
Difference = dict[str, Any]  # of `tlm.evaluation.score.intervals.compared`
AHEAD = "ahead of the linear model?"
TEXT = "what was its text worth?"
NETWORK = "what was the network worth?"
ARMS = "which arm is ahead?"
OTHERS = "ahead of another model?"
TEACHER = "as good as its teacher?"


class Planned(NamedTuple):
    """Two groups to compare on test, by name, and the question that this answers about the first."""

    first: str
    second: str
    question: str


def planned(groups: list[Summary]) -> list[Planned]:
    """The pairs to compare, each once.

    Args:
        groups: Summaries of the groups that can be compared.
    """
    pairs: dict[frozenset[str], Planned] = {}
    for first, second, question in _questions(groups):
        if first is not second:
            names = first["name"], second["name"]
            pairs.setdefault(frozenset(names), Planned(*names, question))
    return list(pairs.values())


def best_on_dev(groups: list[Summary]) -> Summary:
    """The group with the highest mean score on dev; test scores choose nothing."""
    return max(groups, key=lambda group: group["dev"]["mean"])


def challenger(groups: list[Summary]) -> Summary:
    """What is held against the linear model: the best on dev of the models that have an interval, else of all.

    The linear model and imported predictions only count where there is nothing else.
    """
    others = [group for group in groups if group["kind"] != LINEAR] or groups
    trained = [group for group in others if group["kind"] != IMPORTED] or others
    return best_on_dev([group for group in trained if group["test"]["low"] is not None] or trained)


def recommended(groups: list[Summary], differences: Sequence[Difference]) -> tuple[Summary, Difference | None]:
    """The model to use, and how it differs from the one that it was held against; None if there is no other.

    It is the challenger, unless an interval says that it is not shown to be ahead of the linear model.

    Args:
        groups: Summaries of the groups that can be compared.
        differences: The differences on test of their `planned` pairs.
    """
    best, linear = challenger(groups), linear_of(groups)
    names = best["name"], linear["name"] if linear is not None else ""
    found = next((one for one in differences if (one["first"], one["second"]) == names), None)
    behind = linear is not None and found is not None and found["low"] is not None and found["ahead"] != best["name"]
    return linear if linear is not None and behind else best, found


def linear_of(groups: list[Summary]) -> Summary | None:
    """The linear model, if it is among the groups."""
    return next((group for group in groups if group["kind"] == LINEAR), None)


def _questions(groups: list[Summary]) -> Iterator[tuple[Summary, Summary, str]]:
    best = challenger(groups)
    encoders = [group for group in groups if group["kind"] == ENCODER]
    linear = linear_of(groups)
    if linear is not None:
        yield best, linear, AHEAD
        if encoders:
            yield best_on_dev(encoders), linear, AHEAD
    for fetched in (group for group in groups if group["kind"] == best["kind"] and group["text"] == "bm25"):
        for other in groups:
            if other["kind"] == best["kind"] and other["text"] in ("random", "task-only"):
                yield fetched, other, TEXT
    with_network = [group for group in groups if any(one in group["kind"] for one in NETWORKS)]
    without = [group for group in groups if group not in with_network and group["kind"] != IMPORTED]
    if with_network and without:
        yield best_on_dev(with_network), best_on_dev(without), NETWORK
    for first, second in combinations(encoders, 2):
        yield first, second, ARMS
    for one in groups:
        if one["kind"] == IMPORTED:
            yield best, one, OTHERS
    for student in (group for group in groups if group["kind"] == STUDENT):
        for teacher in groups:
            if set(student["taught_by"]) & set(teacher["models"]):
                yield student, teacher, TEACHER
