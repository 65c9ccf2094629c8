"""The pipeline's parameters in words: for its own description in the Kubeflow UI, and as the table in the docs."""

import inspect
import json
from collections.abc import Callable
from typing import Any

from docstring_parser import parse

BEGIN, END = "<!-- parameters: begin -->\n", "<!-- parameters: end -->\n"


def description(function: Callable[..., Any]) -> str:
    """A pipeline function's summary and, because the UI's form shows names only, what each parameter means."""
    told = parse(function.__doc__ or "")
    lines = [f"- `{entry.arg_name}`: {entry.description}" for entry in told.params]
    return "\n".join([told.short_description or "", "", "Parameters:", "", *lines])


def table(function: Callable[..., Any]) -> str:
    """The parameters of a pipeline function as a Markdown table, with their defaults."""
    means = {entry.arg_name: entry.description for entry in parse(function.__doc__ or "").params}
    rows = [
        f"| `{name}` | `{json.dumps(parameter.default)}` | {means[name]} |"
        for name, parameter in inspect.signature(function).parameters.items()
    ]
    return "\n".join(["| parameter | default | meaning |", "|---|---|---|", *rows, ""])


def replaced(text: str, function: Callable[..., Any]) -> str:
    """`text` with its table of parameters made anew."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{table(function)}{END}{after}"
