"""Turn a plain function into a command: its signature gives the arguments and options, its docstring their help."""

import inspect
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass
from functools import wraps
from types import SimpleNamespace
from typing import Annotated, Any, get_type_hints

import typer
from docstring_parser import parse
from typer.models import ParameterInfo

from tlm.progress import Answer
from tlm.settings.options import FINE

JSON_OF_STEP = "Print the result's URI, content and counts as one line of JSON."
JSON_OF_OTHERS = "Print the result as one line of JSON."
PLAIN: dict[str, Any] = {  # options of our programs
    "no_args_is_help": True, "add_completion": False, "rich_markup_mode": None, "pretty_exceptions_enable": False,
}  # fmt: skip
OPTION_NAMES = {"overrides": ("--set",)}  # `set` is a builtin in Python


def command(function: Callable[..., Any]) -> Callable[..., None]:
    """Return the command for a function: parameters before the ``*`` are arguments, the others options.

    So are the fields of parameters that are dataclasses. A step, which returns the URI of its result, also gets the
    option ``--json``, as does a function that returns an `Answer`.
    """
    called = flat(function)
    signature, helps = inspect.signature(called), descriptions(called)
    parameters = [_parameter(parameter, helps[parameter.name]) for parameter in signature.parameters.values()]
    is_step = signature.return_annotation is str and "root" in signature.parameters
    if is_step or signature.return_annotation is Answer:
        json_option = typer.Option("--json", help=JSON_OF_STEP if is_step else JSON_OF_OTHERS)
        kind = inspect.Parameter.KEYWORD_ONLY
        parameters.append(inspect.Parameter("as_json", kind, default=False, annotation=Annotated[bool, json_option]))

    @wraps(function)
    def run(as_json: bool = False, **values: Any) -> None:
        result = called(**values)
        if result is not None:
            print(_as_json(result) if as_json else result)
        sys.stdout.flush()  # here, as at the exit an error would be no sentence

    run.__signature__ = inspect.Signature(parameters, return_annotation=None)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__doc__ = (parse(function.__doc__ or "").description or "").replace("``", "`")  # the help of the command
    return run


def _parameter(parameter: inspect.Parameter, text: str) -> inspect.Parameter:
    annotation = list[str] if parameter.annotation == Sequence[str] else parameter.annotation  # typer knows lists only
    typers = [mark for mark in getattr(annotation, "__metadata__", ()) if isinstance(mark, ParameterInfo)]
    if typers:
        typers[0].help = text
    elif parameter.kind is inspect.Parameter.KEYWORD_ONLY:
        annotation = Annotated[annotation, typer.Option(*OPTION_NAMES.get(parameter.name, ()), help=text)]
    else:
        annotation = Annotated[annotation, typer.Argument(help=text, metavar=parameter.name.upper())]
    default = list(parameter.default) if isinstance(parameter.default, tuple) else parameter.default
    return parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def _as_json(result: str) -> str:
    from tlm.artifacts.artifact import Artifact

    if isinstance(result, Answer):
        return json.dumps(result.facts)
    uri, manifest = result, Artifact.open(result).manifest
    return json.dumps({"uri": uri, "content": manifest.content, "counts": manifest.counts, "details": manifest.details})


def _fields(group: inspect.Parameter, form: bool) -> dict[str, inspect.Parameter]:
    """Return the parameters that stand for one that is a dataclass, by field."""
    values = group.annotation() if group.default is group.empty else group.default
    hints, prefix = get_type_hints(group.annotation, include_extras=True), ""
    if form:
        plain = get_type_hints(group.annotation)  # kfp knows no others
        hints = {name: plain[name] for name, hint in hints.items() if FINE not in getattr(hint, "__metadata__", ())}
        prefix = f"{group.name}_"
    return {
        name: group.replace(name=prefix + name, default=getattr(values, name), annotation=hint)
        for name, hint in hints.items()
    }


def flat(
    function: Callable[..., Any], *, form: bool = False, kinds: Mapping[str, type] = {}, **given: Any
) -> Callable[..., Any]:
    """Return `function` with each parameter that is a dataclass replaced by the fields of the dataclass.

    Its docstring describes all of them: as the docstrings of the dataclasses do, unless that of `function` does.

    Args:
        function: A function whose dataclass parameters have defaults, or their fields have.
        form: For the form of a pipeline: the field `words` of `corpus: Layout` becomes `corpus_words`, fields marked
            as `FINE` are left out, and parameters are sorted by name. `function` gets placeholders of values,
            which nothing checks.
        kinds: By parameter, the dataclass to take instead of the one in the signature.
        given: Values of parameters that callers do not see.
    """
    signature = inspect.signature(function, eval_str=True)
    parameters: list[inspect.Parameter] = []
    groups: dict[str, tuple[Any, dict[str, inspect.Parameter]]] = {}  # of each dataclass: what makes it, its fields
    meanings: dict[str, str] = {}
    for name, parameter in signature.parameters.items():
        kind: Any = kinds.get(name, parameter.annotation)
        if name in given:
            continue
        if not (isinstance(kind, type) and is_dataclass(kind)):
            parameters.append(parameter)
            continue
        fields, meaning_of = _fields(parameter.replace(annotation=kind), form), _inherited(kind)
        parameters += fields.values()
        meanings |= {shown.name: meaning_of.get(field, "") for field, shown in fields.items()}
        groups[name] = (SimpleNamespace if form else kind, fields)
    meanings |= {name: meaning for name, meaning in descriptions(function).items() if name not in groups}
    if form:
        parameters.sort(key=lambda one: (one.default is not one.empty, one.name))  # Python wants required ones first
    signature = signature.replace(parameters=parameters)

    @wraps(function)
    def call(*positional: Any, **named: Any) -> Any:
        bound = signature.bind(*positional, **named)
        bound.apply_defaults()
        values = {**given, **bound.arguments}
        made = {}
        for name, (make, fields) in groups.items():
            made[name] = make(**{field: values.pop(shown.name) for field, shown in fields.items()})
        return function(**values, **made)

    described = [f"    {parameter.name}: {meanings.get(parameter.name, '')}" for parameter in parameters]
    call.__doc__ = "\n".join([parse(function.__doc__ or "").description or "", "", "Args:", *described])
    call.__signature__ = signature  # type: ignore[attr-defined]
    return call


def _inherited(kind: type) -> dict[str, str]:
    """Return what the docstrings of a class and its bases say about each attribute."""
    return {name: text for base in reversed(inspect.getmro(kind)) for name, text in descriptions(base).items()}


def descriptions(documented: Any) -> dict[str, str]:
    """Return what a docstring says about each argument or attribute, by name, each on one line."""
    entries = parse(documented.__doc__ or "").params
    return {entry.arg_name: " ".join((entry.description or "").split()) for entry in entries}
