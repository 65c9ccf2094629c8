"""How what came out compares with the paper: cell by cell at its scales, by the order of the settings elsewhere."""

from collections import Counter
from collections.abc import Sequence
from math import hypot
from typing import Any, NamedTuple

from tlm.evaluation.score.intervals import Arm, difference
from tlm.paper.examples import arm_of, summed
from tlm.paper.plan import ByKey
from tlm.paper.tables import Cell

OK, NEAR, MISS, NOT_RUN = "OK", "near", "miss", "not run"
SHOWN, NOT_SHOWN, REVERSED, OPEN = "shown", "not shown", "reversed", "open"
NO_CLAIM, SEEDS_ONLY = "no claim", "seeds only"
NEAR_TIMES = 2  # near is within so many times what OK is


class Outcome(NamedTuple):
    """A cell, the scores in hundredths of its finished runs (`summed`), its verdict at the paper's scales, predictions.

    OK: the mean is within one published standard deviation (where none or 0 is printed, the table's tolerance) of
    the published one; near: within two; else miss. "" at other scales. `arm` is None where nothing was run, or runs
    were kept without their predictions.
    """

    cell: Cell
    scores: dict[str, Any]
    verdict: str
    arm: Arm | None = None


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
        low: Of the 95 % interval of the difference over seeds and examples, corrected for the number of comparisons
            in the table; None where seeds are too few or predictions were not kept.
        high: Of it.
        verdict: shown, not shown (the interval includes 0) or reversed; open (too few seeds); seeds only (runs were
            kept without their predictions); no claim; not run.
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
        runs = [run for _, run in sorted(results.get(cell.key, {}).items())]
        scores, arm = summed(runs, cell.split, cell.metric), arm_of(runs, cell.split, cell.metric)
        told.append(Outcome(cell, scores, _verdict(cell, scores["mean"], tolerance) if judged else "", arm))
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
    settled = []
    for (chosen, other), own in zip(pairs, claims, strict=True):
        like = {
            claim
            for (a, b), claim in zip(pairs, claims, strict=True)
            if claim is not None and (a.cell.row, b.cell.row) == (chosen.cell.row, other.cell.row)
        }
        settled.append(own if own is not None else like.pop() if len(like) == 1 else 0)
    judged = sum(bool(claim and a.arm and b.arm) for (a, b), claim in zip(pairs, settled, strict=True))
    return [_compared(*pair, claim, judged) for pair, claim in zip(pairs, settled, strict=True)]


def _claim(chosen: Cell, other: Cell) -> int | None:
    if chosen.published is None or other.published is None:
        return None
    ahead = chosen.published[0] - other.published[0]
    noise = hypot(chosen.published[1] or 0.0, other.published[1] or 0.0) or chosen.tolerance
    return 0 if abs(ahead) <= noise else 1 if ahead > 0 else -1


def _compared(chosen: Outcome, other: Outcome, claim: int, judged: int) -> Comparison:
    """The two rows, where `judged` comparisons of the table can be decided at all."""
    a, b = chosen.cell.published, other.cell.published
    paper = a[0] - b[0] if a and b else None
    mean, low, high, verdict = _difference(chosen, other, claim, judged)
    return Comparison(chosen.cell.column, chosen.cell.row, other.cell.row, claim, paper, mean, low, high, verdict)


def _difference(
    chosen: Outcome, other: Outcome, claim: int, judged: int
) -> tuple[float | None, float | None, float | None, str]:
    """Difference in hundredths, the ends of its interval, the verdict."""
    if chosen.scores["mean"] is None or other.scores["mean"] is None:
        return None, None, None, NOT_RUN
    mean = chosen.scores["mean"] - other.scores["mean"]
    if chosen.arm is None or other.arm is None or not _comparable(chosen.arm, other.arm):
        return mean, None, None, SEEDS_ONLY if claim else NO_CLAIM
    found = difference(chosen.arm, other.arm, max(1, judged))
    if found.low is None or found.high is None:
        return mean, None, None, OPEN if claim else NO_CLAIM
    ours = {claim: SHOWN, -claim: REVERSED}.get(found.sign, NOT_SHOWN) if claim else NO_CLAIM
    return mean, 100 * found.low, 100 * found.high, ours


def _comparable(first: Arm, second: Arm) -> bool:
    return all(one.same_examples(other) for one, other in zip(first.splits, second.splits, strict=True))


def tally(verdicts: Sequence[str]) -> str:
    """How often there is which verdict: ``3 OK, 1 near, 12 not run``."""
    order = (OK, NEAR, MISS, SHOWN, NOT_SHOWN, REVERSED, OPEN, SEEDS_ONLY, NO_CLAIM, NOT_RUN)
    counted = Counter(verdicts)
    return ", ".join(f"{counted[name]} {name}" for name in order if counted[name])
