"""The report's sections on scores and predictions."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tlm.evaluation.pages import plots, units
from tlm.evaluation.pages.blocks import Block, Column, Details, Drawn, Figure, Heading, Matrix, Row, Span, Table, Text
from tlm.evaluation.report.findings import hundred, plain_score, same_vocabulary
from tlm.evaluation.report.page.formats import Form, by_arm, in_units, interval, score, signed
from tlm.evaluation.score.metrics import METRIC_NAMES

Contents = dict[str, Any]
Groups = Sequence[dict[str, Any]]


def results(contents: Contents) -> Iterator[Block]:
    """Scores of all arms, their differences, and scores without the texts that train has too."""
    groups, task = contents["groups"], contents["task"]
    losses = same_vocabulary(groups)
    yield Heading("Results")
    yield _scores(groups, task, contents["best"]["name"], losses)
    yield _figures(groups, f"{task['metric_name']} on test", losses)
    yield Heading("Other scores on test", 3)
    yield by_arm(groups, _others(groups[0]["scores"]))
    yield from _differences(contents["differences"])
    for split in groups[0]["without_copies"]:
        yield from _without_copies(groups, task, split)
    yield from _chosen(groups)


def _scores(groups: Groups, task: dict[str, Any], best: str, losses: Groups) -> Table:
    columns: dict[str, Form] = {
        "seeds": _repeats,
        "dev": lambda group: hundred(group["dev"]),
        "test": lambda group: hundred(group["test"]),
        "95 % interval, test": lambda group: interval(group["test"]),
    }
    if not task["classes"]:
        columns[f"{METRIC_NAMES['rmse']}, test"] = lambda group: in_units(group["scores"].get("rmse"))
    if losses:
        columns["masked-LM loss"] = lambda group: plain_score(group["mlm_loss"])
    if any(group["cost"]["flops"]["mean"] for group in groups):
        columns["FLOPs"] = lambda group: _flops(group["cost"]["flops"]["mean"])
    note = (
        f"Dev and test: {task['metric_name']} in hundredths, mean ± standard deviation over seeds, or over draws of "
        "the text; – for a model that is the same with every seed. Bold: the model that the first sentence of this "
        "report names. Intervals account for the choice of seeds (with 3 seeds or more), of the text where it was "
        "drawn (with 3 draws or more), and of test examples. A mixture’s dev score is cross-fitted."
    )
    if losses:
        note += (
            " The masked-LM loss is that of stage 1 on the task’s test texts; only losses of models with the same "
            "vocabulary are comparable."
        )
    return by_arm(groups, columns, note=note, strong=best if len(groups) > 1 else "")


def _repeats(group: dict[str, Any]) -> str:
    return "–" if group["fixed"] else str(group["repeats"] if group["draws"] else len(group["seeds"]))


def _flops(mean: float | None) -> str:
    return "–" if mean is None else units.amount(mean)


def _figures(groups: Groups, label: str, losses: Groups) -> Drawn:
    drawn, title = plots.dots(groups, "test", label), "Test score, a dot for each seed"
    figures = [Figure(title, drawn, "" if losses else "single")]
    if losses:
        loss = plots.dots(losses, "mlm_loss", "masked-LM loss on test text (lower is better)", 1.0)
        figures.append(Figure("Masked-LM loss on unseen text", loss))
    dashed = " Dashed: the baseline." if groups[0]["arm"] == "baseline" else ""
    note = Text(f"Stroke: mean. Band: 95 % interval (for losses, over seeds only).{dashed}", "small")
    return Drawn((*figures, note))


def _others(names: Iterable[str]) -> dict[str, Form]:
    """A column for each of these scores."""
    return {METRIC_NAMES[name]: _score(name) for name in names}


def _score(name: str) -> Form:
    return lambda group: score(group["scores"], name)


def _differences(found: Groups) -> Iterator[Block]:
    if not found:
        return
    kinds = {"arms": "words", "difference": "number", "95 % interval": "number", "ahead": "left"}
    rows = [
        (
            one["question"],
            (Span(one["first"]), " − ", Span(one["second"])),
            f"{100 * one['mean']:+.1f}",
            signed(one),
            Span(one["ahead"]) if one["ahead"] else "–" if one["low"] is None else "no order claimed",
        )
        for one in found
    ]
    note = "In hundredths, paired by test example. The comparisons were chosen by dev alone."
    if tested := sum(one["low"] is not None for one in found):
        note += (
            f" Intervals are corrected for {tested} comparison{'s' if tested > 1 else ''} (Bonferroni): together they "
            "have 95 % confidence."
        )
    yield Heading("Differences on test", 3)
    yield Table(["Question", *(Column(name, kind) for name, kind in kinds.items())], rows, note)  # type: ignore[arg-type]


def _without_copies(groups: Groups, task: dict[str, Any], split: str) -> Iterator[Block]:
    left = [{"name": group["name"], "role": group["role"]} | group["without_copies"][split] for group in groups]
    columns: dict[str, Form] = {
        task["metric_name"]: lambda one: hundred(one["score"]),
        "95 % interval": lambda one: interval(one["score"]),
        **_others([name for name in groups[0]["scores"] if name != task["metric"]]),
    }
    total = groups[0]["examples"][split]
    note = f"{left[0]['n']:,} of {total:,} examples. A model may have memorised the others."
    yield Heading(f"{split.capitalize()} without the texts that are also in train", 3)
    yield by_arm(left, columns, note=note)


def _chosen(groups: Groups) -> Iterator[Block]:
    told = []
    for group in groups:
        if group["chosen"]:
            tried = f", out of {group['tried']} settings" if group["tried"] else ""
            settings = "; ".join(f"{name} {value}" for name, value in group["chosen"].items())
            told.append(Text((Span(group["name"]), f"{tried}: {settings}."), "small"))
    if told:
        yield Details("What the models without a network, and mixtures, chose on dev", tuple(told))


def predictions(contents: Contents) -> Iterator[Block]:
    """Confusions and F1 of the classes, or predicted against gold values."""
    best, confusion, scatter = contents["best"], contents["confusion"], contents["scatter"]
    heading = Heading(("Predictions of ", Span(best["name"])))
    if confusion:
        yield heading
        yield from _confusion(confusion, best["role"])
        yield from _classes(contents["classes"])
    elif scatter and scatter["gold"]:
        caption = "Predicted against gold values on test, first seed; the line marks equality"
        yield Drawn((heading, Figure(caption, plots.scatter(**scatter, role=best["role"]), "single")))


def _confusion(found: dict[str, Any], role: str) -> Iterator[Block]:
    seeds = found["seeds"]
    if found["shown"]:
        summed = f"; sum over {seeds} seeds" if seeds > 1 else ""
        yield Text(
            f"Test examples by gold class (rows) and predicted class (columns){summed}. The shade shows the share "
            "within the row.",
            "small",
        )
        yield Matrix(found["labels"], found["matrix"], role)
    elif found["frequent"]:
        summed = f", summed over {seeds} seeds" if seeds > 1 else ""
        rows = [(Span(one["gold"]), Span(one["predicted"]), f"{one['count']:,}") for one in found["frequent"]]
        yield Text(f"The most frequent confusions on test{summed}.", "small")
        yield Table(["Gold", Column("Predicted", "left"), "Examples"], rows)


def _classes(found: dict[str, Any]) -> Iterator[Block]:
    rows: list[Row] = [(Span(row["label"]), f"{row['support']:,}", *map(hundred, row["f1"])) for row in found["rows"]]
    yield Heading("F1 of each class on test", 3)
    yield Table(["Class", "examples", *(Column(Span(name)) for name in found["groups"])], rows)
