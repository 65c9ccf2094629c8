"""Study pages: HTML, Markdown, JSON and SVG files in the style of the report."""

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader

from tlm.evaluation.pages import page, plots

TEMPLATES = Path(__file__).parent / "templates"


def write_pages(folder: Path, study: str, contents: dict[str, Any], figures: dict[str, str]) -> None:
    """Write study.html (self-contained, no script, all text escaped), study.md, study.json and ``<name>.svg``.

    Args:
        folder: Where to write the files.
        study: Name of the templates: ``<study>.html.j2`` and ``<study>.md.j2``.
        contents: Everything that the templates show; also written as study.json.
        figures: SVG by name.
    """
    colours = {"light": plots.css_colours(1), "dark": plots.css_colours(2)}
    pictures = {name: plots.data_uri(svg) for name, svg in figures.items()}
    html, markdown = (_environment(autoescape=escape) for escape in (True, False))
    files = {
        **{f"{name}.svg": svg for name, svg in figures.items()},
        "study.html": html.get_template(f"{study}.html.j2").render(**contents, colours=colours, pictures=pictures),
        "study.md": markdown.get_template(f"{study}.md.j2").render(**contents),
        "study.json": page.as_json(contents),
    }
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8", newline="\n")


def _environment(*, autoescape: bool) -> Environment:
    environment = page.environment(autoescape=autoescape)
    environment.loader = FileSystemLoader([TEMPLATES, page.TEMPLATES])
    environment.filters.update(percent=percent, count=count)
    return environment


def percent(share: float | None) -> str:
    """Format a share as a percentage, with one decimal below 10 %."""
    if share is None:
        return "–"
    return f"{share:.0%}" if share >= 0.0995 or share == 0 else f"{share:.1%}"


def count(value: float | None) -> str:
    """Format a count, or a mean of counts with at most one decimal."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"
