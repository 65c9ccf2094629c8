"""Rewrite the table of the pipeline's parameters in documents: ``python -m pipelines.compile.document FILE…``."""

import inspect
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tlm.command import descriptions

BEGIN, END = "<!-- parameters: begin -->\n", "<!-- parameters: end -->\n"


def replaced(text: str, function: Callable[..., Any]) -> str:
    """Return `text` with a new table of the parameters of a pipeline function between its two marks."""
    meanings = descriptions(function)
    rows = [
        f"| `{name}` | `{json.dumps(parameter.default)}` | {meanings[name]} |\n"
        for name, parameter in inspect.signature(function).parameters.items()
    ]
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return "".join([before, BEGIN, "| parameter | default | meaning |\n|---|---|---|\n", *rows, END, after])


if __name__ == "__main__":
    from pipelines.tlm import tlm

    for page in map(Path, sys.argv[1:]):
        page.write_text(replaced(page.read_text(encoding="utf-8"), tlm.pipeline_func), encoding="utf-8")
