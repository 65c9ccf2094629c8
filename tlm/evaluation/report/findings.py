"""What the numbers say and what they do not, in plain sentences. An order is claimed only where intervals carry it."""

from collections.abc import Iterator, Sequence
from typing import Any

from tlm.evaluation.pages.text import power
from tlm.evaluation.score.intervals import LEAST_SEEDS
from tlm.evaluation.score.metrics import METRIC_NAMES

PAPER_SMALL_FLOPS = 2.74e18  # Table 2, small scale, average over the tasks
Summary = dict[str, Any]


def findings(groups: list[Summary], metric: str, differences: Sequence[dict[str, Any]]) -> list[str]:
    """Sentences for the top of the report, the most important first.

    Args:
        groups: `Group.summary` values.
        metric: What the task is judged by.
        differences: Of every two whole groups: their names, the difference on test with its interval, who is ahead.
    """
    trained = [group for group in finished(groups) if group["arm"] != "baseline"]
    baseline = next((group for group in groups if group["arm"] == "baseline"), None)
    if not trained:
        return (
            [f"Only the baseline was scored: {hundred(baseline['test'])} {METRIC_NAMES[metric]} on test."]
            if baseline
            else []
        )
    best = best_on_dev(trained)
    sentences = [_headline(best, baseline, metric, alone=len(trained) == 1)]
    if baseline is not None:
        sentences.append(_against(best["name"], baseline["name"], differences))
    sentences += _order([group["name"] for group in trained], differences)
    sentences += _copies(best, baseline)
    sentences += _together(trained)
    sentences += _unseen_text(trained)
    sentences += _scale(trained)
    return sentences


def finished(groups: list[Summary]) -> list[Summary]:
    """Without the groups that ended after stage 1, unless all did: whole runs are compared with whole runs."""
    whole = [group for group in groups if group["stage"] == "stage 2"]
    return [group for group in groups if group["stage"] != "stage 1"] if whole else groups


def heard(groups: list[Summary]) -> list[Summary]:
    """The groups whose masked-LM losses compare: those with the vocabulary of the first that has a loss.

    To guess among other tokens is another task.
    """
    found = _with_loss(finished(groups))
    return [group for group in found if group["vocabulary"] == found[0]["vocabulary"]]


def _with_loss(groups: list[Summary]) -> list[Summary]:
    return [group for group in groups if group["mlm_loss"]["mean"] is not None]


def best_on_dev(groups: list[Summary]) -> Summary:
    """The group with the highest mean on dev: test decides nothing."""
    return max(groups, key=lambda group: group["dev"]["mean"])


def hundred(spread: dict[str, Any]) -> str:
    """A score's mean, and its standard deviation where there is one, in hundredths: ``58.2 ± 1.1``."""
    return plain_score(spread, 100.0, 1)


def plain_score(spread: dict[str, Any], factor: float = 1.0, digits: int = 2) -> str:
    """The same in the score's own unit: losses, errors."""
    if spread["mean"] is None:
        return "–"
    deviation = f" ± {factor * spread['std']:.{digits}f}" if spread["std"] is not None else ""
    return f"{factor * spread['mean']:.{digits}f}{deviation}"


def _headline(best: Summary, baseline: Summary | None, metric: str, *, alone: bool) -> str:
    seeds = len(best["seeds"])
    who = best["name"] if alone else f"{best['name']}, the best arm on dev,"
    told = f"mean and standard deviation of {seeds} seeds" if seeds > 1 else "one seed"
    yardstick = f"; the baseline ({baseline['name']}) has {hundred(baseline['test'])}" if baseline else ""
    return f"{who} reaches {hundred(best['test'])} {METRIC_NAMES[metric]} on test ({told}){yardstick}."


def _against(best: str, baseline: str, differences: Sequence[dict[str, Any]]) -> str:
    found = next(one for one in differences if {best, baseline} == {one["first"], one["second"]})
    if found["low"] is None:
        return f"Fewer than {LEAST_SEEDS} seeds give no interval, so whether it differs from the baseline is left open."
    told = points(found, best)
    if found["ahead"]:
        where = "ahead of" if found["ahead"] == best else "behind"
        return f"It is {where} the baseline: {told}, over seeds and test examples."
    return f"It is not shown to differ from the baseline: {told}, over seeds and test examples."


def _order(names: list[str], differences: Sequence[dict[str, Any]]) -> Iterator[str]:
    found = [one for one in differences if one["first"] in names and one["second"] in names]
    if any(one["low"] is None for one in found):
        yield "With one or two seeds an arm, a few points between arms can be chance; no order is claimed."
        return
    for one in found:
        if one["ahead"]:
            other = one["second"] if one["ahead"] == one["first"] else one["first"]
            yield f"{one['ahead']} is ahead of {other}: {points(one, one['ahead'])}."
    if still_open := [f"{one['first']} and {one['second']}" for one in found if not one["ahead"]]:
        yield f"No order is claimed between {', between '.join(still_open)}: those intervals include 0."


def points(difference: dict[str, Any], first: str) -> str:
    """A difference in points (hundredths) with its interval, seen from the group called `first`."""
    sign = 100 if first == difference["first"] else -100
    low, high = sorted((sign * difference["low"], sign * difference["high"]))
    return f"{sign * difference['mean'] + 0.0:+.1f} points (95 % interval {low:+.1f} to {high:+.1f})"


def _copies(best: Summary, baseline: Summary | None) -> Iterator[str]:
    if found := best["without_copies"].get("test"):
        scores = [f"{best['name']} has {hundred(found['score'])}"]
        if baseline is not None:
            scores.append(f"the baseline {hundred(baseline['without_copies']['test']['score'])}")
        total = best["examples"]["test"]
        copies = total - found["n"]
        yield (
            f"{copies:,} of the {total:,} test texts are in train too, which lifts every score. "
            f"Without them {' and '.join(scores)}."
        )


def _together(trained: list[Summary]) -> Iterator[str]:
    for group in trained:
        tasks, spent = group.get("together", []), group["stages"].get("stage 1", {}).get("flops", {}).get("mean")
        if tasks:
            share = f"; shared out evenly it would be {power(spent / len(tasks))} FLOPs a task" if spent else ""
            yield (
                f"Stage 1 of {group['name']} is one training for {len(tasks)} tasks ({', '.join(tasks)}); "
                f"its cost counts whole here{share}."
            )


def _unseen_text(trained: list[Summary]) -> Iterator[str]:
    told = sorted(heard(trained), key=lambda group: -group["mlm_loss"]["mean"])
    if told:
        losses = ", ".join(f"{group['name']} {group['mlm_loss']['mean']:.2f}" for group in told)
        others = ", ".join(group["name"] for group in _with_loss(trained) if group not in told)
        apart = f" Not comparable, for they have another vocabulary: {others}." if others else ""
        yield f"Loss of the masked language model on unseen test text (lower is better): {losses}.{apart}"


def _scale(trained: list[Summary]) -> Iterator[str]:
    spent = max((group["cost"]["flops"]["mean"] or 0 for group in trained), default=0)
    if 0 < spent < PAPER_SMALL_FLOPS / 10:
        yield (
            f"An arm cost at most {power(spent)} FLOPs, about one part in {power(PAPER_SMALL_FLOPS / spent)} of the "
            "paper’s small scale: what the paper found between arms need not show here."
        )
