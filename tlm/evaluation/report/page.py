"""The pages of a report: scores, differences, costs and the bill, section by section."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict

from tlm.data.tasks.examples import SEVERAL
from tlm.evaluation.pages import blocks, plots
from tlm.evaluation.pages.blocks import Block, Column, Details, Drawn, Figure, Heading, Line, Row, Span, Table, Text
from tlm.evaluation.pages.render import write_pages
from tlm.evaluation.pages.text import power, signed
from tlm.evaluation.report import bill, checks, lineage, preview, since
from tlm.evaluation.report.findings import MOST_SAID, chance_text, interval_text, score_text
from tlm.evaluation.report.runs import Summary
from tlm.evaluation.score.intervals import LEAST_SEEDS, Difference, Spread

MOST_CLASSES = 30  # that are open on the page
MOST_DIGITS = 5  # after the point; smaller numbers are written as powers of ten
Form = Callable[[Any], Line]
Rows = list[dict[str, Any]]
Arms = Sequence[Mapping[str, Any]]  # each with its name and role


class Task(TypedDict):
    """The task of a report."""

    name: str
    problem: str
    metric: str
    metric_name: str
    classes: int
    counts: dict[str, int]


class Best(TypedDict):
    """The model that a report recommends, and the key of the metrics of its best run."""

    name: str
    role: str
    metrics: str


class Contents(TypedDict):
    """All that a report says, which is report.json.

    `classes`, `confusion`, `coverage` and `scatter` are of the recommended model's answers on test; None where its kind
    of problem has no such answers.
    """

    task: Task
    groups: list[Summary]
    losses: list[str]
    prices: dict[str, float]
    differences: list[Difference]
    findings: list[str]
    bill: dict[str, Rows]
    metric_names: dict[str, str]
    curves: Rows
    best: Best
    classes: dict[str, Any] | None
    confusion: dict[str, Any] | None
    coverage: Rows | None
    scatter: dict[str, list[float]] | None
    evidence: Rows
    dropped: Rows
    since: dict[str, Any] | None
    checks: Rows
    lineage: Rows
    gone: str


def in_units(spread: Spread) -> str:
    """An error in the unit of the targets, to three digits: ``1.92 ± 0.14``, ``3.1e-07``; "–" where none is known."""
    mean = spread["mean"]
    if mean is None:
        return "–"
    digits = max(0, 2 - math.floor(math.log10(mean))) if mean else 0
    if digits <= MOST_DIGITS:
        return score_text(spread, 1.0, digits)
    deviation = f" ± {spread['std']:.1e}" if spread["std"] is not None else ""
    return f"{mean:.2e}{deviation}"


def score(scores: Mapping[str, Spread], name: str) -> str:
    """A score in hundredths, or an error in the unit of the targets; "–" if an older version did not compute it."""
    if name not in scores:
        return "–"
    return in_units(scores[name]) if name in ("rmse", "mae") else score_text(scores[name])


def named(arm: Mapping[str, Any]) -> Span:
    """An arm's name in its colour."""
    return Span(arm["name"], "name", arm["role"])


def by_arm(arms: Arms, columns: Mapping[str, Form], *, note: str = "", strong: str = "") -> Table:
    """A table with a row for each model, from the format of each column; the row of the model `strong` stands out."""
    rows: list[Row] = [(named(arm), *(form(arm) for form in columns.values())) for arm in arms]
    places = frozenset(place for place, arm in enumerate(arms) if arm["name"] == strong)
    return Table(["Model", *columns], rows, note, places)


CURVES = "Means over an arm’s seeds and short intervals of steps. Lower is better; compare curves within a panel only."


def curves_section(panels: Rows, groups: Sequence[Summary]) -> Iterator[Block]:
    """The curves as figures."""
    if not panels:
        return
    drawn = {line["group"] for panel in panels for line in panel["lines"]}
    legend = Text(tuple(named(group) for group in groups if group["name"] in drawn), "legend curves")
    figures = [Figure(panel["title"], plots.lines(panel, groups), says=_falls(panel["lines"])) for panel in panels]
    yield Drawn((Heading("Training"), legend, *figures, Text(CURVES, "small")))


def _falls(lines: Rows) -> str:
    ends = ((line["group"], line["points"][0][1], line["points"][-1][1]) for line in lines)
    return ", ".join(f"{name} from {first:.3g} to {last:.3g}" for name, first, last in ends)


def bill_section(contents: Contents) -> Iterator[Block]:
    """The bill: what was spent, and what a million predictions cost; speed and size of the models."""
    found, spent = contents["bill"], contents["bill"]["spent"]
    roles = {group["name"]: group["role"] for group in contents["groups"]}
    columns = bill.known(bill.AMOUNTS, spent)
    rows: list[Row] = []
    for shared, heading in bill.SHARED.items():
        if sharing := [row for row in spent if row["shared"] == shared]:
            rows.append((heading,))
            rows += [(_part(row, roles), *(form(row) for form in columns.values())) for row in sharing]
    if rows:
        yield Heading("The bill")
        yield Table(["What was spent", *columns], rows, bill.explained(columns, contents["prices"]))
    models = {row["name"]: row | row["million"] for row in found["predictions"]}
    arms = [{"role": role, **models[name]} for name, role in roles.items() if name in models]
    if shown := bill.known(bill.AMOUNTS | bill.SPEEDS, arms):
        yield Heading("A million predictions, speed and size", 3)
        yield by_arm(arms, shown, note=bill.MILLION, strong=contents["best"]["name"])


def _part(row: dict[str, Any], roles: dict[str, str]) -> Line:
    """What a row of the bill is for: its part with its arm, or a stage of the training in a row above."""
    about = (" ", Span(row["about"], "small")) if row["about"] else ()
    if row["part"] not in bill.PARTS:
        return (f"– {row['part']}", *about)
    arm = (" ", Span(row["arm"], "name", roles.get(row["arm"], ""))) if row["arm"] else ()
    return (bill.PARTS[row["part"]], *arm, *about)


def results(contents: Contents) -> Iterator[Block]:
    """Scores of all arms, their differences, and scores without the texts that train has too."""
    groups, task = contents["groups"], contents["task"]
    best = _marked(contents)
    yield Heading("Results")
    caption = "Test score, a dot for each seed or draw"
    figure = drawn_scores(groups, f"{task['metric_name']} on test", caption, best)
    yield Drawn((figure, key_of_scores(groups, best)))
    yield _scores(groups, task, best, contents["losses"])
    yield Details("How to read names, scores and intervals", tuple(Text(one, "small") for one in READING))
    yield Heading("Other scores on test", 3)
    others = _others(groups, task, contents["metric_names"])
    of_classes = "In hundredths; higher is better, except for a calibration error."
    note = of_classes if task["classes"] else "Errors are in the unit of the labels; lower is better."
    yield by_arm(groups, others, note=note, strong=best)
    yield from _differences(contents["differences"])
    for split in groups[0]["without_copies"]:
        yield from _without_copies(groups, task, split, others, best)
    yield from _chosen(groups)


def _marked(contents: Contents) -> str:
    """The name of the row to mark as the model to use; "" if there is no other row."""
    return contents["best"]["name"] if len(contents["groups"]) > 1 else ""


def _scores(groups: Sequence[Summary], task: Task, best: str, losses: Sequence[str]) -> Table:
    columns: dict[str, Form] = {
        "dev": lambda group: score_text(group["dev"]),
        "test": lambda group: score_text(group["test"]),
        "95 % interval, test": lambda group: interval_text(group["test"]),
        "seeds": lambda group: "–" if group["fixed"] else group["repeats"],
    }
    note = (
        f"Dev and test: {task['metric_name']} in hundredths (higher is better), mean ± standard deviation over seeds, "
        "or over draws of the text. The best on dev comes first. Bold: the model that the first sentence of this "
        "report names. Intervals account for test examples, seeds, and draws of the text; with fewer than "
        f"{LEAST_SEEDS} seeds or draws there is none, unless a model is the same with every seed (–). Dev scores of "
        "mixtures and of models of several labels a text are cross-fitted: fitted on a part of dev, scored on another."
    )
    if losses:
        columns["masked-LM loss"] = lambda group: (
            score_text(group["mlm_loss"], 1.0, 2) if group["name"] in losses else "–"
        )
        note += " The masked-LM loss is of stage 1 on test texts; lower is better. –: none, or over another vocabulary."
    if any(group["cost"]["flops"]["mean"] for group in groups):
        columns["FLOPs"] = lambda group: "–" if (mean := group["cost"]["flops"]["mean"]) is None else power(mean)
    return by_arm(groups, columns, note=note, strong=best)


READING = (
    "A model is named after its arm, the text that it learned from: bm25 was retrieved, random drawn, task-only is the "
    "task’s own. Such a name alone is a neural network; linear is a linear model of words, static one of word vectors, "
    "embeddings one of a published model’s vectors, published such a model after fine-tuning, + a mixture. Models are "
    "chosen on dev, where a mixture with the linear model stands for its part alone; test shows how they do on new "
    "texts. Scores go up to 100, and a difference of 1 is a point. F1 of a class is high if few of its texts are "
    "missed and few others are taken for it; macro-F1 is its mean over the classes that occur in test or answers.",
    "Another test set, another seed or other retrieved text would give another score. The 95 % interval shows by how "
    "much: in about 19 of 20 repetitions it contains the score on an unlimited number of test texts. A probability "
    "says how likely one model is to be ahead of another on new texts like these, judged by this test alone: 50 % is a "
    "coin toss. Where models differ little and test has a few hundred texts, it comes true less often than it says. "
    "Intervals of differences are corrected for the number of comparisons, probabilities are not: an interval may "
    "include 0 beside 99 %. An order is claimed only where the interval excludes 0.",
)


def drawn_scores(groups: Sequence[Summary], label: str, caption: str, best: str = "") -> Figure:
    """The test scores of groups, drawn once for pages and once for phones."""
    wide, narrow = (plots.dots(groups, label, best=best, narrow=narrow) for narrow in (False, True))
    says = ", ".join(f"{group['name']} {score_text(group['test'])}" for group in groups)
    return Figure(caption, wide, "full", narrow, says)


def key_of_scores(groups: Sequence[Summary], best: str = "") -> Text:
    """What the drawings of these groups' scores consist of."""
    without = [group["test"]["low"] is None for group in groups]
    drawn = {
        "Stroke: mean.": True,
        "Band: 95 % interval.": not all(without),
        f"Hollow dots: fewer than {LEAST_SEEDS} seeds or draws, so no interval.": any(without),
        "Bold: the model to use.": bool(best),
        "Dashed: the linear model.": any(group["arm"] == "baseline" for group in groups),
    }
    return Text(" ".join(text for text, shown in drawn.items() if shown), "small")


def _others(groups: Sequence[Summary], task: Task, names: Mapping[str, str]) -> dict[str, Form]:
    """A column for each score but the task's metric; where a text has one label, micro-F1 is accuracy, and has none."""

    def column(name: str) -> Form:
        return lambda group: score(group["scores"], name)

    scores, left_out = groups[0]["scores"], {task["metric"]}
    if "accuracy" in scores:
        left_out |= {"accuracy", "micro_f1"} if "micro_f1" in left_out else {"micro_f1"}
    return {names[name]: column(name) for name in scores if name not in left_out}


def _differences(found: Sequence[Difference]) -> Iterator[Block]:
    if not found:
        return
    rows: list[Row] = [
        (
            one["question"],
            (Span(one["first"]), " over ", Span(one["second"])),
            Span(signed(100 * one["mean"]), "bold") if one["ahead"] else signed(100 * one["mean"]),
            interval_text(one, "{:+.1f} to {:+.1f}"),
            chance_text(one["chance"]),
        )
        for one in found
    ]
    note = (
        "Points: the difference on the same test examples; bold where the interval excludes 0, so that an order is "
        "claimed. The comparisons were chosen by dev alone. Ahead on new texts: the probability that the first model "
        "is; with too few seeds, for these very runs. Intervals are corrected for their number (Bonferroni): together "
        "they have 95 % confidence."
    )
    yield Heading("Differences on test", 3)
    head: list[Column | str] = ["Question", Column("models", "words"), "points", "95 % interval", "ahead on new texts"]
    table = Table(head, rows, note)
    yield table if len(rows) <= MOST_SAID else Details(f"All {len(rows):,} comparisons", (table,))


def _without_copies(
    groups: Sequence[Summary], task: Task, split: str, others: Mapping[str, Form], best: str
) -> Iterator[Block]:
    left = [{"name": group["name"], "role": group["role"]} | group["without_copies"][split] for group in groups]
    columns: dict[str, Form] = {
        task["metric_name"]: lambda one: score_text(one["score"]),
        "95 % interval": lambda one: interval_text(one["score"]),
        **others,
    }
    total = groups[0]["examples"][split]
    note = f"{left[0]['n']:,} of {total:,} examples. A model may have memorised the others."
    yield Heading(f"{split.capitalize()} without the texts that are also in train", 3)
    yield by_arm(left, columns, note=note, strong=best)


def _chosen(groups: Sequence[Summary]) -> Iterator[Block]:
    found = []
    for group in groups:
        if chosen := group["chosen"]:
            tried = f", out of {group['tried']} settings" if group["tried"] else ""
            settings = "; ".join(f"{name} {value}" for name, value in chosen.items())
            found.append(Text((Span(group["name"]), f"{tried}: {settings}."), "small"))
    if found:
        yield Details("Settings that were chosen on dev", tuple(found))


def predictions(contents: Contents) -> Iterator[Block]:
    """Confusions and F1 of the classes, or predicted against gold values."""
    best, confusion, scatter = contents["best"], contents["confusion"], contents["scatter"]
    heading = Heading(("Predictions of ", Span(best["name"])))
    if contents["classes"]:
        shown = _confusion(confusion, best["role"]) if confusion else ()
        yield from (heading, *shown, *_classes(contents["classes"]))
    elif scatter and scatter["gold"]:
        caption = "Predicted against gold values on test, first seed; the line marks equality"
        yield Drawn((heading, Figure(caption, plots.scatter(**scatter, role=best["role"]), "single")))


def coverage(contents: Contents) -> Iterator[Block]:
    """Texts that the recommended model answers with at least some probability, and how often it is right."""
    best, found = contents["best"], contents["coverage"]
    if not found:
        return
    rows: list[Row] = [(f"{one['at_least']:.4f}", *_answered(one["dev"]), *_answered(one["test"])) for one in found]
    columns = [f"{name}, {split}" for split in ("dev", "test") for name in ("answered", "accuracy")]
    note = (
        "; of several seeds, the one with the best score on dev. Answered: the share of texts whose answer has at "
        "least this probability. Thresholds were chosen on dev; test shows what they then gave. Both in hundredths."
    )
    yield Heading("Sure and unsure answers")
    caption = "Accuracy of the texts that are answered, the surest first; a dot for each threshold of the table"
    points = (_answered(one["test"]) for one in found if one["test"]["share"])
    says = "on test, " + "; ".join("{} % answered, {} % of these right".format(*point) for point in points)
    yield Drawn((Figure(caption, plots.coverage(found, best["role"]), "single", says=says),))
    yield Table(["Probability, at least", *columns], rows, ("Of ", Span(best["name"]), note))
    yield Text((Span("tlm predict MODEL --at-least", "code"), " marks the other answers as unsure."), "small")


def _answered(found: dict[str, float | None]) -> Iterator[str]:
    for value in (found["share"], found["accuracy"]):
        yield "–" if value is None else f"{100 * value:.1f}"


def _confusion(found: dict[str, Any], role: str) -> Iterator[Block]:
    summed = f", summed over {found['seeds']} seeds" if found["seeds"] > 1 else ""
    if found["shown"]:
        of = f"Test examples by gold class (rows) and predicted class (columns){summed}."
        yield Text(f"{of} The shade shows the share within the row.", "small")
        labels, counts = [Span(label) for label in found["labels"]], found["matrix"]
        cells: list[Row] = [(label, *(f"{n:,}" for n in row)) for label, row in zip(labels, counts, strict=True)]
        shares = [[count / max(sum(row), 1) for count in row] for row in counts]
        yield Table(["Gold", *map(Column, labels)], cells, shares=shares, role=role)
    elif found["frequent"]:
        rows = [(Span(one["gold"]), Span(one["predicted"]), f"{one['count']:,}") for one in found["frequent"]]
        yield Text(f"The most frequent confusions on test{summed}.", "small")
        yield Table(["Gold", Column("predicted", "left"), "examples"], rows)


def _classes(found: dict[str, Any]) -> Iterator[Block]:
    rows: list[Row] = []
    for row in found["rows"]:
        f1 = [score_text(spread) if row["support"] else "–" for spread in row["f1"]]
        rows.append((Span(row["label"]), f"{row['support']:,}", *f1))
    heading = "F1 of each class on test"
    table = Table(["Class", "examples", *(Column(Span(name)) for name in found["groups"])], rows)
    if len(rows) <= MOST_CLASSES:
        yield from (Heading(heading, 3), table)
    else:
        yield Details(heading, (table,))


def write_report(folder: Path, contents: Contents) -> None:
    """Write report.html, report.md and report.json."""
    write_pages(folder, "report", contents["task"]["name"], list(_blocks(contents)), contents)


def brief(contents: Contents) -> Iterator[Block]:
    """What a terminal shows at the end of a run: what was found, the scores of all models, the checks."""
    yield from _opening(contents)
    yield Heading("Results")
    yield replace(_scores(contents["groups"], contents["task"], _marked(contents), []), note="")
    yield from checks.section(contents["checks"])


def _opening(contents: Contents) -> list[Block]:
    task, warnings = contents["task"], checks.warnings(contents["checks"])
    first, *others = contents["findings"]
    findings = [_lede(first, contents["best"]), *map(_headed, others)]
    return blocks.opening("TLM report", Span(task["name"]), _facts(task), findings, contents["gone"], warnings)


def _blocks(contents: Contents) -> Iterator[Block]:
    yield from _opening(contents)
    yield from results(contents)
    yield from checks.section(contents["checks"])
    if contents["since"]:
        yield from since.section(contents["since"], contents["task"]["metric_name"])
    yield from curves_section(contents["curves"], contents["groups"])
    yield from predictions(contents)
    yield from coverage(contents)
    yield from preview.section(contents["evidence"])
    yield from lineage.dropped_section(contents["dropped"])
    yield from bill_section(contents)
    yield from lineage.section(contents["lineage"])
    command = Span("tlm provenance MODEL", "code")
    yield Text((command, " lists the sources behind a model, with their licences."), "small")


def _lede(sentence: str, best: Best) -> Line:
    """The first sentence, with the name of the model in its colour."""
    before, name, after = sentence.partition(best["name"])
    return (before, Span(name, "name", best["role"]), after) if name and before.startswith("Use ") else sentence


def _headed(sentence: str) -> Line:
    """A sentence whose verdict, before its numbers, stands out; several sentences stay as they are."""
    verdict, colon, numbers = sentence.partition(": ")
    return (Span(f"{verdict}:", "bold"), f" {numbers}") if colon and ". " not in verdict else sentence


def _facts(task: Task) -> str:
    noun = "labels, several a text" if task["problem"] == SEVERAL else "classes"
    kind = f"{task['classes']} {noun}" if task["classes"] else "regression"
    counts = [f"{task['counts'][part]:,} {part}" for part in ("train", "dev", "test") if part in task["counts"]]
    return " · ".join([kind, *counts, f"metric: {task['metric_name']}"])
