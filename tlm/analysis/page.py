"""The pages of a study, in the style of the report."""

from pathlib import Path
from typing import Any

from tlm.evaluation.pages.page import write_pages

TEMPLATES = Path(__file__).parent / "templates"


def write_study_pages(folder: Path, study: str, contents: dict[str, Any], figures: dict[str, str]) -> None:
    """Write study.html, study.md, study.json and a file ``<name>.svg`` for each figure.

    Args:
        folder: Where to write the files.
        study: Name of the templates.
        contents: Everything that the templates show.
        figures: SVG by name.
    """
    for name, svg in figures.items():
        (folder / f"{name}.svg").write_text(svg, encoding="utf-8", newline="\n")
    write_pages(TEMPLATES, study, folder, "study", contents, pictures=figures)
