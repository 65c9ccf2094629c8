"""The report's contents as HTML, Markdown and JSON."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from tlm.evaluation.pages import plots
from tlm.evaluation.pages.compute import Point, published, score_against_compute
from tlm.evaluation.pages.text import cell, code, power, prose
from tlm.evaluation.report.findings import heard, hundred, plain_score

TEMPLATES = Path(__file__).parent / "templates"
Contents = dict[str, Any]


def as_html(told: Contents) -> str:
    """One self-contained page: no script, no address outside, every text escaped."""
    page = environment(autoescape=True).get_template("report.html.j2")
    colours = {"light": plots.css_colours(1), "dark": plots.css_colours(2)}
    return page.render(**told, colours=colours, pictures=_pictures(told), costs=cost_columns(told))


def as_markdown(told: Contents) -> str:
    """The same numbers for places that show Markdown; texts that others wrote stand in code spans."""
    return environment(autoescape=False).get_template("report.md.j2").render(**told, costs=cost_columns(told))


def as_json(told: Contents) -> str:
    """All of it as data."""
    return json.dumps(told, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def environment(*, autoescape: bool) -> Environment:
    """Where templates are read, with the filters that they use; what is missing is an error."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=autoescape,  # off for Markdown only, where HTML's escapes would be shown as text
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(
        hundred=hundred,
        plain_score=plain_score,
        amount=amount,
        interval=interval,
        signed=signed,
        device=device,
        paid=paid,
        code=code,
        cell=cell,
        power=power,
        prose=prose,
    )
    return environment


def _pictures(told: Contents) -> dict[str, Any]:
    groups = told["groups"]
    metric = told["task"]["metric_name"]
    losses = heard(groups)
    arms = [_point(group) for group in groups]
    scatter = told["scatter"] if told["scatter"] and told["scatter"]["gold"] else None
    return {
        "test": plots.dots(groups, "test", f"{metric} on test"),
        "mlm": plots.dots(losses, "mlm_loss", "masked-LM loss on test text (lower is better)", 1.0) if losses else None,
        "compute": _compute(arms, f"{metric} on test") if any(arm.flops for arm in arms) else None,
        "curves": [(panel["title"], plots.lines(panel, groups)) for panel in told["curves"]],
        "scatter": plots.scatter(**scatter, role=told["best"]["role"]) if scatter else None,
    }


def _point(group: dict[str, Any]) -> Point:
    scores = [100 * score for score in group["test"]["values"]]
    return Point(group["name"], group["cost"]["paper_flops"]["mean"] or 0.0, scores, group["role"])


def _compute(arms: list[Point], label: str) -> str:
    return plots.data_uri(score_against_compute(arms, published(), label))


def cost_columns(told: Contents) -> dict[str, tuple[str, Callable[[dict[str, Any]], str]]]:
    """The kinds of cost that were counted for some arm: heading and form of each."""
    found = [group["cost"] for group in told["groups"]]
    found += [stage for group in told["groups"] for stage in group["stages"].values()]
    return {name: column for name, column in COSTS.items() if any(cost[name]["values"] for cost in found)}


def amount(spread: dict[str, Any]) -> str:
    """A mean of counts, large ones as powers: tokens, FLOPs."""
    mean = spread["mean"]
    if mean is None:
        return "–"
    return f"{mean:,.0f}" if mean < 1e6 else power(mean)


def interval(spread: dict[str, Any]) -> str:
    """The 95 % interval of a score in hundredths."""
    return "–" if spread["low"] is None else f"{100 * spread['low']:.1f} – {100 * spread['high']:.1f}"


def signed(difference: dict[str, Any]) -> str:
    """The interval of a difference of scores in hundredths."""
    low, high = difference["low"], difference["high"]
    return "–" if low is None else f"{100 * low:+.1f} to {100 * high:+.1f}"


def seconds(spread: dict[str, Any]) -> str:
    """A mean duration in the unit that suits it."""
    mean = spread["mean"]
    if mean is None:
        return "–"
    for limit, size, unit in ((120, 1, "s"), (7200, 60, "min"), (172800, 3600, "h")):
        if mean < limit:
            return f"{mean / size:.0f} {unit}"
    return f"{mean / 86400:.1f} d"


def energy(spread: dict[str, Any]) -> str:
    """Mean joules as watt-hours."""
    if spread["mean"] is None:
        return "–"
    hours = spread["mean"] / 3600
    return f"{hours:.1f} Wh" if hours < 1000 else f"{hours / 1000:,.1f} kWh"


def money(spread: dict[str, Any]) -> str:
    """A mean sum in the currency of the prices."""
    mean = spread["mean"]
    if mean is None:
        return "–"
    return f"{mean:,.2f}" if mean >= 1 else f"{mean:.2g}" if mean >= 1e-4 else "< 0.0001"


def device(stage: dict[str, Any]) -> str:
    """What a stage was trained on: a CPU with its threads, or so many GPUs."""
    count = stage["threads" if stage["device"] == "cpu" else "processes"]
    name = f"{stage['device']} × {count}" if stage["device"] and count else stage["device"]
    return ", ".join(filter(None, (name, stage["precision"])))


def paid(prices: dict[str, float]) -> str:
    """The prices that were given, in words."""
    units = {"gpu_hour": "an hour of a GPU", "cpu_hour": "an hour of a CPU core", "kilowatt_hour": "a kilowatt-hour"}
    return ", ".join(f"{prices[name]:g} for {unit}" for name, unit in units.items() if prices[name])


COSTS = {
    "steps": ("steps", amount),
    "tokens": ("tokens", amount),
    "flops": ("FLOPs", amount),
    "paper_flops": ("by the paper’s rule", amount),
    "seconds": ("time", seconds),
    "gpu_seconds": ("GPU time", seconds),
    "joules": ("energy", energy),
    "money": ("money", money),
}
