"""Run the pipeline here, or compile it for a Kubeflow cluster: ``python -m pipelines.run --help``."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from kfp.compiler import Compiler

from pipelines import local as local_run
from pipelines.parameters import read_parameters
from pipelines.tlm import tlm
from tlm.errors import TlmError

app = typer.Typer(
    help=__doc__,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

Params = Annotated[Path | None, typer.Option(help="YAML file with parameters; samples are in pipelines/params.")]
Changes = Annotated[list[str], typer.Option("--set", help="One parameter as name=value; may be repeated.")]


@app.command()
def local(params: Params = None, changes: Changes = []) -> None:  # noqa: B006  # typer copies it
    """Run the pipeline on this machine; finished steps of an earlier run are found and not repeated."""
    local_run.run(read_parameters(params, changes))


@app.command()
def compile(output: Annotated[Path, typer.Option("-o", "--output", help="File to write.")]) -> None:
    """Compile the pipeline into the YAML file that the Kubeflow UI and API take."""
    if output.suffix not in (".yaml", ".yml", ".json"):
        raise typer.BadParameter(f"'{output}' must end in .yaml, .yml or .json")
    Compiler().compile(tlm, str(output))


def main() -> None:
    """Run the program; what people did wrong is one sentence and exit code 2."""
    try:
        app()
    except TlmError as error:
        print(f"pipelines.run: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
