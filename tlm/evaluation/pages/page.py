"""Reports and studies as HTML, Markdown and JSON files."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from tlm.evaluation.pages import plots, units
from tlm.evaluation.pages.compute import Point, published, score_against_compute
from tlm.evaluation.pages.text import cell, code, power, prose
from tlm.evaluation.report.findings import hundred, plain_score, same_vocabulary

MOST_DIGITS = 5  # after the point; smaller numbers are written as powers of ten
TEMPLATES = Path(__file__).parent / "templates"
Contents = dict[str, Any]
Spread = dict[str, Any]  # of `tlm.evaluation.report.runs.spread`


def write_report(folder: Path, contents: Contents) -> None:
    """Write the report on one task: report.html, report.md and report.json."""
    groups, metric = contents["groups"], contents["task"]["metric_name"]
    losses = same_vocabulary(groups)
    scatter = contents["scatter"] if contents["scatter"] and contents["scatter"]["gold"] else None
    loss = "masked-LM loss on test text (lower is better)"
    pictures = {
        "test": plots.dots(groups, "test", f"{metric} on test"),
        "mlm": plots.dots(losses, "mlm_loss", loss, 1.0) if losses else None,
        "compute": _compute(groups, f"{metric} on test"),
        "curves": [(panel["title"], plots.lines(panel, groups)) for panel in contents["curves"]],
        "scatter": plots.scatter(**scatter, role=contents["best"]["role"]) if scatter else None,
    }
    costs = [cost for group in groups for cost in (group["cost"], *group["stages"].values())]
    columns, speed = units.columns(contents["bill"])
    shown = {"pictures": pictures, "costs": _costs(costs), "columns": columns, "speed": speed, "units": units}
    write_pages(TEMPLATES, "report", folder, "report", contents, **shown)


def write_multitask(folder: Path, contents: Contents) -> None:
    """Write the report on several tasks: report.html, report.md and report.json."""
    pictures = [
        (task["name"], plots.dots(task["groups"], "test", f"{task['metric_name']} on test"))
        for task in contents["tasks"]
    ]
    costs = _costs([arm["total"] for arm in contents["arms"]])
    write_pages(TEMPLATES, "multitask", folder, "report", contents, pictures=pictures, costs=costs)


def _costs(costs: list[dict[str, Spread]]) -> dict[str, Any]:
    """The columns of the table of costs; a kind of cost that was measured nowhere gets none."""
    return {name: column for name, column in COSTS.items() if any(cost[name]["values"] for cost in costs)}


def write_pages(templates: Path, template: str, folder: Path, kind: str, contents: Contents, **shown: Any) -> None:
    """Write ``<kind>.html``, ``<kind>.md`` and ``<kind>.json``.

    The HTML page is self-contained: no script, no address outside, every text escaped. In Markdown, texts from
    outside are in code spans. A value that is missing in a template is an error.

    Args:
        templates: Folder of the templates, which may extend and include those of the report.
        template: Name of the templates: ``<template>.html.j2`` and ``<template>.md.j2``.
        folder: Where to write the files.
        kind: What the pages are: report or study.
        contents: Everything that the templates show; the same contents give the same bytes.
        shown: Pictures (as SVG) and columns, which are not in the JSON file.
    """
    colours = {"light": plots.css_colours(1), "dark": plots.css_colours(2)}
    for form in ("html", "md"):
        environment = Environment(
            loader=FileSystemLoader([templates, TEMPLATES]),
            autoescape=form == "html",  # Markdown would show HTML's escapes as text
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
        )
        environment.filters.update({function.__name__: function for function in FILTERS}, amount=_mean(units.amount))
        page = environment.get_template(f"{template}.{form}.j2").render(**contents, **shown, kind=kind, colours=colours)
        (folder / f"{kind}.{form}").write_text(page, encoding="utf-8", newline="\n")
    text = json.dumps(contents, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    (folder / f"{kind}.json").write_text(text, encoding="utf-8", newline="\n")


def _compute(groups: list[dict[str, Any]], label: str) -> str | None:
    """The picture of score against compute; None if no arm has FLOPs."""
    arms = [
        Point(
            group["name"],
            group["cost"]["paper_flops"]["mean"] or 0.0,
            [100 * score for score in group["test"]["values"]],
            group["role"],
        )
        for group in groups
    ]
    return score_against_compute(arms, published(), label) if any(arm.flops for arm in arms) else None


def interval(spread: Spread) -> str:
    """The 95 % interval of a score in hundredths."""
    return "–" if spread["low"] is None else f"{100 * spread['low']:.1f} – {100 * spread['high']:.1f}"


def in_units(spread: Spread | None) -> str:
    """An error in the unit of the targets, to three digits: ``1.92 ± 0.14``, ``3.1e-07``; "–" where none is known."""
    mean = spread["mean"] if spread else None
    if spread is None or mean is None:
        return "–"
    digits = max(0, 2 - math.floor(math.log10(mean))) if mean else 0
    if digits > MOST_DIGITS:
        return f"{mean:.2e}" + (f" ± {spread['std']:.1e}" if spread["std"] is not None else "")
    return plain_score(spread, digits=digits)


def signed(difference: dict[str, Any]) -> str:
    """The interval of a difference of scores in hundredths."""
    low, high = difference["low"], difference["high"]
    return "–" if low is None else f"{100 * low:+.1f} to {100 * high:+.1f}"


def device(stage: dict[str, Any]) -> str:
    """What a stage was trained on: a CPU with its threads, or a number of GPUs."""
    count = stage["threads" if stage["device"] == "cpu" else "processes"]
    name = f"{stage['device']} × {count}" if stage["device"] and count else stage["device"]
    return ", ".join(filter(None, (name, stage["precision"])))


def percent(share: float | None) -> str:
    """A share as a percentage, with one decimal below 10 %."""
    if share is None:
        return "–"
    return f"{share:.0%}" if share >= 0.0995 or share == 0 else f"{share:.1%}"


def count(value: float | None) -> str:
    """A count, or a mean of counts with at most one decimal."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"


def _mean(form: Callable[[float], str]) -> Callable[[Spread], str]:
    """Apply a format to the mean of a spread."""
    return lambda spread: "–" if spread["mean"] is None else form(spread["mean"])


COSTS = {  # heading and format of each kind of cost
    "steps": ("steps", _mean(units.amount)),
    "tokens": ("tokens", _mean(units.amount)),
    "flops": ("FLOPs", _mean(units.amount)),
    "paper_flops": ("by the paper’s rule", _mean(units.amount)),
    "seconds": ("time", _mean(units.time)),
    "gpu_seconds": ("GPU time", _mean(units.time)),
    "joules": ("energy", _mean(units.joules)),
    "grams": ("CO₂e", _mean(units.grams)),
    "money": ("money", _mean(units.money)),
}
FILTERS = (
    *(hundred, plain_score, in_units, interval, signed, device, units.paid, percent, count, power),
    *(code, cell, prose, plots.data_uri),
)
