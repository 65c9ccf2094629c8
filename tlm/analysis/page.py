"""Studies as HTML, Markdown, JSON and SVG files, in the dress of the report."""

import base64
import json
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from tlm.evaluation.pages import page, plots
from tlm.evaluation.pages.text import cell, code, power, prose

TEMPLATES = Path(__file__).parent / "templates"


def write_pages(folder: Path, study: str, told: dict[str, Any], figures: dict[str, str]) -> None:
    """Write study.html (self-contained, no script, all text escaped), study.md, study.json and ``<name>.svg``.

    Args:
        folder: Where to.
        study: Name of the templates: ``<study>.html.j2`` and ``<study>.md.j2``.
        told: All that they say; it is study.json.
        figures: SVG by name.
    """
    colours = {"light": plots.css_colours(1), "dark": plots.css_colours(2)}
    html = _environment(autoescape=True).get_template(f"{study}.html.j2")
    markdown = _environment(autoescape=False).get_template(f"{study}.md.j2")
    pictures = {name: _uri(svg) for name, svg in figures.items()}
    files = {f"{name}.svg": svg for name, svg in figures.items()}
    files["study.html"] = html.render(**told, colours=colours, pictures=pictures)
    files["study.md"] = markdown.render(**told)
    files["study.json"] = json.dumps(told, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8", newline="\n")


def _uri(svg: str) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


def _environment(*, autoescape: bool) -> Environment:
    environment = Environment(
        loader=FileSystemLoader([TEMPLATES, page.TEMPLATES]),
        autoescape=autoescape,  # off for Markdown only, where HTML's escapes would be shown as text
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(code=code, cell=cell, power=power, prose=prose, percent=percent, count=count)
    return environment


def percent(share: float | None) -> str:
    """A share in per cent; small ones with a digit more."""
    if share is None:
        return "–"
    return f"{share:.0%}" if share >= 0.0995 or share == 0 else f"{share:.1%}"


def count(value: float | None) -> str:
    """A whole number, or a mean of such with at most one digit after the point."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"
