"""Take groups of settings as arguments, where the caller (kfp, typer) knows single settings only."""

import inspect
from collections.abc import Callable
from dataclasses import is_dataclass
from functools import wraps
from typing import Any, get_type_hints

from docstring_parser import parse

from tlm.command import descriptions


def ungrouped(function: Callable[..., Any], *, prefixed: bool = False, **given: Any) -> Callable[..., Any]:
    """Return `function` with each dataclass argument replaced by the fields of that dataclass, as separate arguments.

    Its docstring describes all of them: as the docstrings of the dataclasses do, unless that of `function` does.

    Args:
        function: A function whose dataclass arguments have defaults for all of their fields.
        prefixed: Prefix each field with the argument's name, so that `corpus: Corpus` becomes `corpus_paths` and so on,
            and sort the arguments by name.
        given: Values of arguments that callers do not see.
    """
    groups, arguments = {}, []
    meanings: dict[str, str] = {}
    for argument in inspect.signature(function).parameters.values():
        if argument.name in given:
            continue
        if is_dataclass(argument.annotation):
            group: Any = argument.annotation
            hints, defaults = get_type_hints(group, include_extras=True), vars(group())
            names = {field: f"{argument.name}_{field}" if prefixed else field for field in hints}
            groups[argument.name] = group, names
            for field, name in names.items():
                arguments.append(argument.replace(name=name, default=defaults[field], annotation=hints[field]))
            for base in reversed(inspect.getmro(group)):
                meanings |= {names[field]: meaning for field, meaning in descriptions(base).items()}
        else:
            arguments.append(argument)
    meanings |= descriptions(function)
    if prefixed:
        arguments.sort(key=lambda argument: argument.name)
    signature = inspect.Signature(arguments, return_annotation=function.__annotations__["return"])

    @wraps(function)
    def call(*positional: Any, **named: Any) -> Any:
        values = given | signature.bind(*positional, **named).arguments
        for argument, (group, names) in groups.items():
            values[argument] = group(**{field: values.pop(name) for field, name in names.items()})
        return function(**values)

    described = [f"    {argument.name}: {meanings[argument.name]}" for argument in arguments]
    call.__doc__ = "\n".join([parse(function.__doc__ or "").description or "", "", "Args:", *described])
    call.__signature__ = signature  # type: ignore[attr-defined]
    return call
