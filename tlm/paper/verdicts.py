"""How what came out compares with the paper: cell by cell at its scales, by the order of the settings elsewhere."""

from collections import Counter
from collections.abc import Sequence
from math import floor, hypot
from typing import Any, NamedTuple

from tlm.evaluation.runs import CONFIDENCE, LEAST_SEEDS, spread
from tlm.evaluation.student import t_quantile
from tlm.paper.plan import ByKey
from tlm.paper.tables import Cell

OK, NEAR, MISS, NOT_RUN = "OK", "near", "miss", "not run"
SHOWN, NOT_SHOWN, REVERSED, OPEN = "shown", "not shown", "reversed", "open"
NO_CLAIM = "no claim"
NEAR_TIMES = 2  # near is within so many times what OK is


class Outcome(NamedTuple):
    """A cell, and the scores in hundredths of its finished runs: `spread` of them; its verdict at the paper's scales.

    OK: the mean is within one published standard deviation (where none or 0 is printed, the table's tolerance) of
    the published one; near: within two; else miss. "" at other scales.
    """

    cell: Cell
    scores: dict[str, Any]
    verdict: str


class Comparison(NamedTuple):
    """What the paper chose against another row of the table, on one task.

    Attributes:
        task: Column of the table.
        chosen: Row that the paper chose.
        other: The row beside it.
        claim: +1 if the paper has `chosen` ahead by more than both deviations together, -1 if behind, 0 if neither.
            A task that the paper does not have gets the claim that all of its own tasks share.
        paper: By how much, in hundredths; None for such a task.
        mean: Ours.
        low: Of Welch's 95 % interval for the difference of the means over seeds; None where seeds are too few.
        high: Of it.
        verdict: shown, not shown (the interval includes 0) or reversed; open (too few seeds); no claim; not run.
    """

    task: str
    chosen: str
    other: str
    claim: int
    paper: float | None
    mean: float | None
    low: float | None
    high: float | None
    verdict: str


def outcomes(found: Sequence[Cell], results: ByKey, *, judged: bool, tolerance: float = 0.0) -> list[Outcome]:
    """The cells with what came out; `judged` at the paper's scales, with `tolerance` (hundredths) as least room."""
    told = []
    for cell in found:
        runs = results.get(cell.key, {})
        scores = spread(runs[seed].score(cell.split, cell.metric) for seed in sorted(runs))
        told.append(Outcome(cell, scores, _verdict(cell, scores["mean"], tolerance) if judged else ""))
    return told


def _verdict(cell: Cell, mean: float | None, tolerance: float) -> str:
    if mean is None or cell.published is None:
        return NOT_RUN
    published, deviation = cell.published
    room = max(deviation or cell.tolerance, tolerance)
    distance = round(abs(mean - published), 9)  # of numbers printed with two digits: 0.15 is not more than 0.15
    return OK if distance <= room else NEAR if distance <= NEAR_TIMES * room else MISS


def comparisons(told: Sequence[Outcome]) -> list[Comparison]:
    """For each task, what the paper chose against each other row, in the order of the table."""
    pairs = [
        (chosen, other)
        for chosen in told
        for other in told
        if chosen.cell.chosen and not other.cell.chosen and other.cell.column == chosen.cell.column
    ]
    claims = [_claim(chosen.cell, other.cell) for chosen, other in pairs]
    found = []
    for (chosen, other), own in zip(pairs, claims, strict=True):
        like = {
            claim
            for (a, b), claim in zip(pairs, claims, strict=True)
            if claim is not None and (a.cell.row, b.cell.row) == (chosen.cell.row, other.cell.row)
        }
        claim = own if own is not None else like.pop() if len(like) == 1 else 0
        found.append(_compared(chosen, other, claim))
    return found


def _claim(chosen: Cell, other: Cell) -> int | None:
    if chosen.published is None or other.published is None:
        return None
    ahead = chosen.published[0] - other.published[0]
    noise = hypot(chosen.published[1] or 0.0, other.published[1] or 0.0) or chosen.tolerance
    return 0 if abs(ahead) <= noise else 1 if ahead > 0 else -1


def _compared(chosen: Outcome, other: Outcome, claim: int) -> Comparison:
    a, b = chosen.cell.published, other.cell.published
    mean, low, high = difference(chosen.scores["values"], other.scores["values"])
    if mean is None:
        verdict = NOT_RUN
    elif claim == 0:
        verdict = NO_CLAIM
    elif low is None or high is None:
        verdict = OPEN
    else:
        ours = 1 if low > 0 else -1 if high < 0 else 0
        verdict = SHOWN if ours == claim else REVERSED if ours == -claim else NOT_SHOWN
    paper = a[0] - b[0] if a and b else None
    names = (chosen.cell.column, chosen.cell.row, other.cell.row)
    return Comparison(*names, claim, paper, mean, low, high, verdict)


def difference(a: Sequence[float], b: Sequence[float]) -> tuple[float | None, float | None, float | None]:
    """Difference of two means and Welch's 95 % interval for it (degrees of freedom rounded down).

    None where a side is empty; without an interval where one has fewer than `LEAST_SEEDS` values.
    """
    one, two = spread(a), spread(b)
    if one["mean"] is None or two["mean"] is None:
        return None, None, None
    mean = one["mean"] - two["mean"]
    if min(len(a), len(b)) < LEAST_SEEDS:
        return mean, None, None
    first, second = one["std"] ** 2 / len(a), two["std"] ** 2 / len(b)
    if first + second == 0:
        return mean, mean, mean
    freedom = (first + second) ** 2 / (first**2 / (len(a) - 1) + second**2 / (len(b) - 1))
    half = t_quantile(CONFIDENCE, floor(freedom + 1e-9)) * (first + second) ** 0.5
    return mean, mean - half, mean + half


def tally(verdicts: Sequence[str]) -> str:
    """How often there is which verdict: ``3 OK, 1 near, 12 not run``."""
    order = (OK, NEAR, MISS, SHOWN, NOT_SHOWN, REVERSED, OPEN, NO_CLAIM, NOT_RUN)
    counted = Counter(verdicts)
    return ", ".join(f"{counted[name]} {name}" for name in order if counted[name])
