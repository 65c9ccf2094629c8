"""How results compare with the paper: cell by cell at its scales, by the order of the settings elsewhere."""

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
NEAR_TIMES = 2  # "near" allows this multiple of the distance that "OK" allows


class Outcome(NamedTuple):
    """A cell with its results.

    Attributes:
        cell: The cell.
        scores: Scores of its finished runs in hundredths, as `summed` returns them.
        verdict: At the paper's scales OK if the mean is within one published standard deviation of the published mean
            (within the table's tolerance if the deviation is not printed or 0), near if within two, else miss; "" at
            other scales.
        arm: The predictions; None if nothing was run, or runs were kept without their predictions.
    """

    cell: Cell
    scores: dict[str, Any]
    verdict: str
    arm: Arm | None = None


class Comparison(NamedTuple):
    """The row that the paper chose for a task and another row of the table.

    Attributes:
        task: Column of the table.
        chosen: The row that the paper chose.
        other: The row that it is compared with.
        claim: +1 if the paper has `chosen` ahead by more than both deviations together, -1 if behind, else 0. A task
            that the paper does not have gets the claim that all of the paper's tasks share.
        paper: The paper's difference in hundredths; None for such a task.
        mean: Our difference in hundredths.
        low: Lower end of its 95 % interval over seeds and examples, corrected for the number of comparisons in the
            table; None if there are too few seeds or predictions were not kept.
        high: Upper end of the interval.
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
    """The cells with their results; `judged` at the paper's scales, with a tolerance of at least `tolerance`."""
    made = []
    for cell in found:
        runs = [*results.get(cell.key, {}).values()]
        scores, arm = summed(runs, cell.split, cell.metric), arm_of(runs, cell.split, cell.metric)
        made.append(Outcome(cell, scores, _verdict(cell, scores["mean"], tolerance) if judged else "", arm))
    return made


def _verdict(cell: Cell, mean: float | None, tolerance: float) -> str:
    if mean is None or cell.published is None:
        return NOT_RUN
    published, deviation = cell.published
    allowed = max(deviation or cell.tolerance, tolerance)
    distance = round(abs(mean - published), 9)  # both have two decimals: 0.15 is not more than 0.15
    return OK if distance <= allowed else NEAR if distance <= NEAR_TIMES * allowed else MISS


def comparisons(found: Sequence[Outcome]) -> list[Comparison]:
    """For each task, the row that the paper chose against each other row, in the order of the table."""
    pairs = [
        (chosen, other)
        for chosen in found
        for other in found
        if chosen.cell.chosen and not other.cell.chosen and other.cell.column == chosen.cell.column
    ]
    published = [(a.cell.row, b.cell.row, _published_claim(a.cell, b.cell)) for a, b in pairs]
    claims: list[int] = []
    for chosen, other, claim in published:
        shared = {one for *rows, one in published if rows == [chosen, other]} - {None}
        (agreed,) = shared if len(shared) == 1 else {0}
        claims.append(claim if claim is not None else agreed or 0)
    judged = sum(bool(claim and a.arm and b.arm) for (a, b), claim in zip(pairs, claims, strict=True))
    return [_compared(*pair, claim, max(1, judged)) for pair, claim in zip(pairs, claims, strict=True)]


def _published_claim(chosen: Cell, other: Cell) -> int | None:
    if chosen.published is None or other.published is None:
        return None
    ahead = chosen.published[0] - other.published[0]
    noise = hypot(chosen.published[1] or 0.0, other.published[1] or 0.0) or chosen.tolerance
    return 0 if abs(ahead) <= noise else 1 if ahead > 0 else -1


def _compared(chosen: Outcome, other: Outcome, claim: int, judged: int) -> Comparison:
    """Compare two rows; `judged` is the number of comparisons in the table that can be decided."""
    ours, theirs = chosen.cell.published, other.cell.published
    paper = ours[0] - theirs[0] if ours and theirs else None
    mean = low = high = None
    if chosen.scores["mean"] is None or other.scores["mean"] is None:
        verdict = NOT_RUN
    else:
        mean = chosen.scores["mean"] - other.scores["mean"]
        verdict = SEEDS_ONLY if claim else NO_CLAIM
        if chosen.arm and other.arm and chosen.arm.splits[0].same_examples(other.arm.splits[0]):
            found = difference(chosen.arm, other.arm, judged)
            if found.low is None or found.high is None:
                verdict = OPEN if claim else NO_CLAIM
            else:
                low, high = 100 * found.low, 100 * found.high
                verdict = {claim: SHOWN, -claim: REVERSED}.get(found.sign, NOT_SHOWN) if claim else NO_CLAIM
    return Comparison(chosen.cell.column, chosen.cell.row, other.cell.row, claim, paper, mean, low, high, verdict)


def tally(verdicts: Sequence[str]) -> str:
    """Count the verdicts: ``3 OK, 1 near, 12 not run``."""
    order = (OK, NEAR, MISS, SHOWN, NOT_SHOWN, REVERSED, OPEN, SEEDS_ONLY, NO_CLAIM, NOT_RUN)
    counted = Counter(verdicts)
    return ", ".join(f"{counted[name]} {name}" for name in order if counted[name])
