"""Read values of pipeline parameters from a file and the command line, and check them before anything starts."""

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tlm.errors import InputError, nearest, with_article
from tlm.runs.pods import check_pods
from tlm.runs.registry import check_address
from tlm.settings.options import Pods
from tlm.training.input.located import is_hub_name

# Parameters that are paths or URIs.
_LOCATIONS = ("store_root", "corpus_paths", "task_path", "task_paths", "task_files", "run_published", "paper_models")
# Passwords in URLs, AWS access keys, tokens of the Hugging Face Hub; and variables whose values are secret.
_SECRET = re.compile(r"://[^/?#\s]*:[^/?#\s]*@|\b(AKIA|ASIA)[A-Z0-9]{16}\b|\bhf_[A-Za-z0-9]{30,}")
_SECRETS = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "HF_TOKEN", "KFP_EXISTING_TOKEN")
_NUMBERS = {"NUMBER_INTEGER": int, "NUMBER_DOUBLE": float}
_TYPES: dict[str, type] = _NUMBERS | {"STRING": str, "BOOLEAN": bool, "LIST": list, "STRUCT": dict}


class Parameter(NamedTuple):
    """A parameter as a compiled pipeline declares it."""

    type: type
    required: bool


def declared(spec: Mapping[str, Any]) -> dict[str, Parameter]:
    """Return the parameters of a compiled pipeline by name."""
    inputs = spec.get("root", {}).get("inputDefinitions", {}).get("parameters", {})
    return {
        name: Parameter(_TYPES.get(entry.get("parameterType"), object), not entry.get("isOptional"))
        for name, entry in inputs.items()
    }


def read_parameters(params: Path | None, changes: Sequence[str], known: Mapping[str, Parameter]) -> dict[str, Any]:
    """Return the values of parameters by name: those in `params`, replaced by `changes` (``name=value``).

    Args:
        params: YAML file with lines ``name: value``.
        changes: Single parameters; values of parameters that are not text are read as YAML.
        known: The parameters of the pipeline.

    Raises:
        InputError: There is no such file, it is no YAML mapping, or a parameter is unknown, missing or of another type.
    """
    values = {}
    if params:
        read = read_mapping(params, "lines of the form 'parameter: value', as in pipelines/params")
        values = {str(name): value for name, value in read.items()}
    for change in changes:
        name, separator, value = change.partition("=")
        if not separator:
            raise InputError(f"--set {change}: expected name=value")
        values[name] = value if name in known and known[name].type is str else _read_yaml(value, f"--set {change}")
    for name, parameter in known.items():
        if parameter.required and name not in values:
            raise InputError(f"parameter '{name}' is missing and has no default; give it with --set {name}=…")
    checked = {name: _checked(name, value, known) for name, value in values.items()}
    pods = {field: checked[f"train_{field}"] for field in vars(Pods()) if f"train_{field}" in checked}
    check_pods(Pods(**pods))
    if address := checked.get("registry_address"):
        check_address(address)
    return checked


def read_mapping(file: Path, expected: str) -> dict[Any, Any]:
    """Return the mapping in `file`; `expected` says in errors what it should contain, and how to get one.

    Raises:
        InputError: The file cannot be read, is no YAML, or holds something else than a mapping.
    """
    try:
        values = _read_yaml(file.read_text(encoding="utf-8"), str(file))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: cannot be read ({error}); expected {expected}") from None
    if not isinstance(values, dict):
        raise InputError(f"{file}: expected {expected}, found {with_article(type(values).__name__)}")
    return values


def check_reachable(values: Mapping[str, Any], where: str = "pods", schemes: str = "[a-z0-9]+:") -> None:
    """Raise InputError for a parameter that names a file of this machine, which steps in pods or containers lack."""
    for name in _LOCATIONS:
        for place in map(str.strip, str(values.get(name, "")).split(",")):
            if place and not re.match(schemes, place) and not (name == "run_published" and is_hub_name(place)):
                raise InputError(f"parameter '{name}': {where} do not see '{place}' of this machine; give s3://…")


def _read_yaml(text: str, where: str) -> Any:
    """Return the value of a text in YAML or JSON (which is YAML too); `where` is for the error."""
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InputError(f"{where}: not valid YAML or JSON: {' '.join(str(error).split())}") from None


def _checked(name: str, value: Any, known: Mapping[str, Parameter]) -> Any:
    if name not in known:
        raise InputError(f"parameter '{name}' is not known{nearest(name, known)}")
    expected = known[name].type
    if _SECRET.search(str(value)) or any(secret in str(value) for secret in map(os.environ.get, _SECRETS) if secret):
        raise InputError(
            f"parameter '{name}' has a password, key or token in it, and everybody sees parameters; take it out: "
            "keys come from the environment, on Kubernetes from secrets"
        )
    if value is None:
        raise InputError(f"parameter '{name}' has no value; leave it out, or write '' for an empty text")
    if expected is float and type(value) is int:
        value = float(value)
    if expected is not object and type(value) is not expected:
        raise InputError(
            f"parameter '{name}': {value!r} is {with_article(type(value).__name__)}, expected {expected.__name__}"
            + (f"; write '{value}' in quotes" if expected is str else "")
        )
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        raise InputError(f"parameter '{name}': {value!r} cannot be written as JSON; write plain values") from None
    return value
