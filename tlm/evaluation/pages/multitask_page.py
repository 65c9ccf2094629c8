"""The report on several tasks as HTML, Markdown and JSON."""

from typing import Any

from tlm.evaluation.pages import plots
from tlm.evaluation.pages.page import COSTS, as_json, environment

__all__ = ["as_html", "as_json", "as_markdown"]

Told = dict[str, Any]


def as_html(told: Told) -> str:
    """One self-contained page: no script, no address outside, every text escaped."""
    page = environment(autoescape=True).get_template("multitask.html.j2")
    colours = {"light": plots.css_colours(1), "dark": plots.css_colours(2)}
    pictures = [
        (task["name"], plots.dots(task["groups"], "test", f"{task['metric_name']} on test")) for task in told["tasks"]
    ]
    return page.render(**told, colours=colours, pictures=pictures, costs=_costs(told))


def as_markdown(told: Told) -> str:
    """The same numbers for places that show Markdown; texts that others wrote stand in code spans."""
    return environment(autoescape=False).get_template("multitask.md.j2").render(**told, costs=_costs(told))


def _costs(told: Told) -> dict[str, Any]:
    """The kinds of cost that were counted for some arm: heading and form of each."""
    totals = [arm["total"] for arm in told["arms"]]
    return {name: column for name, column in COSTS.items() if any(cost[name]["values"] for cost in totals)}
