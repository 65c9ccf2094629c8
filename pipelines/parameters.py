"""Pipeline parameters from a YAML file and the command line, checked against the pipeline before anything starts."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from pipelines.tlm import tlm
from tlm.errors import InputError, nearest

# as the pipeline itself declares them
TYPES: dict[str, type] = {name: type(spec.default) for name, spec in tlm.component_spec.inputs.items()}


def read_parameters(file: Path | None, changes: Sequence[str] = ()) -> dict[str, Any]:
    """Parameter values by name: those in `file`, replaced by `changes` (``name=value``).

    Raises:
        InputError: no such file, not a YAML mapping, an unknown parameter or a value of the wrong type.
    """
    values = _from_file(file) if file else {}
    for change in changes:
        name, separator, value = change.partition("=")
        if not separator:
            raise InputError(f"--set {change}: expected name=value")
        values[name] = value if TYPES.get(name) is str else yaml.safe_load(value)
    for name, value in values.items():
        _check(name, value)
    return values


def _from_file(file: Path) -> dict[str, Any]:
    try:
        values = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: cannot be read ({error}); samples are in pipelines/params") from None
    except yaml.YAMLError as error:
        raise InputError(f"{file}: not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(values, dict):
        raise InputError(f"{file}: expected lines of the form 'parameter: value', found a {type(values).__name__}")
    return {str(name): value for name, value in values.items()}


def _check(name: str, value: Any) -> None:
    if name not in TYPES:
        raise InputError(f"parameter '{name}' is not known{nearest(name, TYPES)}")
    if type(value) is not TYPES[name]:
        raise InputError(
            f"parameter '{name}': {value!r} is a {type(value).__name__}, expected {TYPES[name].__name__}"
            + (f"; write '{value}' in quotes" if TYPES[name] is str else "")
        )
