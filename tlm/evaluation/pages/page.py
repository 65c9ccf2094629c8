"""Reports and studies as HTML, Markdown and JSON files."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tlm.evaluation.pages.blocks import Block
from tlm.evaluation.pages.plain import markdown
from tlm.evaluation.pages.render import html


def write_pages(folder: Path, kind: str, title: str, blocks: Sequence[Block], contents: dict[str, Any]) -> None:
    """Write ``<kind>.html``, ``<kind>.md`` and ``<kind>.json``; equal blocks and contents give equal bytes.

    Args:
        folder: Where to write the files.
        kind: What the pages are: report or study.
        title: What the browser names the page.
        blocks: The page.
        contents: The data behind it.
    """
    told = json.dumps(contents, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    shown = {"html": html(f"{title} · TLM {kind}", blocks), "md": markdown(blocks), "json": told}
    for form, text in shown.items():
        (folder / f"{kind}.{form}").write_text(text, encoding="utf-8", newline="\n")
