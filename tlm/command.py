"""A command-line command out of a plain function: its signature gives the options, its docstring the help."""

import importlib
import inspect
import json
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

FLAG_NAMES = {"overrides": "--set"}  # `set` is a builtin in Python


def command(target: str) -> Callable[..., None]:
    """The command for ``module:function``: parameters before the ``*`` become arguments, the others options."""
    module, _, name = target.partition(":")
    function = getattr(importlib.import_module(module), name)
    signature = inspect.signature(function, eval_str=True)
    helps = _helps(function)
    parameters = [_parameter(parameter, helps.get(parameter.name, "")) for parameter in signature.parameters.values()]
    is_step = signature.return_annotation is str and "root" in signature.parameters
    if is_step:
        parameters.append(_json_option())

    def run(**values: Any) -> None:
        as_json = values.pop("as_json", False)
        result = function(**values)
        if is_step:
            print(_described(result) if as_json else result)
        elif result is not None:
            print(result)

    run.__name__ = name
    run.__doc__ = _body(function)
    run.__signature__ = inspect.Signature(parameters, return_annotation=None)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _parameter(parameter: inspect.Parameter, text: str) -> inspect.Parameter:
    required = parameter.default is inspect.Parameter.empty
    if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
        names = [FLAG_NAMES[parameter.name]] if parameter.name in FLAG_NAMES else []
        info = typer.Option(*names, help=text)
    else:
        info = typer.Argument(help=text, metavar=parameter.name.upper())
    return parameter.replace(
        kind=inspect.Parameter.KEYWORD_ONLY,
        annotation=Annotated[_annotation(parameter.annotation), info],
        default=inspect.Parameter.empty if required else _plain(parameter.default),
    )


def _annotation(annotation: Any) -> Any:
    return list[str] if annotation == Sequence[str] else annotation  # typer knows lists only


def _plain(default: Any) -> Any:
    return list(default) if isinstance(default, tuple) else default


def _json_option() -> inspect.Parameter:
    info = typer.Option("--json", help="Print the result's URI, content and counts as one line of JSON.")
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter("as_json", kind, default=False, annotation=Annotated[bool, info])


def _described(uri: str) -> str:
    from tlm.artifacts.artifact import Artifact

    manifest = Artifact.open(uri).manifest
    return json.dumps({"uri": uri, "content": manifest.content, "counts": manifest.counts, "details": manifest.details})


def _helps(function: Callable[..., Any]) -> dict[str, str]:
    from docstring_parser import parse

    return {entry.arg_name: entry.description or "" for entry in parse(function.__doc__ or "").params}


def _body(function: Callable[..., Any]) -> str:
    text = inspect.getdoc(function) or ""
    return text.partition("\nArgs:")[0].strip()
