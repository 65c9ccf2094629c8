"""The pages of a study, in the style of the report."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tlm.evaluation.pages.blocks import Block
from tlm.evaluation.pages.page import write_pages


def write_study_pages(
    folder: Path, title: str, blocks: Sequence[Block], contents: dict[str, Any], figures: dict[str, str]
) -> None:
    """Write study.html, study.md, study.json and a file ``<name>.svg`` for each figure (SVG by name)."""
    for name, svg in figures.items():
        (folder / f"{name}.svg").write_text(svg, encoding="utf-8", newline="\n")
    write_pages(folder, "study", title, blocks, contents)
