"""Reports as HTML, Markdown and JSON files."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from tlm.evaluation.pages import plots
from tlm.evaluation.pages.compute import Point, published, score_against_compute
from tlm.evaluation.pages.text import cell, code, power, prose
from tlm.evaluation.report.findings import hundred, plain_score, same_vocabulary

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
    _write(folder, "report", contents, pictures, costs)


def write_multitask(folder: Path, contents: Contents) -> None:
    """Write the report on several tasks: report.html, report.md and report.json."""
    pictures = [
        (task["name"], plots.dots(task["groups"], "test", f"{task['metric_name']} on test"))
        for task in contents["tasks"]
    ]
    _write(folder, "multitask", contents, pictures, [arm["total"] for arm in contents["arms"]])


def _write(folder: Path, template: str, contents: Contents, pictures: Any, costs: list[dict[str, Spread]]) -> None:
    """Render the contents; a kind of cost that was measured nowhere gets no column.

    The HTML page is self-contained: no script, no address outside, every text escaped. In Markdown, texts from
    outside are in code spans.
    """
    columns = {name: column for name, column in COSTS.items() if any(cost[name]["values"] for cost in costs)}
    colours = {"light": plots.css_colours(1), "dark": plots.css_colours(2)}
    for form in ("html", "md"):
        page = environment(autoescape=form == "html").get_template(f"{template}.{form}.j2")
        text = page.render(**contents, colours=colours, pictures=pictures, costs=columns)
        (folder / f"report.{form}").write_text(text, encoding="utf-8", newline="\n")
    (folder / "report.json").write_text(as_json(contents), encoding="utf-8", newline="\n")


def as_json(contents: Contents) -> str:
    """The contents as JSON, the same bytes for the same contents."""
    return json.dumps(contents, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def environment(*, autoescape: bool) -> Environment:
    """Where templates are read, with the filters that they use; a missing value is an error."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=autoescape,  # off for Markdown only, which would show HTML's escapes as text
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    filters = (hundred, plain_score, interval, signed, device, paid, code, cell, power, prose)
    environment.filters.update({function.__name__: function for function in filters}, amount=shown(_count))
    return environment


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
    shown = any(arm.flops for arm in arms)
    return plots.data_uri(score_against_compute(arms, published(), label)) if shown else None


def interval(spread: Spread) -> str:
    """The 95 % interval of a score in hundredths."""
    return "–" if spread["low"] is None else f"{100 * spread['low']:.1f} – {100 * spread['high']:.1f}"


def signed(difference: dict[str, Any]) -> str:
    """The interval of a difference of scores in hundredths."""
    low, high = difference["low"], difference["high"]
    return "–" if low is None else f"{100 * low:+.1f} to {100 * high:+.1f}"


def device(stage: dict[str, Any]) -> str:
    """What a stage was trained on: a CPU with its threads, or a number of GPUs."""
    count = stage["threads" if stage["device"] == "cpu" else "processes"]
    name = f"{stage['device']} × {count}" if stage["device"] and count else stage["device"]
    return ", ".join(filter(None, (name, stage["precision"])))


def paid(prices: dict[str, float]) -> str:
    """The given prices in words."""
    units = {"gpu_hour": "an hour of a GPU", "cpu_hour": "an hour of a CPU core", "kilowatt_hour": "a kilowatt-hour"}
    return ", ".join(f"{prices[name]:g} for {unit}" for name, unit in units.items() if prices[name])


def shown(form: Callable[[float], str]) -> Callable[[Spread], str]:
    """Apply a format to the mean of a spread."""
    return lambda spread: "–" if spread["mean"] is None else form(spread["mean"])


def _count(mean: float) -> str:
    return f"{mean:,.0f}" if mean < 1e6 else power(mean)


def _seconds(mean: float) -> str:
    for limit, size, unit in ((120, 1, "s"), (7200, 60, "min"), (172800, 3600, "h")):
        if mean < limit:
            return f"{mean / size:.0f} {unit}"
    return f"{mean / 86400:.1f} d"


def _energy(joules: float) -> str:
    hours = joules / 3600
    return f"{hours:.1f} Wh" if hours < 1000 else f"{hours / 1000:,.1f} kWh"


def _money(mean: float) -> str:
    return f"{mean:,.2f}" if mean >= 1 else f"{mean:.2g}" if mean >= 1e-4 else "< 0.0001"


COSTS = {  # heading and format of each kind of cost
    "steps": ("steps", shown(_count)),
    "tokens": ("tokens", shown(_count)),
    "flops": ("FLOPs", shown(_count)),
    "paper_flops": ("by the paper’s rule", shown(_count)),
    "seconds": ("time", shown(_seconds)),
    "gpu_seconds": ("GPU time", shown(_seconds)),
    "joules": ("energy", shown(_energy)),
    "money": ("money", shown(_money)),
}
