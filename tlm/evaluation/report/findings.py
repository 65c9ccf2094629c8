"""Comparisons of a report, and its findings: groups in, sentences out."""

from collections.abc import Iterator, Sequence
from itertools import combinations, product
from typing import Any, NamedTuple

from tlm.evaluation.pages.text import power
from tlm.evaluation.score.imported import IMPORTED
from tlm.evaluation.score.intervals import LEAST_SEEDS
from tlm.evaluation.score.mix import ENCODER, LINEAR, NETWORKS, STUDENT
from tlm.evaluation.score.scores import METRIC_NAMES
from tlm.training.load_model import PUBLISHED

Summary = dict[str, Any]  # of `Group.summary`
Difference = dict[str, Any]  # of `tlm.evaluation.score.intervals.compared`
AHEAD = "ahead of the linear model?"
TEXT = "ahead of other text?"
NETWORK = "ahead of models without a network?"
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
            one = Planned(first["name"], second["name"], question)
            pairs.setdefault(frozenset(one[:2]), one)
    return list(pairs.values())


def best_on_dev(groups: list[Summary]) -> Summary:
    """The group with the highest mean score on dev; test scores choose nothing."""
    return max(groups, key=lambda group: group["dev"]["mean"])


def challenger(groups: list[Summary]) -> Summary:
    """The model to compare with the linear one: the best on dev of the models with an interval, else of all.

    The linear model and imported predictions only count where there is nothing else.
    """
    others = [group for group in groups if group["kind"] != LINEAR] or groups
    trained = [group for group in others if group["kind"] != IMPORTED] or others
    return best_on_dev([group for group in trained if group["test"]["low"] is not None] or trained)


def recommended(groups: list[Summary], differences: Sequence[Difference]) -> tuple[Summary, Difference | None]:
    """The model to use, and its difference to the model that it was compared with; None if there is no other.

    It is the challenger, unless its interval leaves open, or denies, that it is ahead of the linear model.

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
    for first, second in product((group for group in groups if group["kind"] == best["kind"]), repeat=2):
        if first["text"] == "bm25" and second["text"] in ("random", "task-only") and _differ_in_text(first, second):
            yield first, second, TEXT
    with_network = [group for group in groups if any(one in group["kind"] for one in NETWORKS)]
    without = [group for group in groups if group not in with_network and group["kind"] != IMPORTED]
    if with_network and without:
        yield best_on_dev(with_network), best_on_dev(without), NETWORK
    yield from ((first, second, ARMS) for first, second in combinations(encoders, 2))
    yield from ((best, one, OTHERS) for one in groups if one["kind"] == IMPORTED)
    for student, teacher in product(groups, repeat=2):
        if student["kind"] == STUDENT and set(student["taught_by"]) & set(teacher["models"]):
            yield student, teacher, TEACHER


def _differ_in_text(first: Summary, second: Summary) -> bool:
    """Whether two groups of a kind are of the same model: there may be several published ones, some without text."""
    renamed = first["name"].replace(f"-{first['text']}", f"-{second['text']}")
    return PUBLISHED not in first["kind"] or renamed == second["name"]


OTHER_TEXT = {
    "random": "random text",
    "task-only": "the task’s own text",
    "dsir": "text by importance (DSIR)",
    "classifier": "text by a classifier",
    "dense": "text by vectors",
    "hybrid": "text by BM25 and vectors",
    "rerank": "text by influence (ISS)",
}
PAPER_SMALL_FLOPS = 2.74e18  # Table 2, small scale, average over the tasks; with padding, by the paper's rule


def findings(groups: list[Summary], metric: str, differences: Sequence[Difference]) -> list[str]:
    """Sentences for the top of the report, the most important first.

    Args:
        groups: Summaries of the groups.
        metric: The metric of the task.
        differences: The differences on test of the `planned` pairs of whole groups.
    """
    whole = finished(groups)
    trained = [group for group in whole if group["kind"] not in (LINEAR, IMPORTED)]
    linear, best = linear_of(whole), challenger(whole)
    if best is linear:
        return [f"Only the baseline was scored: {hundred(best['test'])} {METRIC_NAMES[metric]} on test."]
    shown = [_use(whole, metric, differences), *_gains(best, whole, differences), *_order(differences)]
    shown += [*_open(best, trained), *_copies(best, linear), *_shared_training(trained)]
    return [*shown, *_unseen_text(trained), *_scale(trained)]


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


def sure(chosen: Summary, found: Difference | None) -> str:
    """Say how sure the choice of a model is, from its difference to the model that it was compared with."""
    if found is None:
        return "compared with no other model" if chosen["kind"] == LINEAR else "not compared with a linear model"
    other = found["second"] if chosen["name"] == found["first"] else found["first"]
    if found["low"] is None:
        return f"open beside {other}: fewer than {LEAST_SEEDS} seeds or draws give no interval"
    verdict = "ahead of" if found["ahead"] else "not shown to differ from"
    return f"{verdict} {other}: {points(found, chosen['name'])}"


def _use(groups: list[Summary], metric: str, differences: Sequence[Difference]) -> str:
    """Say which model to use: the best on dev if its interval is above the linear model, else the linear model."""
    best, linear = challenger(groups), linear_of(groups)
    chosen, found = recommended(groups, differences)
    name, spread = best["name"], "mean and standard deviation of " if len(best["seeds"]) > 1 else ""
    how = "" if best["fixed"] else f" ({spread}{best['repeats']})"
    score = f"{hundred(best['test'])} {METRIC_NAMES[metric]} on test{how}"
    if linear is None or found is None:
        return f"{name}, the best on dev, reaches {score}."
    theirs = f"the linear model {hundred(linear['test'])}"
    if found["low"] is None:
        few = f"Fewer than {LEAST_SEEDS} seeds or draws give no interval, so it is open which one is better."
        return f"{name}, the best on dev, reaches {score}, {theirs}. {few}"
    gain = f"{points(found, name)}, over seeds, draws of text and test examples"
    if chosen is best:
        return f"Use {name}: it reaches {score}, {theirs}; {gain}."
    place = "behind it" if found["ahead"] else "not shown to differ from it"
    return (
        f"Use the linear model: {name}, the best other one on dev, reaches {score}, {theirs}, and is {place}: {gain}."
    )


def _gains(best: Summary, groups: list[Summary], differences: Sequence[Difference]) -> Iterator[str]:
    """Say what the retrieved text and the network gained."""
    texts = {group["name"]: _text_of(group) for group in groups}
    for one in differences:
        if one["low"] is None:
            continue
        if one["question"] == AHEAD and one["first"] != best["name"]:
            yield _beside(one, "The network alone", "the linear model")
        if one["question"] == TEXT:
            yield _beside(one, "Retrieved text", texts[one["second"]])
        if one["question"] == NETWORK:
            yield _beside(one, "The best model with a network", "the best one without")


def _text_of(group: Summary) -> str:
    """The text that a group learned from, with its number of draws."""
    drawn = f", {group['draws']} draws" if group["draws"] else ""
    return OTHER_TEXT.get(group["text"], "") + drawn


def _beside(found: Difference, what: str, other: str) -> str:
    """Whether something is ahead of another, with the two rows that say so."""
    first, second = found["first"], found["second"]
    verdict = {first: "ahead of", second: "behind"}.get(found["ahead"], "not shown to be ahead of")
    return f"{what} is {verdict} {other}: {points(found, first)}, {first} over {second}."


def _order(differences: Sequence[Difference]) -> Iterator[str]:
    if any(one["low"] is None for one in differences):
        yield "Of arms with one or two seeds or draws no order is claimed, because a few points can be chance."
    found = [one for one in differences if one["low"] is not None and one["question"] in (ARMS, OTHERS)]
    for one in found:
        if one["ahead"]:
            other = one["second"] if one["ahead"] == one["first"] else one["first"]
            yield f"{one['ahead']} is ahead of {other}: {points(one, one['ahead'])}."
    if still_open := [f"{one['first']} and {one['second']}" for one in found if not one["ahead"]]:
        yield f"No order is claimed between {', between '.join(still_open)}, because each interval includes 0."


def _open(best: Summary, trained: list[Summary]) -> Iterator[str]:
    """Name a model that may be better but has too few seeds."""
    found = best_on_dev([best, *trained])
    if found["dev"]["mean"] > best["dev"]["mean"]:
        yield (
            f"{found['name']} is higher on dev ({hundred(found['dev'])}, {best['name']} {hundred(best['dev'])}), "
            f"but has no interval: {LEAST_SEEDS} seeds, or draws of its text, or more are needed to know."
        )


def _copies(best: Summary, baseline: Summary | None) -> Iterator[str]:
    if found := best["without_copies"].get("test"):
        theirs = baseline["without_copies"]["test"]["score"] if baseline is not None else None
        also = f" and the baseline {hundred(theirs)}" if theirs else ""
        total = best["examples"]["test"]
        copied = f"{total - found['n']:,} of the {total:,} test texts are in train too, which raises every score."
        yield f"{copied} Without them, {best['name']} reaches {hundred(found['score'])}{also}."


def _shared_training(trained: list[Summary]) -> Iterator[str]:
    for group in trained:
        tasks, flops = group.get("together", []), group["stages"].get("stage 1", {}).get("flops", {}).get("mean")
        if tasks:
            share = f"; an equal share would be {power(flops / len(tasks))} FLOPs per task" if flops else ""
            trained_for = f"Stage 1 of {group['name']} is one training for {len(tasks)} tasks ({', '.join(tasks)})"
            yield f"{trained_for}; this report counts its whole cost{share}."


def _unseen_text(trained: list[Summary]) -> Iterator[str]:
    compared = sorted(same_vocabulary(trained), key=lambda group: -group["mlm_loss"]["mean"])
    if compared:
        losses = ", ".join(f"{group['name']} {group['mlm_loss']['mean']:.2f}" for group in compared)
        others = ", ".join(group["name"] for group in _with_loss(trained) if group not in compared)
        apart = f" Not comparable, because of another vocabulary: {others}." if others else ""
        yield f"Loss of the masked language model on unseen test text (lower is better): {losses}.{apart}"


def _scale(trained: list[Summary]) -> Iterator[str]:
    flops = max((group["cost"]["paper_flops"]["mean"] or 0 for group in trained), default=0)
    if 0 < flops < PAPER_SMALL_FLOPS / 10:
        yield (
            f"By the paper’s rule, each arm cost at most {power(flops)} FLOPs, about "
            f"1/{power(PAPER_SMALL_FLOPS / flops)} of its small scale, so differences that the paper found between "
            "arms may not show here."
        )
