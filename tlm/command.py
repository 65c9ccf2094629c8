"""Turn a plain function into a command: its signature gives the arguments and options, its docstring their help."""

import importlib
import inspect
import json
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

JSON_OF_STEP = "Print the result's URI, content and counts as one line of JSON."
JSON_OF_OTHERS = "Print the result as one line of JSON."
OPTION_NAMES = {"overrides": ("--set",)}  # `set` is a builtin in Python


class Answer(str):
    """What a command prints that is no step, and the same as plain values for ``--json``."""

    facts: Any

    def __new__(cls, text: str, facts: Any) -> "Answer":
        """Make it of the text for people and the facts for programs."""
        answer = super().__new__(cls, text)
        answer.facts = facts
        return answer


def command(target: str) -> Callable[..., None]:
    """Return the command for ``module:function``: parameters before the ``*`` are arguments, the others options.

    A step, which returns the URI of its result, also gets the option ``--json``, as does one that returns an `Answer`.
    """
    module, _, name = target.partition(":")
    function = getattr(importlib.import_module(module), name)
    signature = inspect.signature(function, eval_str=True)
    helps = descriptions(function)
    parameters = [_parameter(parameter, helps.get(parameter.name, "")) for parameter in signature.parameters.values()]
    is_step = signature.return_annotation is str and "root" in signature.parameters
    if is_step or signature.return_annotation is Answer:
        json_option = typer.Option("--json", help=JSON_OF_STEP if is_step else JSON_OF_OTHERS)
        kind = inspect.Parameter.KEYWORD_ONLY
        parameters.append(inspect.Parameter("as_json", kind, default=False, annotation=Annotated[bool, json_option]))

    def run(as_json: bool = False, **values: Any) -> None:
        result = function(**values)
        if result is not None:
            print(_as_json(result) if as_json else result)

    run.__signature__ = inspect.Signature(parameters, return_annotation=None)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def descriptions(documented: Any) -> dict[str, str]:
    """Return what a docstring says about each argument or attribute, by name, each on one line."""
    from docstring_parser import parse

    entries = parse(documented.__doc__ or "").params
    return {entry.arg_name: " ".join((entry.description or "").split()) for entry in entries}


def _parameter(parameter: inspect.Parameter, text: str) -> inspect.Parameter:
    if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
        info = typer.Option(*OPTION_NAMES.get(parameter.name, ()), help=text)
    else:
        info = typer.Argument(help=text, metavar=parameter.name.upper())
    annotation = list[str] if parameter.annotation == Sequence[str] else parameter.annotation  # typer knows lists only
    default = list(parameter.default) if isinstance(parameter.default, tuple) else parameter.default
    return parameter.replace(
        kind=inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[annotation, info], default=default
    )


def _as_json(result: str) -> str:
    from tlm.artifacts.artifact import Artifact

    if isinstance(result, Answer):
        return json.dumps(result.facts)
    uri, manifest = result, Artifact.open(result).manifest
    return json.dumps({"uri": uri, "content": manifest.content, "counts": manifest.counts, "details": manifest.details})
