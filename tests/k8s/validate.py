"""Validate YAML from stdin against schemas: ``python validate.py KUBERNETES_VERSION DEFINITION.yaml…``.

Kubernetes' own kinds by its published schemas, others by the CustomResourceDefinitions in the files. A field that no
schema knows, a kind without a schema, and a version that is deprecated are all faults. Runs with the packages of
requirements.txt, not in the project's environment. Prints one fault a line; exit code 1 if there are any.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import yaml
from kubernetes_validate.utils import SchemaNotFoundError, VersionNotSupportedError

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # definitions are long


def main() -> int:
    """Print the faults of all resources on stdin."""
    version, *files = sys.argv[1:]
    resources = list(yaml.load_all(sys.stdin, LOADER))
    known = {key: schema for file in files for key, schema in _served(Path(file))}
    faults = [
        f"{resource['metadata']['name']}: {resource['kind']}: {fault}"
        for resource in resources
        for fault in _faults(resource, version, known)
    ]
    print("\n".join(faults))
    return bool(faults)


def _faults(resource: dict[str, Any], version: str, known: dict[tuple[str, str], Any]) -> Iterator[str]:
    schema = known.get((resource["apiVersion"], resource["kind"]))
    if schema is None:
        yield from _own(resource, version)
    elif "deprecated" in schema:
        yield f"{resource['apiVersion']} is deprecated"
    else:
        for error in jsonschema.Draft202012Validator(schema).iter_errors(resource):
            yield f"{error.json_path}: {error.message}"


def _own(resource: dict[str, Any], version: str) -> Iterator[str]:
    try:
        used = kubernetes_validate.validate(resource, version, strict=True)
        if used != version:  # it falls back to the newest that it has
            yield f"there is no schema of Kubernetes {version}"
    except kubernetes_validate.ValidationError as error:
        yield f"{'.'.join(map(str, error.path))}: {error.message}"
    except (SchemaNotFoundError, VersionNotSupportedError) as error:
        yield error.message


def _served(file: Path) -> Iterator[tuple[tuple[str, str], dict[str, Any]]]:
    """(apiVersion, kind) and schema of each version that a CustomResourceDefinition serves."""
    for definition in yaml.load_all(file.read_text(encoding="utf-8"), LOADER):
        group, kind = definition["spec"]["group"], definition["spec"]["names"]["kind"]
        for version in definition["spec"]["versions"]:
            if version["served"]:
                schema = version["schema"]["openAPIV3Schema"]
                schema["properties"] |= {name: {} for name in ("apiVersion", "kind", "metadata")}
                marks = {"deprecated": True} if version.get("deprecated") else {}
                yield (f"{group}/{version['name']}", kind), _strict(schema) | marks


def _strict(schema: Any) -> Any:
    """The schema with unknown fields refused, as the API server warns of them, unless it wants to keep them."""
    if isinstance(schema, list):
        return [_strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    strict = {name: _strict(part) for name, part in schema.items() if name not in ("properties", "nullable")}
    if "properties" in schema:
        strict["properties"] = {name: _strict(part) for name, part in schema["properties"].items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            strict.setdefault("additionalProperties", False)
    return strict


if __name__ == "__main__":
    sys.exit(main())
