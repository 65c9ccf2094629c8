"""Write tables of the documentation from the code: ``python -m tests.commands_page``.

That of commands in docs/commands.md, and that of the pipeline's parameters in docs/kubeflow.md.
"""

import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from pipelines.compiled import build as pipeline
from pipelines.run import app
from tlm.cli.command import descriptions
from tlm.cli.main import COMMANDS, build

DOCS = Path(__file__).parents[1] / "docs"
BEGIN, END = "<!-- python -m tests.commands_page -->\n", "<!-- end -->"


def commands() -> str:
    """Return the commands of both programs with their arguments and summaries, as a Markdown table."""
    rows = [*_tlm(), *_run()]
    return "\n".join(["| Command | Arguments | Purpose |", "|---|---|---|", *rows])


def parameters() -> str:
    """Return the parameters of the pipeline `tlm` with their defaults and meanings, as a Markdown table."""
    function = pipeline("tlm").pipeline_func
    meanings, given = descriptions(function), inspect.signature(function).parameters
    rows = [f"| `{name}` | `{json.dumps(one.default)}` | {meanings[name]} |" for name, one in given.items()]
    return "\n".join(["| Parameter | Default | Meaning |", "|---|---|---|", *rows])


TABLES = {"commands.md": commands, "kubeflow.md": parameters}


def page(name: str) -> str:
    """Return a page with a new table between the marks."""
    before, rest = (DOCS / name).read_text(encoding="utf-8").split(BEGIN)
    return f"{before}{BEGIN}{TABLES[name]()}\n{END}{rest.partition(END)[2]}"


def _tlm() -> Iterator[str]:
    for name, (_, summary) in COMMANDS.items():
        yield _row(f"tlm {name}", _commands(build([name]))[name], summary)


def _run() -> Iterator[str]:
    for name, command in _commands(app).items():
        summary = command.help.partition("\n")[0].partition(". ")[0].removesuffix(".")
        yield _row(f"python -m pipelines.run {name}", command, summary)


def _row(name: str, command: Any, summary: str) -> str:
    given = [param for param in command.params if param.param_type_name == "argument"]
    words = (f"{param.metavar}{'…' if param.nargs < 0 else ''}" for param in given)
    shown = " ".join(word if param.required else f"[{word}]" for param, word in zip(given, words, strict=True))
    return f"| `{name}` | {f'`{shown}`' if shown else '–'} | {summary} |"


def _commands(program: typer.Typer) -> dict[str, Any]:
    commands: dict[str, Any] = vars(typer.main.get_command(program))["commands"]
    return commands


if __name__ == "__main__":
    for changed in TABLES:
        (DOCS / changed).write_text(page(changed), encoding="utf-8")
