"""Comparisons of a report, and its findings: groups in, sentences out."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import Any, NamedTuple, TypeAlias

from tlm.evaluation.pages.text import power, signed
from tlm.evaluation.report.runs import Summary
from tlm.evaluation.score.baseline import EMBEDDINGS
from tlm.evaluation.score.imported import IMPORTED
from tlm.evaluation.score.intervals import LEAST_SEEDS, Difference
from tlm.evaluation.score.mix import ENCODER, LINEAR, NETWORKS, STUDENT
from tlm.retrieval.subset.export import PUBLISHED, TASK_ONLY
from tlm.settings.selectors import SELECTORS

SAME = 0.005  # half a point on dev is no reason to prefer a model with a network to one without
MOST_SAID = 20  # comparisons at the top of a report, and in a table that is not folded
LIKELY = 0.8  # the probability of being ahead from which a model with no more on dev is preferred to the linear one

AHEAD = "ahead of the linear model?"
TEXT = "ahead of other text?"
NETWORK = "ahead of models without a neural network?"
PRETRAINED = "ahead of published models?"
ENCODERS = "which arm is ahead?"
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
    """The model to compare with the linear one: the best on dev, or one without a network within `SAME` of it.

    A mixture with the linear model stands for its part alone.

    A single run counts like the mean of several, because test says how good that run is. The linear model counts where
    there is no other of ours, imported predictions where nothing is ours.
    """
    found = _eligible(groups)
    best = best_on_dev(found)
    simple = [group for group in found if not _has_network(group) and _gap(best, group) < SAME]
    return best_on_dev(simple or [best])


def _eligible(groups: list[Summary]) -> list[Summary]:
    own = _mixed([group for group in groups if group["kind"] != IMPORTED] or groups)
    return [group for group in own if group["kind"] != LINEAR] or own


def _mixed(groups: list[Summary]) -> list[Summary]:
    """Leave out models whose mixture with the linear one is there.

    The settings of a part are chosen on dev, too, so dev scores it too high; on test, mixtures were ahead of their
    parts nearly wherever we looked (docs/method.md, planned comparisons).
    """
    mixed = {(group["kind"], model) for group in groups for model in group["mixes"]}

    def in_mixture(group: Summary) -> set[tuple[str, str]]:
        return {(f"{group['kind']} + {LINEAR}", model) for model in group["mixes"] or group["models"]}

    return [group for group in groups if mixed.isdisjoint(in_mixture(group))]


def _has_network(group: Summary) -> bool:
    return any(one in group["kind"] for one in NETWORKS)


def _gap(first: Summary, second: Summary) -> float:
    """By how much the first is ahead on dev."""
    return first["dev"]["mean"] - second["dev"]["mean"]


def recommended(groups: list[Summary], differences: Sequence[Difference]) -> tuple[Summary, Difference | None]:
    """The model to use, and its difference on test to the model that it was compared with; None if there is no other.

    Dev chooses the challenger of the linear model. Between these two, test has a say: the linear model is named where
    it is more likely to be ahead, and where the challenger is less than `SAME` above it on dev and not `LIKELY` ahead.

    Args:
        groups: Summaries of the groups that can be compared.
        differences: The differences on test of their `planned` pairs.
    """
    best, linear = challenger(groups), linear_of(groups)
    if linear is None:
        return best, None
    names = best["name"], linear["name"]
    difference = next((one for one in differences if (one["first"], one["second"]) == names), None)
    if difference is None:
        return best, None
    needed = LIKELY if _gap(best, linear) < SAME else 0.5
    return (best if difference["chance"] >= needed else linear), difference


def linear_of(groups: list[Summary]) -> Summary | None:
    """The linear model, if it is among the groups; of several, such as with spans and without, the best on dev."""
    return max((one for one in groups if one["kind"] == LINEAR), key=lambda one: one["dev"]["mean"], default=None)


Question: TypeAlias = tuple[Summary, Summary, str]


def _questions(groups: list[Summary]) -> Iterator[Question]:
    """The pairs to compare with their questions, which may repeat a pair or compare a group with itself."""
    best, linear = challenger(groups), linear_of(groups)
    encoders = [group for group in groups if group["kind"] == ENCODER]
    if linear is not None:
        yield best, linear, AHEAD
        if encoders:
            yield best_on_dev(encoders), linear, AHEAD
    imported = [group for group in groups if group["kind"] == IMPORTED]
    yield from _gain_questions(_mixed([group for group in groups if group["kind"] != IMPORTED]), best)
    yield from ((first, second, ENCODERS) for first, second in combinations(encoders, 2))
    to_recommend = [best] if linear is None else [best, linear]
    yield from ((ours, theirs, OTHERS) for ours, theirs in product(to_recommend, imported))
    for student, teacher in product(groups, repeat=2):
        if student["kind"] == STUDENT and set(student["taught_by"]) & set(teacher["models"]):
            yield student, teacher, TEACHER


def _gain_questions(own: list[Summary], best: Summary) -> Iterator[Question]:
    """The pairs of our models that show what retrieved text, a network and our own text gain."""
    with_network = [group for group in own if _has_network(group)]
    without = [group for group in own if group not in with_network]
    texts = _texts(own, best)
    if not texts and without:
        texts = _texts(own, best_on_dev(without))
    yield from texts
    if with_network and without:
        yield best_on_dev(with_network), best_on_dev(without), NETWORK
    pretrained = [group for group in own if any(kind in group["kind"] for kind in (PUBLISHED, EMBEDDINGS))]
    others = [group for group in own if group not in pretrained]
    if pretrained and others:
        yield best_on_dev(others), best_on_dev(pretrained), PRETRAINED


def _texts(groups: list[Summary], like: Summary) -> list[Question]:
    """BM25's text against other text, in models of the kind of `like`."""
    alike = [group for group in groups if group["kind"] == like["kind"]]
    return [
        (first, second, TEXT)
        for first, second in product(alike, repeat=2)
        if first["text"] == "bm25" and second["text"] in ("random", TASK_ONLY) and _differ_in_text(first, second)
    ]


def _differ_in_text(first: Summary, second: Summary) -> bool:
    """Whether two groups of a kind are of the same model: there may be several published ones, some without text."""
    renamed = first["name"].replace(f"-{first['text']}", f"-{second['text']}")
    return PUBLISHED not in first["kind"] or renamed == second["name"]


OTHER_TEXT = {TASK_ONLY: "the task’s own text"} | {name: selector.called for name, selector in SELECTORS.items()}
PAPER_SMALL_FLOPS = 2.74e18  # Table 2, small scale, average over the tasks; with padding, by the paper's rule


def findings(groups: list[Summary], metric: str, differences: Sequence[Difference]) -> list[str]:
    """Sentences for the top of the report, the most important first.

    At most `MOST_SAID` of the comparisons with an interval are named. If there are more, those between texts and
    between encoders, which may be hundreds, come after all others; within both kinds, the best model's come first.

    Args:
        groups: Summaries of the groups.
        metric: What the metric of the task is called.
        differences: The differences on test of the `planned` pairs of whole groups.
    """
    whole = finished(groups)
    trained = [group for group in whole if group["kind"] not in (LINEAR, IMPORTED)]
    linear, best = linear_of(whole), challenger(whole)

    def rank(one: Difference) -> tuple[bool, bool]:
        return one["question"] in (TEXT, ENCODERS), best["name"] not in (one["first"], one["second"])

    shown = [one for one in differences if one["low"] is not None]
    said = shown if len(shown) <= MOST_SAID else sorted(shown, key=rank)[:MOST_SAID]
    more = len(shown) - len(said)
    left = [f"More comparisons are below, in “Differences on test”: {more:,}."] if more else []
    if best is linear:
        only = f"Only the linear model was trained: {score_text(best['test'])} {metric} on test."
        return [only, *_order(said), *left]
    use = _use(whole, metric, differences)
    return [use, *_gains(best, whole, said), *_order(said), *left, *_scale(trained)]


def finished(groups: list[Summary]) -> list[Summary]:
    """Leave out the groups that ended after stage 1 where others went on to stage 2: only whole runs are compared."""
    whole = any(group["stage"] == "stage 2" for group in groups)
    return [group for group in groups if group["stage"] != "stage 1"] if whole else groups


def same_vocabulary(groups: list[Summary]) -> list[Summary]:
    """The groups with the vocabulary of the first group that has a masked-LM loss.

    Losses over different vocabularies cannot be compared, because the models choose among different tokens.
    """
    found = [group for group in finished(groups) if group["mlm_loss"]["mean"] is not None]
    return [group for group in found if group["vocabulary"] == found[0]["vocabulary"]]


def score_text(spread: Mapping[str, Any], factor: float = 100.0, digits: int = 1) -> str:
    """A mean times `factor`, with its standard deviation if there is one: ``58.2 ± 1.1``; scores are in hundredths."""
    if spread["mean"] is None:
        return "–"
    deviation = f" ± {factor * spread['std']:.{digits}f}" if spread["std"] is not None else ""
    return f"{factor * spread['mean']:.{digits}f}{deviation}"


def interval_text(spread: Mapping[str, Any], form: str = "{:.1f} – {:.1f}") -> str:
    """The 95 % interval of a score, or of a difference, in hundredths."""
    return "–" if spread["low"] is None else form.format(100 * spread["low"], 100 * spread["high"])


def points(one: Difference) -> str:
    """A difference in points (hundredths), with its interval and how likely the first is ahead."""
    likely = f"{chance_text(one['chance'])} likely to be ahead on new texts"
    interval = interval_text(one, "95 % interval {:+.1f} to {:+.1f}")
    sure = f"{likely}, for these very runs" if one["low"] is None else f"{interval}, {likely}"
    return f"{signed(100 * one['mean'])} points ({sure})"


def seen_from(name: str, one: Difference) -> Difference:
    """The same difference with this group as the first of the two."""
    if name == one["first"]:
        return one
    low, high = (None if end is None else -end for end in (one["high"], one["low"]))
    named: Difference = {**one, "first": one["second"], "second": one["first"]}
    return {**named, "mean": -one["mean"], "low": low, "high": high, "chance": 1 - one["chance"]}


def chance_text(probability: float) -> str:
    """A probability in percent; never 0 % or 100 %."""
    percent = round(100 * probability)
    if percent < 1:
        return "under 1 %"
    return "over 99 %" if percent > 99 else f"{percent} %"


WORDS = ((0.99, "very probably"), (0.9, "probably"), (0.0, "perhaps"))


def _use(groups: list[Summary], metric: str, differences: Sequence[Difference]) -> str:
    """Say which model to use, what it scores, and how likely it is to be better than the linear model."""
    best, linear = challenger(groups), linear_of(groups)
    chosen, difference = recommended(groups, differences)
    over = "mean and standard deviation of " if len(chosen["seeds"]) > 1 else ""
    runs = "" if chosen["fixed"] else f" ({over}{chosen['repeats']})"
    scored = f"{score_text(chosen['test'])} {metric} on test{runs}."
    simpler = _simpler(groups, best)
    if difference is None:
        of_ours = chosen["kind"] != IMPORTED and any(group["kind"] == IMPORTED for group in groups)
        best_of = f" It is the best of {'the models made here' if of_ours else 'these models'} on dev."
        return f"Use {chosen['name']}: {scored}{simpler or best_of}"
    if chosen is linear:
        return f"Use the linear model: {scored} {_passed_over(best, linear, difference)}{simpler}"
    return f"Use {chosen['name']}: {scored} {_ahead(difference)}{simpler}"


def _ahead(difference: Difference) -> str:
    """Say in words and numbers how far a model is ahead of the linear one, and how sure that is."""
    word = next(word for least, word in WORDS if difference["chance"] >= least)
    likely = f"{word} better on new texts, too ({chance_text(difference['chance'])})."
    above = f"That is {_against(100 * difference['mean'])} the linear model"
    if difference["low"] is None:
        few = f"fewer than {LEAST_SEEDS} seeds or draws of text do not show how others would do."
        return f"{above}: {likely} This holds for this very run; {few}"
    return f"{above}{interval_text(difference, ' (95 % interval {:+.1f} to {:+.1f})')}: {likely}"


def _passed_over(best: Summary, linear: Summary, difference: Difference) -> str:
    """Say why the linear model is named and not the one that it was compared with."""
    gap, likely = 100 * _gap(best, linear), chance_text(difference["chance"])
    on_test = f"{_against(100 * difference['mean'])} it on test ({likely} likely to be ahead on new texts)"
    only, joined = ("", "but") if gap >= 100 * SAME else ("only ", "and")
    return f"{best['name']} is {_against(gap, only)} it on dev, {joined} {on_test}."


def _against(points: float, only: str = "") -> str:
    """How far above or below a score is; `only` stands before points above."""
    if signed(points) == "0.0":
        return "as good as"
    return f"{only}{points:.1f} points above" if points > 0 else f"{-points:.1f} points below"


def _simpler(groups: list[Summary], chosen: Summary) -> str:
    """Name the model with a network that was passed over, if one was."""
    other = best_on_dev(_eligible(groups))
    if other is chosen:
        return ""
    gap = f"{_against(100 * _gap(other, chosen), 'only ')} it on dev"
    return f" {other['name']} is {gap}, which does not justify a neural network."


GAINS = {  # what is compared with what else, by question
    AHEAD: ("The neural network alone", "the linear model"),
    TEXT: ("Retrieved text", ""),
    NETWORK: ("The best model with a neural network", "the best one without"),
    PRETRAINED: ("The best model of our own text", "the best one with a published model"),
}


def _gains(best: Summary, groups: list[Summary], differences: Sequence[Difference]) -> Iterator[str]:
    """Say what the retrieved text and the network gained, with the two rows that say so."""
    texts = {group["name"]: _text_of(group) for group in groups}
    for one in (one for one in differences if one["question"] in GAINS):
        first, second = one["first"], one["second"]
        if one["question"] == AHEAD and first == best["name"]:  # `_use` says it
            continue
        what, other = GAINS[one["question"]]
        verdict = {first: "ahead of", second: "behind"}.get(one["ahead"], "not shown to be ahead of")
        yield f"{what} is {verdict} {other or texts[second]}: {points(one)}, {first} over {second}."


def _text_of(group: Summary) -> str:
    """The text that a group learned from, with its number of draws."""
    drawn = f" ({group['draws']} draws)" if group["draws"] else ""
    return OTHER_TEXT.get(group["text"], "") + drawn


def _order(differences: Sequence[Difference]) -> Iterator[str]:
    """Say who is ahead among encoders and among models of others, and where no order is claimed."""
    asked = [one for one in differences if one["question"] in (ENCODERS, OTHERS)]
    for one in asked:
        if one["ahead"]:
            ahead = seen_from(one["ahead"], one)
            yield f"{ahead['first']} is ahead of {ahead['second']}: {points(ahead)}."
    if still_open := [f"{one['first']} and {one['second']}" for one in asked if not one["ahead"]]:
        yield f"No order is claimed between {', between '.join(still_open)}, because each interval includes 0."


def _scale(trained: list[Summary]) -> Iterator[str]:
    flops = max((group["cost"]["paper_flops"]["mean"] or 0 for group in trained), default=0)
    if 0 < flops < PAPER_SMALL_FLOPS / 10:
        yield (
            f"By the paper’s rule, each arm cost at most {power(flops)} FLOPs. The paper’s small scale cost "
            f"{power(PAPER_SMALL_FLOPS / flops)} times as much, so differences that it found may not show here."
        )
