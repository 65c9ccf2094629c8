"""The report's findings as sentences. An order of arms is claimed only where a confidence interval supports it."""

from collections.abc import Iterator, Sequence
from typing import Any

from tlm.evaluation.pages.text import power
from tlm.evaluation.score.intervals import LEAST_SEEDS
from tlm.evaluation.score.metrics import METRIC_NAMES

PAPER_SMALL_FLOPS = 2.74e18  # Table 2, small scale, average over the tasks
Summary = dict[str, Any]  # of `Group.summary`
Difference = dict[str, Any]  # of `tlm.evaluation.score.intervals.compared`


def findings(groups: list[Summary], metric: str, differences: Sequence[Difference]) -> list[str]:
    """Sentences for the top of the report, the most important first.

    Args:
        groups: Summaries of the groups.
        metric: The metric of the task.
        differences: The difference on test of every two whole groups.
    """
    trained = [group for group in finished(groups) if group["arm"] != "baseline"]
    baseline = next((group for group in groups if group["arm"] == "baseline"), None)
    if not trained:
        return [f"Only the baseline was scored: {hundred(groups[0]['test'])} {METRIC_NAMES[metric]} on test."]
    best = best_on_dev(trained)
    seeds = f"mean and standard deviation of {len(best['seeds'])} seeds" if len(best["seeds"]) > 1 else "one seed"
    name = best["name"] if len(trained) == 1 else f"{best['name']}, the best arm on dev,"
    headline = f"{name} reaches {hundred(best['test'])} {METRIC_NAMES[metric]} on test ({seeds})"
    if baseline is None:
        sentences = [f"{headline}."]
    else:
        sentences = [
            f"{headline}; the baseline ({baseline['name']}) reaches {hundred(baseline['test'])}.",
            _against_baseline(best["name"], baseline["name"], differences),
        ]
    sentences += _order([group["name"] for group in trained], differences)
    sentences += _copies(best, baseline)
    sentences += _shared_training(trained)
    sentences += _unseen_text(trained)
    sentences += _scale(trained)
    return sentences


def finished(groups: list[Summary]) -> list[Summary]:
    """Leave out the groups that ended after stage 1, unless all did: only whole runs are compared."""
    whole = any(group["stage"] == "stage 2" for group in groups)
    return [group for group in groups if group["stage"] != "stage 1"] if whole else groups


def same_vocabulary(groups: list[Summary]) -> list[Summary]:
    """The groups with the vocabulary of the first group that has a masked-LM loss.

    Losses over different vocabularies cannot be compared, because the models choose among different tokens.
    """
    found = _with_loss(finished(groups))
    return [group for group in found if group["vocabulary"] == found[0]["vocabulary"]]


def _with_loss(groups: list[Summary]) -> list[Summary]:
    return [group for group in groups if group["mlm_loss"]["mean"] is not None]


def best_on_dev(groups: list[Summary]) -> Summary:
    """The group with the highest mean score on dev; test scores choose nothing."""
    return max(groups, key=lambda group: group["dev"]["mean"])


def hundred(spread: dict[str, Any]) -> str:
    """A mean score in hundredths, with its standard deviation if there is one: ``58.2 ± 1.1``."""
    return plain_score(spread, 100.0, 1)


def plain_score(spread: dict[str, Any], factor: float = 1.0, digits: int = 2) -> str:
    """A mean in its own unit (losses, errors), with its standard deviation if there is one."""
    if spread["mean"] is None:
        return "–"
    deviation = f" ± {factor * spread['std']:.{digits}f}" if spread["std"] is not None else ""
    return f"{factor * spread['mean']:.{digits}f}{deviation}"


def points(difference: Difference, first: str) -> str:
    """A difference in points (hundredths) with its interval, as `first` minus the other group."""
    sign = 100 if first == difference["first"] else -100
    low, high = sorted((sign * difference["low"], sign * difference["high"]))
    return f"{sign * difference['mean'] + 0.0:+.1f} points (95 % interval {low:+.1f} to {high:+.1f})"


def _against_baseline(best: str, baseline: str, differences: Sequence[Difference]) -> str:
    found = next(one for one in differences if {best, baseline} == {one["first"], one["second"]})
    if found["low"] is None:
        return f"Fewer than {LEAST_SEEDS} seeds give no interval, so it is open whether it differs from the baseline."
    places = {"": "not shown to differ from", best: "ahead of", baseline: "behind"}
    return f"It is {places[found['ahead']]} the baseline: {points(found, best)}, over seeds and test examples."


def _order(names: list[str], differences: Sequence[Difference]) -> Iterator[str]:
    found = [one for one in differences if one["first"] in names and one["second"] in names]
    if any(one["low"] is None for one in found):
        yield "With one or two seeds per arm, a few points between arms can be chance, so no order is claimed."
        return
    for one in found:
        if one["ahead"]:
            other = one["second"] if one["ahead"] == one["first"] else one["first"]
            yield f"{one['ahead']} is ahead of {other}: {points(one, one['ahead'])}."
    if still_open := [f"{one['first']} and {one['second']}" for one in found if not one["ahead"]]:
        yield f"No order is claimed between {', between '.join(still_open)}, because each interval includes 0."


def _copies(best: Summary, baseline: Summary | None) -> Iterator[str]:
    if found := best["without_copies"].get("test"):
        scores = [f"{best['name']} reaches {hundred(found['score'])}"]
        if baseline is not None:
            scores.append(f"the baseline {hundred(baseline['without_copies']['test']['score'])}")
        total = best["examples"]["test"]
        yield (
            f"{total - found['n']:,} of the {total:,} test texts are in train too, which raises every score. "
            f"Without them, {' and '.join(scores)}."
        )


def _shared_training(trained: list[Summary]) -> Iterator[str]:
    for group in trained:
        tasks, flops = group.get("together", []), group["stages"].get("stage 1", {}).get("flops", {}).get("mean")
        if tasks:
            share = f"; an equal share would be {power(flops / len(tasks))} FLOPs per task" if flops else ""
            yield (
                f"Stage 1 of {group['name']} is one training for {len(tasks)} tasks ({', '.join(tasks)}); "
                f"this report counts its whole cost{share}."
            )


def _unseen_text(trained: list[Summary]) -> Iterator[str]:
    compared = sorted(same_vocabulary(trained), key=lambda group: -group["mlm_loss"]["mean"])
    if compared:
        losses = ", ".join(f"{group['name']} {group['mlm_loss']['mean']:.2f}" for group in compared)
        others = ", ".join(group["name"] for group in _with_loss(trained) if group not in compared)
        apart = f" Not comparable, because of another vocabulary: {others}." if others else ""
        yield f"Loss of the masked language model on unseen test text (lower is better): {losses}.{apart}"


def _scale(trained: list[Summary]) -> Iterator[str]:
    flops = max((group["cost"]["flops"]["mean"] or 0 for group in trained), default=0)
    if 0 < flops < PAPER_SMALL_FLOPS / 10:
        yield (
            f"Each arm cost at most {power(flops)} FLOPs, about 1/{power(PAPER_SMALL_FLOPS / flops)} of the paper’s "
            "small scale, so differences that the paper found between arms may not show here."
        )
