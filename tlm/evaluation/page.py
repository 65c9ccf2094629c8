"""The report's contents as HTML, Markdown and JSON."""

import json
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from tlm.evaluation import plots
from tlm.evaluation.findings import finished, hundred, plain_score
from tlm.evaluation.text import cell, code, power, prose

TEMPLATES = Path(__file__).parent / "templates"
Contents = dict[str, Any]


def as_html(told: Contents) -> str:
    """One self-contained page: no script, no address outside, every text escaped."""
    page = _environment(autoescape=True).get_template("report.html.j2")
    colours = {"light": plots.css_colours(1), "dark": plots.css_colours(2)}
    return page.render(**told, colours=colours, pictures=_pictures(told))


def as_markdown(told: Contents) -> str:
    """The same numbers for places that show Markdown; texts that others wrote stand in code spans."""
    return _environment(autoescape=False).get_template("report.md.j2").render(**told)


def as_json(told: Contents) -> str:
    """All of it as data."""
    return json.dumps(told, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _environment(*, autoescape: bool) -> Environment:
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
        seconds=seconds,
        code=code,
        cell=cell,
        power=power,
        prose=prose,
    )
    return environment


def _pictures(told: Contents) -> dict[str, Any]:
    groups = told["groups"]
    metric = told["task"]["metric_name"]
    heard = [group for group in finished(groups) if group["mlm_loss"]["mean"] is not None]
    spent = any(group["cost"]["flops"]["mean"] for group in groups)
    scatter = told["scatter"] if told["scatter"] and told["scatter"]["gold"] else None
    return {
        "test": plots.dots(groups, "test", f"{metric} on test"),
        "mlm": plots.dots(heard, "mlm_loss", "masked-LM loss on test text (lower is better)", 1.0) if heard else None,
        "compute": plots.compute(groups, f"{metric} on test") if spent else None,
        "curves": [(panel["title"], plots.lines(panel, groups)) for panel in told["curves"]],
        "scatter": plots.scatter(**scatter, role=told["best"]["role"]) if scatter else None,
    }


def amount(spread: dict[str, Any]) -> str:
    """A mean of counts, large ones as powers: tokens, FLOPs."""
    mean = spread["mean"]
    if mean is None:
        return "–"
    return f"{mean:,.0f}" if mean < 1e6 else power(mean)


def interval(spread: dict[str, Any]) -> str:
    """The 95 % interval of a score in hundredths."""
    return "–" if spread["low"] is None else f"{100 * spread['low']:.1f} – {100 * spread['high']:.1f}"


def seconds(spread: dict[str, Any]) -> str:
    """A mean duration in the unit that suits it."""
    mean = spread["mean"]
    if mean is None:
        return "–"
    for limit, size, unit in ((120, 1, "s"), (7200, 60, "min"), (172800, 3600, "h")):
        if mean < limit:
            return f"{mean / size:.0f} {unit}"
    return f"{mean / 86400:.1f} d"
