"""Write the table of commands in docs/commands.md from the command lines: ``python -m tests.commands_page``."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from pipelines.run import app
from tlm.cli.main import COMMANDS, build

PAGE = Path(__file__).parents[1] / "docs" / "commands.md"
BEGIN, END = "<!-- python -m tests.commands_page -->\n", "<!-- end -->"


def table() -> str:
    """Return the commands of both programs with their arguments and summaries, as a Markdown table."""
    rows = [*_tlm(), *_run()]
    return "\n".join(["| Command | Arguments | Purpose |", "|---|---|---|", *rows])


def page(text: str) -> str:
    """Return the page `text` with a new table between the marks."""
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}{table()}\n{END}{rest.partition(END)[2]}"


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
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
